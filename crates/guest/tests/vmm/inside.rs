//! The inside of the stand-in: memory, a userfaultfd, the message, and commands.
//!
//! - M1: the memory is mapped once, private and anonymous, for as long as the process lives, and
//!   reached by volatile accesses of its first bytes or copies of pages only.

use std::fs::File;
use std::io::{BufRead as _, BufReader, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use zfold_uffd::{Faults, Features, Uffd};

use super::{PAGE, page};

#[path = "hammer.rs"]
mod hammer;
#[path = "live.rs"]
mod live;

const HUGE: usize = 2 << 20;

/// What the process maps.
#[derive(Clone, Copy)]
struct Memory {
    base: usize,
    pages: u64,
}

impl Memory {
    fn new(pages: u64, huge_pages: bool) -> Option<Self> {
        let len = pages as usize * PAGE + HUGE;
        // Huge pages are reserved, so that there are enough, or none.
        let kind = if huge_pages { libc::MAP_HUGETLB } else { libc::MAP_NORESERVE };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | kind;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
        let base = (base != libc::MAP_FAILED).then(|| base.expose_provenance())?;
        Some(Self { base: base.next_multiple_of(HUGE), pages })
    }

    /// Returns the words of a page.
    fn at(self, number: u64) -> *mut u64 {
        assert!(number < self.pages);
        std::ptr::with_exposed_provenance_mut(self.base + number as usize * PAGE)
    }

    fn read(self, number: u64) -> u64 {
        // SAFETY: mapped and aligned (M1); others may change it, so the access is volatile.
        unsafe { self.at(number).read_volatile() }
    }

    fn write(self, number: u64, value: u64) {
        // SAFETY: same as for `read`.
        unsafe { self.at(number).write_volatile(value) }
    }

    fn copy(self, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; PAGE];
        // SAFETY: a page of the mapping (M1), and one of our own.
        unsafe { std::ptr::copy(self.at(number).cast(), bytes.as_mut_ptr(), PAGE) };
        bytes
    }

    /// Returns the pages that are there.
    fn present(self) -> impl Iterator<Item = u64> {
        let mut found = vec![0_u8; self.pages as usize];
        let len = found.len() * PAGE;
        // SAFETY: a range of the mapping (M1), and a byte of our own for each page of it.
        let done = unsafe { libc::mincore(self.at(0).cast(), len, found.as_mut_ptr()) };
        assert_eq!(done, 0, "mincore");
        (0..self.pages).filter(move |&number| found[number as usize] & 1 == 1)
    }

    fn discard(self, number: u64, pages: u64) {
        assert!(number + pages <= self.pages);
        let len = pages as usize * PAGE;
        // SAFETY: a range of the mapping (M1), to which there are no references.
        let done = unsafe { libc::madvise(self.at(number).cast(), len, libc::MADV_DONTNEED) };
        assert_eq!(done, 0, "madvise");
    }
}

fn open() -> std::io::Result<Uffd> {
    let uffd = Uffd::open(Faults::All).or_else(|_| Uffd::open(Faults::UserOnly))?;
    uffd.handshake(Features::DISCARDS)?;
    Ok(uffd)
}

/// Does what the environment and then the test say, if this is a stand-in.
pub(crate) fn run() {
    let Some(control) = std::env::var_os("ZFOLD_STAND_IN") else { return };
    let mut control = UnixStream::connect(control).expect("the test listens");
    let how = std::env::var("ZFOLD_STAND_IN_HOW").expect("how");
    let (pages, message) = how.split_once(' ').expect("two words");
    let pages = pages.parse().expect("a number");
    let (uffd, memory) = match (open(), Memory::new(pages, message == "hugetlb")) {
        (Ok(uffd), Some(memory)) => (uffd, memory),
        (uffd, memory) => {
            let told = format!("without: {:?}, memory {}\n", uffd.err(), memory.is_some());
            return control.write_all(told.as_bytes()).expect("told");
        }
    };
    if message != "unregistered" {
        let all = memory.base..memory.base + memory.pages as usize * PAGE;
        // SAFETY: the server at the socket answers for the range; nothing else lies in it (M1).
        unsafe { uffd.register(all) }.expect("registered");
    }
    let socket = PathBuf::from(std::env::var_os("ZFOLD_STAND_IN_SOCKET").expect("a socket"));
    let began = Instant::now();
    let stream = UnixStream::connect(socket).expect("connected");
    send(&stream, &uffd, memory, message);
    if message == "first" {
        memory.read(memory.pages - 1);
    }
    if message == "waiting" {
        let uffd = uffd.duplicate().expect("a descriptor");
        std::thread::spawn(move || {
            loop {
                fcntl_setfl(&uffd, OFlags::empty()).expect("set");
            }
        });
    }
    let first = began.elapsed();
    control.write_all(b"ready\n").expect("told");
    obey(&control, memory, first, Some(stream));
    // As in a VMM: it is open for as long as the guest lives.
    drop(uffd);
}

fn region(base: usize, pages: u64, offset: u64, unit: usize, name: &str) -> String {
    let size = pages as usize * PAGE;
    format!(r#"{{"base_host_virt_addr":{base},"size":{size},"offset":{offset},"{name}":{unit}}}"#)
}

fn send(stream: &UnixStream, uffd: &Uffd, memory: Memory, message: &str) {
    let Memory { base, pages } = memory;
    let half = pages / 2;
    let second = base + half as usize * PAGE;
    // The second half of the memory first.
    let two = format!(
        "[{},{}]",
        region(second, pages - half, half * PAGE as u64, PAGE, "page_size"),
        region(base, half, 0, PAGE, "page_size")
    );
    let one = |unit, name| format!("[{}]", region(base, pages, 0, unit, name));
    let bare = || Uffd::open(Faults::UserOnly).expect("as before");
    let pipe = rustix::pipe::pipe().expect("a pipe").0;
    let file = File::open("/dev/null").expect("a file");
    match message {
        "whole" | "first" | "unregistered" | "waiting" => {
            send_with(stream, two.as_bytes(), &[uffd.as_fd()])
        }
        "old" => send_with(stream, one(PAGE, "page_size_kib").as_bytes(), &[uffd.as_fd()]),
        "huge" | "hugetlb" => send_with(stream, one(HUGE, "page_size").as_bytes(), &[uffd.as_fd()]),
        "pieces" => {
            let (begin, rest) = two.as_bytes().split_at(17);
            send_with(stream, begin, &[]);
            for (at, piece) in rest.chunks(9).enumerate() {
                let fds = if at == 3 { &[uffd.as_fd()][..] } else { &[] };
                send_with(stream, piece, fds);
            }
        }
        "half" => {
            let text = format!("[{}]", region(base, half, 0, PAGE, "page_size"));
            send_with(stream, text.as_bytes(), &[uffd.as_fd()]);
        }
        "beyond" => {
            let text = format!("[{}]", region(base, pages, 1 << 40, PAGE, "page_size"));
            send_with(stream, text.as_bytes(), &[uffd.as_fd()]);
        }
        "silent" => {}
        "nofd" => send_with(stream, two.as_bytes(), &[]),
        "pipe" => send_with(stream, two.as_bytes(), &[pipe.as_fd()]),
        "no-api" => send_with(stream, two.as_bytes(), &[bare().as_fd()]),
        "two" => send_with(stream, two.as_bytes(), &[file.as_fd(), uffd.as_fd()]),
        "garbage" => send_with(stream, b"GET / HTTP/1.1\r\n\r\n", &[uffd.as_fd()]),
        // As JSON in a string of JSON it would be six times as long.
        "broken" => {
            let text = two.replacen(':', ";", 1);
            send_with(stream, text.as_bytes(), &[uffd.as_fd()]);
        }
        "odd" => {
            let text = format!("[\"{}\"]", "\u{1}".repeat(200_000));
            send_with(stream, text.as_bytes(), &[uffd.as_fd()]);
        }
        other => panic!("no message {other}"),
    }
}

fn send_with(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(beside.push(SendAncillaryMessage::ScmRights(fds)));
    }
    // A server may have hung up.
    let _ = sendmsg(stream, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL);
}

/// Does what is said, and answers each line with one.
fn obey(control: &UnixStream, memory: Memory, first: Duration, mut stream: Option<UnixStream>) {
    let mut out = control.try_clone().expect("a descriptor");
    for line in BufReader::new(control).lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let answer = match words[0] {
            // Compares pages with those of an image.
            "verify" => verify(memory, number(1), number(2)..number(3), number(4)),
            // What the beginning of a page holds.
            "read" => memory.read(number(1)).to_string(),
            "write" => {
                memory.write(number(1), number(2));
                "ok".to_owned()
            }
            "discard" => {
                memory.discard(number(1), number(2));
                "ok".to_owned()
            }
            "hammer" => hammer::hammer(memory, number(1), number(2), number(3)),
            // Lives for so many milliseconds, and says how long it waited at most. It begins with
            // what a file has, and leaves what it has then in another one.
            "live" => {
                let [from, to] =
                    [3, 4].map(|at| words.get(at).filter(|&&word| word != "-").map(PathBuf::from));
                let (seed, time) = (number(1), Duration::from_millis(number(2)));
                live::live(memory, &live::Life { seed, time, from, to })
            }
            "snapshot" => snapshot(memory, words[1]),
            // Nanoseconds from the connection to the first page, if that was asked for at once.
            "first" => first.as_nanos().to_string(),
            "time" => time(memory, number(1)..number(2)),
            "hang-up" => {
                stream = None;
                "ok".to_owned()
            }
            other => panic!("no command {other}"),
        };
        out.write_all(format!("{answer}\n").as_bytes()).expect("answered");
    }
    drop(stream);
}

/// Writes a difference as a VMM does that does not track dirty pages: what is there.
fn snapshot(memory: Memory, path: &str) -> String {
    let file = File::create(path).expect("a file");
    file.set_len(memory.pages * PAGE as u64).expect("a length");
    for number in memory.present() {
        file.write_all_at(&memory.copy(number), number * PAGE as u64).expect("written");
    }
    "ok".to_owned()
}

fn verify(memory: Memory, seed: u64, pages: Range<u64>, step: u64) -> String {
    let len = pages.end - pages.start;
    for n in 0..len {
        let number = pages.start + n * step % len;
        if memory.copy(number) != page(seed, number) {
            return format!("page {number} is wrong");
        }
    }
    "right".to_owned()
}

/// Returns the nanoseconds of each first touch, in an order that no window foresees.
fn time(memory: Memory, pages: Range<u64>) -> String {
    let len = pages.end - pages.start;
    let times = (0..len).map(|n| {
        let number = pages.start + n * 7919 % len;
        let began = Instant::now();
        memory.read(number);
        began.elapsed().as_nanos().to_string()
    });
    times.collect::<Vec<_>>().join(" ")
}
