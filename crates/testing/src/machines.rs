//! A stand-in for cloud-hypervisor: its side of a local migration, by the numbers of its protocol
//! in v53, with files of memory but no machine.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

pub const START: u16 = 1;
pub const CONFIG: u16 = 2;
pub const STATE: u16 = 3;
pub const MEMORY: u16 = 4;
pub const COMPLETE: u16 = 5;
pub const ABANDON: u16 = 6;
pub const MEMORY_FD: u16 = 7;
pub const COMPLETE_PAUSED: u16 = 8;
const PAGE_FAULT: u16 = 9;

/// The status of an answer; 0 stands for none.
pub const DONE: u16 = 1;
pub const REFUSED: u16 = 2;

const PAGE: u64 = 4096;

/// A slot of memory: its number, the guest's address, and a range of a file.
#[derive(Debug)]
pub struct Slot {
    pub number: u32,
    pub gpa: u64,
    pub bytes: u64,
    pub from: u64,
    pub file: File,
}

impl Slot {
    pub fn contents(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes as usize];
        self.file.read_exact_at(&mut bytes, self.from).expect("as long as the slot");
        bytes
    }
}

/// A machine: memory, and documents.
#[derive(Debug)]
pub struct Machine {
    pub slots: Vec<Slot>,
    pub config: Vec<u8>,
    pub state: Vec<u8>,
}

/// Returns a file in memory.
pub fn memory(bytes: u64) -> File {
    let file = File::from(memfd_create("stand-in", MemfdFlags::CLOEXEC).expect("a file"));
    file.set_len(bytes).expect("a length");
    file
}

impl Machine {
    /// Returns one with three slots: two in one file, of `pages` and 33 pages, in another order
    /// than they have in it, and one of 7 pages. Each third page has a text that `seed` names, and
    /// all others are holes.
    pub fn new(pages: u64, seed: u64) -> Self {
        let zone = memory((pages + 33) * PAGE);
        let slot = |number, gpa, pages: u64, from: u64, file: &File| {
            let file = file.try_clone().expect("a descriptor");
            Slot { number, gpa, bytes: pages * PAGE, from: from * PAGE, file }
        };
        let slots = vec![
            slot(4, 0, pages, 33, &zone),
            slot(0, 4 << 30, 33, 0, &zone),
            slot(7, 5 << 30, 7, 0, &memory(7 * PAGE)),
        ];
        for slot in &slots {
            for page in (0..slot.bytes / PAGE).step_by(3) {
                let word =
                    |n| (seed << 40) ^ (u64::from(slot.number) << 32) ^ (page << 8) ^ (n / 9);
                let text: Vec<_> = (0..512_u64).flat_map(|n| word(n).to_le_bytes()).collect();
                slot.file.write_all_at(&text, slot.from + page * PAGE).expect("written");
            }
        }
        let config = config(&slots, "");
        Self { slots, config, state: format!("{{\"state\":{seed}}}").repeat(1000).into_bytes() }
    }

    /// Returns its memory, one slot after another.
    pub fn contents(&self) -> Vec<u8> {
        self.slots.iter().flat_map(Slot::contents).collect()
    }

    /// Returns the pages of its memory.
    pub fn pages(&self) -> u64 {
        self.slots.iter().map(|slot| slot.bytes / PAGE).sum()
    }

    /// Sends all of it to the receiver at `socket`; returns the answer to the last request.
    pub fn send(&self, socket: &Path, last: u16) -> u16 {
        let mut peer = Sender::connect(socket);
        for answer in self.send_to(&mut peer) {
            assert_eq!(answer, DONE);
        }
        peer.ask(last, &[], None)
    }

    /// Sends all but the last request; returns the answers.
    pub fn send_to(&self, peer: &mut Sender) -> Vec<u16> {
        let mut answers = vec![peer.ask(START, &[], None)];
        answers.extend(self.slots.iter().map(|slot| peer.slot(slot)));
        answers.push(peer.ask(CONFIG, &self.config, None));
        answers.push(peer.ask(STATE, &self.state, None));
        answers
    }
}

/// Returns a configuration with these slots, and `more` in each.
pub fn config(slots: &[Slot], more: &str) -> Vec<u8> {
    let mappings = slots.iter().map(|slot| {
        let Slot { number, gpa, bytes, from, .. } = slot;
        format!(
            r#"{{"gpa":{gpa},"size":{bytes},"slot":{number},"zone_id":"mem0",
                "file_offset":{from}{more}}}"#
        )
    });
    let mappings = mappings.collect::<Vec<_>>().join(",");
    format!(
        r#"{{"vm_config":{{"memory":{{"shared":true}}}},
            "memory_manager_data":{{"guest_ram_mappings":[{mappings}],"start_of_device_area":1}}}}"#
    )
    .into_bytes()
}

/// A connection to a receiver.
#[derive(Debug)]
pub struct Sender(pub UnixStream);

impl Sender {
    pub fn connect(socket: &Path) -> Self {
        Self(UnixStream::connect(socket).expect("a receiver listens"))
    }

    /// Sends a request; returns the status of its answer, 0 if there is none.
    pub fn ask(&mut self, command: u16, payload: &[u8], fd: Option<BorrowedFd<'_>>) -> u16 {
        self.header(command, 0, payload.len() as u64);
        self.payload(payload, fd.as_slice());
        self.answer()
    }

    pub fn slot(&mut self, slot: &Slot) -> u16 {
        self.ask(MEMORY_FD, &slot.number.to_le_bytes(), Some(slot.file.as_fd()))
    }

    /// Sends a header, in pieces. The other side may have hung up.
    pub fn header(&mut self, command: u16, version: u16, len: u64) {
        let mut header = [0; 16];
        header[..2].copy_from_slice(&command.to_le_bytes());
        header[2..4].copy_from_slice(&version.to_le_bytes());
        header[8..].copy_from_slice(&len.to_le_bytes());
        for piece in [&header[..1], &header[1..9], &header[9..]] {
            let _ = self.0.write_all(piece);
        }
    }

    /// Sends a payload with descriptors.
    pub fn payload(&mut self, payload: &[u8], fds: &[BorrowedFd<'_>]) {
        if payload.is_empty() {
            return;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(beside.push(SendAncillaryMessage::ScmRights(fds)), "more than four");
        }
        let first = [IoSlice::new(&payload[..payload.len().min(4)])];
        if sendmsg(&self.0, &first, &mut beside, SendFlags::NOSIGNAL).is_ok() {
            let _ = self.0.write_all(&payload[payload.len().min(4)..]);
        }
    }

    /// Returns the status of an answer, 0 if there is none.
    pub fn answer(&mut self) -> u16 {
        let mut answer = [0; 16];
        match self.0.read_exact(&mut answer) {
            Ok(()) => u16::from_le_bytes([answer[0], answer[1]]),
            Err(_) => 0,
        }
    }
}

/// What a stand-in does as the receiver.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// It was told `memory_mode=postcopy`, and asks for this many pages before it takes the state.
    pub asks: Option<u64>,
    /// The command that it refuses.
    pub refuses: Option<u16>,
}

/// A machine that a stand-in has received.
#[derive(Debug)]
pub struct Received {
    pub machine: Machine,
    /// The last request.
    pub last: u16,
    /// Asks for pages.
    pub faults: Option<Faults>,
}

/// Receives a machine; `None` if it refuses a command, or the sender leaves.
pub fn receive(listener: &UnixListener, how: How) -> Option<Received> {
    let mut stream = listener.accept().expect("a sender").0;
    let mut files = BTreeMap::new();
    let mut machine = Machine { slots: Vec::new(), config: Vec::new(), state: Vec::new() };
    let mut faults = None;
    loop {
        let mut header = [0; 16];
        stream.read_exact(&mut header).ok()?;
        let command = u16::from_le_bytes([header[0], header[1]]);
        let len = u64::from_le_bytes(header[8..].try_into().expect("8 bytes")) as usize;
        let mut payload = vec![0; len];
        match command {
            MEMORY_FD => {
                let file = with_file(&stream, &mut payload);
                files.insert(u32::from_le_bytes(payload.try_into().expect("a number")), file);
            }
            CONFIG => {
                stream.read_exact(&mut payload).expect("a configuration");
                machine.slots = slots(&payload, &mut files);
                machine.config = payload;
            }
            STATE => {
                stream.read_exact(&mut payload).expect("a state");
                machine.state = payload;
                if let Some(asks) = how.asks {
                    let mut asking = Faults::accept(listener);
                    let all = machine
                        .slots
                        .iter()
                        .flat_map(|slot| (0..slot.bytes / PAGE).map(move |page| (slot, page)));
                    for (slot, page) in all.take(asks as usize) {
                        assert_eq!(asking.ask(slot.gpa + page * PAGE, PAGE), DONE);
                        assert!(is_there(slot, page), "slot {} page {page}", slot.number);
                    }
                    faults = Some(asking);
                }
            }
            START => assert_eq!((len, &header[2..4]), (0, &[0, 0][..])),
            COMPLETE | COMPLETE_PAUSED => assert!(len == 0 && files.is_empty()),
            command => panic!("it sent {command}"),
        }
        let status = if how.refuses == Some(command) { REFUSED } else { DONE };
        let mut answer = [0; 16];
        answer[..2].copy_from_slice(&status.to_le_bytes());
        stream.write_all(&answer).expect("it listens");
        match command {
            _ if status == REFUSED => return None,
            COMPLETE | COMPLETE_PAUSED => return Some(Received { machine, last: command, faults }),
            _ => {}
        }
    }
}

/// Returns whether a page is in its slot's file, which may be zeros.
pub fn is_there(slot: &Slot, page: u64) -> bool {
    let at = slot.from + page * PAGE;
    seek(&slot.file, SeekFrom::Data(at)) == Ok(at)
}

fn with_file(stream: &UnixStream, payload: &mut [u8]) -> File {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let len = payload.len();
    let mut into = [IoSliceMut::new(payload)];
    let received = recvmsg(stream, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC);
    assert_eq!(received.expect("received").bytes, len);
    let mut fds = beside.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let file = File::from(fds.next().expect("a descriptor"));
    assert!(fds.next().is_none(), "one descriptor for each slot");
    file
}

/// Returns the slots of a configuration that `config` wrote.
fn slots(config: &[u8], files: &mut BTreeMap<u32, File>) -> Vec<Slot> {
    let text = std::str::from_utf8(config).expect("text");
    let number = |part: &str, name: &str| {
        let rest = part.split_once(&format!("\"{name}\":")).expect("a field").1;
        let end = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse::<u64>().expect("a number")
    };
    let slot = |part: &str| {
        let slot = number(part, "slot") as u32;
        Slot {
            number: slot,
            gpa: number(part, "gpa"),
            bytes: number(part, "size"),
            from: number(part, "file_offset"),
            file: files.remove(&slot).expect("a file for each slot"),
        }
    };
    let list = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).expect("a list").0;
    list.split("},").map(slot).collect()
}

/// The connection by which a stand-in asks for pages, one after another.
#[derive(Debug)]
pub struct Faults(pub Sender);

impl Faults {
    fn accept(listener: &UnixListener) -> Self {
        let mut stream = listener.accept().expect("a second connection").0;
        let mut role = [0; 2];
        stream.read_exact(&mut role).expect("a role");
        assert_eq!(role, [2, 0]);
        Self(Sender(stream))
    }

    /// Asks for a range; returns the status of the answer.
    pub fn ask(&mut self, at: u64, len: u64) -> u16 {
        let payload = [at.to_le_bytes(), len.to_le_bytes()].concat();
        self.0.ask(PAGE_FAULT, &payload, None)
    }
}
