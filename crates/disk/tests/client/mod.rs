//! A small client, which says what it is told to say, byte by byte if need be.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use zfold_disk::nbd::{Export, NbdOptions, NbdServer, NbdStats};
use zfold_disk::{Disk, DiskOptions, SectorSize};
use zfold_pool::PoolOptions;
use zfold_store::{CodecKind, Store, StoreOptions};

pub const PAGE: u64 = 4096;

pub const EXPORT_NAME: u32 = 1;
pub const ABORT: u32 = 2;
pub const LIST: u32 = 3;
pub const STARTTLS: u32 = 5;
pub const INFO: u32 = 6;
pub const GO: u32 = 7;
pub const STRUCTURED_REPLY: u32 = 8;
pub const LIST_META_CONTEXT: u32 = 9;
pub const SET_META_CONTEXT: u32 = 10;

pub const ACK: u32 = 1;
pub const UNSUPPORTED: u32 = (1 << 31) + 1;
pub const POLICY: u32 = (1 << 31) + 2;
pub const INVALID: u32 = (1 << 31) + 3;
pub const TLS_REQUIRED: u32 = (1 << 31) + 5;
pub const UNKNOWN: u32 = (1 << 31) + 6;
pub const TOO_BIG: u32 = (1 << 31) + 9;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const DF: u16 = 4;
pub const REQ_ONE: u16 = 8;
pub const FAST_ZERO: u16 = 16;

pub const EPERM: u32 = 1;
pub const EINVAL: u32 = 22;
pub const ENOSPC: u32 = 28;

/// Longer than anything a sound server takes, and shorter than a test's patience.
const PATIENCE: Duration = Duration::from_secs(30);

/// Says that a test did not run.
pub fn skip(test: &str, reason: &str) {
    // Not by a macro, whose output the test harness would keep to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {reason}");
}

pub fn disk(pages: u64) -> Arc<Disk> {
    limited_disk(pages, None)
}

pub fn limited_disk(pages: u64, limit_bytes: Option<u64>) -> Arc<Disk> {
    let pool = zfold_pool::create("test", &PoolOptions::default()).unwrap();
    let mut options = StoreOptions::new(pages, CodecKind::Lz4.into());
    options.limit_bytes = limit_bytes;
    let store = Store::new(pool, &options).unwrap();
    let options = DiskOptions::new(pages * PAGE).with_sector(SectorSize::B512);
    Arc::new(Disk::new(Arc::new(store), &options).unwrap())
}

pub fn export(name: &str, disk: &Arc<Disk>) -> Export {
    let description = format!("the disk {name:?}");
    Export::new(name, Arc::clone(disk)).with_description(description)
}

/// Bytes that compress, and differ from place to place.
pub fn bytes(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|n| ((n / 5 + salt * 31) % 251 + 1) as u8).collect()
}

/// A server with one way in: connections made by hand.
pub struct Served {
    pub server: Arc<NbdServer>,
    threads: Vec<JoinHandle<()>>,
}

impl Served {
    pub fn new(exports: Vec<Export>, options: NbdOptions) -> Self {
        Self { server: NbdServer::new(exports, options), threads: Vec::new() }
    }

    pub fn one(disk: &Arc<Disk>) -> Self {
        Self::new(vec![export("one", disk)], NbdOptions::default())
    }

    /// Returns a connection on which nothing was said yet.
    pub fn connect(&mut self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        ours.set_write_timeout(Some(PATIENCE)).unwrap();
        let server = Arc::clone(&self.server);
        self.threads.push(std::thread::spawn(move || server.serve_connection(theirs)));
        ours
    }

    /// Returns a client in the handshake.
    pub fn client(&mut self) -> Client<UnixStream> {
        Client::greet(self.connect())
    }

    /// Returns a client in transmission with structured replies and block status.
    pub fn ready(&mut self) -> Client<UnixStream> {
        let mut client = self.client();
        client.structured();
        client.go("");
        client
    }

    /// Waits for all connections to end; their clients must have left. Returns what was counted: a
    /// server counts a request after it has answered it.
    pub fn finish(mut self) -> NbdStats {
        for thread in self.threads.drain(..) {
            thread.join().expect("no thread of the server panicked");
        }
        let stats = self.server.stats();
        assert_eq!(stats.connections, 0);
        stats
    }
}

/// A chunk of a structured reply, or a simple reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Simple { cookie: u64, error: u32 },
    Chunk { cookie: u64, done: bool, kind: u16, data: Vec<u8> },
}

pub struct Client<S> {
    pub stream: S,
    pub next_cookie: u64,
}

impl<S: Read + Write> Client<S> {
    /// Takes the greeting and answers it.
    pub fn greet(stream: S) -> Self {
        let mut client = Self { stream, next_cookie: 1 };
        let greeting: [u8; 18] = client.take();
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        assert_eq!(greeting[16..], [0, 3]);
        client.send(&3u32.to_be_bytes());
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server listens");
    }

    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    pub fn take_vec(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    /// Asserts that the server has hung up, with nothing left to say.
    pub fn assert_closed(&mut self) {
        match self.stream.read(&mut [0; 1]) {
            Ok(0) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            other => panic!("the connection is still open: {other:?}"),
        }
    }

    pub fn send_option(&mut self, option: u32, data: &[u8]) {
        let head = [&b"IHAVEOPT"[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes()];
        self.send(&[&head.concat(), data].concat());
    }

    /// Sends an option and returns its replies, the last of which is an ACK or an error.
    pub fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send_option(option, data);
        let mut replies = Vec::new();
        loop {
            let (kind, data) = self.option_reply(option);
            replies.push((kind, data));
            if kind == ACK || kind >> 31 == 1 {
                return replies;
            }
        }
    }

    pub fn option_reply(&mut self, option: u32) -> (u32, Vec<u8>) {
        assert_eq!(self.take::<8>(), 0x3e889045565a9u64.to_be_bytes());
        assert_eq!(u32::from_be_bytes(self.take()), option);
        let kind = u32::from_be_bytes(self.take());
        let len = u32::from_be_bytes(self.take());
        (kind, self.take_vec(len as usize))
    }

    /// Agrees on structured replies and block status of the empty name.
    pub fn structured(&mut self) {
        assert_eq!(self.option(STRUCTURED_REPLY, &[]), [(ACK, vec![])]);
        let replies = self.option(SET_META_CONTEXT, &queries("", &["base:allocation"]));
        assert_eq!(replies.len(), 2);
    }

    /// Begins the transmission; returns the export's size and flags.
    pub fn go(&mut self, name: &str) -> (u64, u16) {
        let replies = self.option(GO, &info_request(name, &[]));
        assert_eq!(replies.last(), Some(&(ACK, vec![])));
        let export = &replies[replies.len() - 2].1;
        assert_eq!(export[..2], [0, 0]);
        let size = u64::from_be_bytes(export[2..10].try_into().unwrap());
        (size, u16::from_be_bytes(export[10..].try_into().unwrap()))
    }

    /// Sends a request and returns its cookie.
    pub fn request(&mut self, command: u16, flags: u16, offset: u64, len: u32) -> u64 {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.send(&request(command, flags, cookie, offset, len));
        cookie
    }

    pub fn reply(&mut self) -> Reply {
        match u32::from_be_bytes(self.take()) {
            0x67446698 => {
                let error = u32::from_be_bytes(self.take());
                Reply::Simple { cookie: u64::from_be_bytes(self.take()), error }
            }
            0x668e33ef => {
                let done = u16::from_be_bytes(self.take()) == 1;
                let kind = u16::from_be_bytes(self.take());
                let cookie = u64::from_be_bytes(self.take());
                let len = u32::from_be_bytes(self.take());
                Reply::Chunk { cookie, done, kind, data: self.take_vec(len as usize) }
            }
            magic => panic!("{magic:#x} begins no reply"),
        }
    }

    /// Returns the error of the next reply, of a request that is not read or block status.
    pub fn outcome(&mut self, cookie: u64) -> u32 {
        match self.reply() {
            Reply::Simple { cookie: theirs, error } if theirs == cookie => error,
            Reply::Chunk { cookie: theirs, done: true, kind: 0x8001, data } if theirs == cookie => {
                error_of(&data)
            }
            other => panic!("no reply to {cookie}: {other:?}"),
        }
    }

    /// Sends a request without payload and returns its error, 0 for success.
    pub fn simple(&mut self, command: u16, flags: u16, offset: u64, len: u32) -> u32 {
        let cookie = self.request(command, flags, offset, len);
        self.outcome(cookie)
    }

    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        let cookie = self.request(WRITE, flags, offset, data.len() as u32);
        self.send(data);
        self.outcome(cookie)
    }

    /// Reads with structured replies, and checks that the chunks cover the range once.
    pub fn read(&mut self, flags: u16, offset: u64, len: u32) -> Result<Vec<u8>, u32> {
        let cookie = self.request(READ, flags, offset, len);
        let mut out = vec![0xEE; len as usize];
        let mut covered = 0;
        loop {
            let Reply::Chunk { cookie: theirs, done, kind, data } = self.reply() else {
                panic!("a read has no simple reply");
            };
            assert_eq!(theirs, cookie);
            if kind == 0x8001 {
                assert!(done);
                return Err(error_of(&data));
            }
            let (at, rest) = data.split_at(if kind == 0 { 0 } else { 8 });
            let at = at.try_into().map_or(offset, u64::from_be_bytes);
            let begin = (at - offset) as usize;
            match kind {
                0 => assert!(done && rest.is_empty()),
                1 => {
                    out[begin..begin + rest.len()].copy_from_slice(rest);
                    covered += rest.len();
                }
                2 => {
                    let len = u32::from_be_bytes(rest.try_into().unwrap()) as usize;
                    out[begin..begin + len].fill(0);
                    covered += len;
                }
                kind => panic!("a read has no chunk of kind {kind}"),
            }
            if done {
                assert_eq!(covered, len as usize);
                return Ok(out);
            }
        }
    }

    /// Returns the lengths and states of a range.
    pub fn block_status(&mut self, flags: u16, offset: u64, len: u32) -> Vec<(u32, u32)> {
        let cookie = self.request(BLOCK_STATUS, flags, offset, len);
        let reply = self.reply();
        let Reply::Chunk { cookie: theirs, done: true, kind: 5, data } = reply else {
            panic!("no block status: {reply:?}");
        };
        assert_eq!(theirs, cookie);
        assert_eq!(data[..4], [0, 0, 0, 1]);
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        data[4..].chunks(8).map(|run| (word(&run[..4]), word(&run[4..]))).collect()
    }
}

fn error_of(data: &[u8]) -> u32 {
    let message = u16::from_be_bytes(data[4..6].try_into().unwrap());
    assert_eq!(data.len(), 6 + usize::from(message));
    assert!(message > 0, "people are told why");
    u32::from_be_bytes(data[..4].try_into().unwrap())
}

pub fn request(command: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut head = 0x25609513u32.to_be_bytes().to_vec();
    head.extend_from_slice(&flags.to_be_bytes());
    head.extend_from_slice(&command.to_be_bytes());
    head.extend_from_slice(&cookie.to_be_bytes());
    head.extend_from_slice(&offset.to_be_bytes());
    head.extend_from_slice(&len.to_be_bytes());
    head
}

pub fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

pub fn info_request(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
    data.extend(wanted.iter().flat_map(|item| item.to_be_bytes()));
    data
}

pub fn queries(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    data.extend(queries.iter().flat_map(|query| string(query)));
    data
}
