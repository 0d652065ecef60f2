//! Requests that no kernel sends, from a socket in the place of the driver: offsets and lengths at
//! the ends of their types, unknown operations, storms of what has no answer, bytes at random. Each
//! is answered at most once, harms no byte that it does not name, and the next one is served. That
//! data is as long as its request says, the library trusts the kernel for: it panics otherwise.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{Config, Session, SessionACL};
use proptest::collection::vec;
use proptest::prelude::*;
use rustix::fd::OwnedFd;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use zfold_pool::PoolOptions;
use zfold_store::{CodecKind, Store, StoreOptions};

use super::file::DeviceFile;
use crate::DiskOptions;
use crate::disk::Disk;

const SIZE: u64 = 32 * 4096;
const HEADER: usize = 40;

const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const READ: u32 = 15;
const WRITE: u32 = 16;
const SETXATTR: u32 = 21;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const IOCTL: u32 = 39;
const BATCH_FORGET: u32 = 42;
const FALLOCATE: u32 = 43;
const LSEEK: u32 = 46;

const FATTR_SIZE: u64 = 1 << 3;
const FATTR_FH: u64 = 1 << 6;
const EINVAL: i32 = 22;

/// Where offsets and lengths change their meaning.
const EDGES: [u64; 14] = [
    0,
    1,
    4095,
    4096,
    SIZE - 1,
    SIZE,
    SIZE + 1,
    u32::MAX as u64,
    i64::MAX as u64 - 4096,
    i64::MAX as u64,
    i64::MAX as u64 + 1,
    u64::MAX - 4096,
    u64::MAX - 1,
    u64::MAX,
];

/// Who sits at the other end, and what it talks to.
struct Driver {
    socket: OwnedFd,
    disk: Arc<Disk>,
    unique: u64,
    server: JoinHandle<io::Result<()>>,
}

impl Driver {
    fn new() -> Self {
        let pool = zfold_pool::create("test", &PoolOptions::default()).unwrap();
        let store = Store::new(pool, &StoreOptions::new(32, CodecKind::Lz4.into())).unwrap();
        let disk = Arc::new(Disk::new(Arc::new(store), &DiskOptions::new(SIZE)).unwrap());
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (socket, theirs) =
            rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        // Ends a test that would wait for ever.
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(60))).unwrap();
        let file =
            DeviceFile::new(disk.clone(), &tempfile::tempfile().unwrap().metadata().unwrap());
        let serve =
            move || Session::from_fd(file, theirs, SessionACL::All, Config::default())?.run();
        let server = std::thread::spawn(serve);
        let mut driver = Self { socket, disk, unique: 0, server };
        let init = [7_u32, 40, 1 << 17, u32::MAX, u32::MAX].map(u32::to_ne_bytes).concat();
        let (error, _) = driver.ask(INIT, &[init, vec![0; 44]].concat());
        assert_eq!(error, 0, "the beginning");
        driver
    }

    fn send(&mut self, operation: u32, body: &[u8]) {
        self.unique += 1;
        let mut request = Vec::with_capacity(HEADER + body.len());
        request.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        request.extend(operation.to_ne_bytes());
        request.extend(self.unique.to_ne_bytes());
        request.extend(1_u64.to_ne_bytes());
        request.resize(HEADER, 0);
        request.extend(body);
        let sent = rustix::net::send(&self.socket, &request, SendFlags::NOSIGNAL).unwrap();
        assert_eq!(sent, request.len());
    }

    /// The next answer: to which request, its error and its bytes.
    fn answer(&self) -> (u64, i32, Vec<u8>) {
        let mut answer = vec![0; 2 << 20];
        let (_, len) =
            rustix::net::recv(&self.socket, &mut *answer, RecvFlags::empty()).expect("an answer");
        answer.truncate(len);
        assert!(len >= 16, "an answer of {len} bytes");
        let word = |at: usize| u32::from_ne_bytes(answer[at..at + 4].try_into().unwrap());
        assert_eq!(word(0) as usize, len, "it says its length");
        let unique = u64::from_ne_bytes(answer[8..16].try_into().unwrap());
        (unique, -(word(4) as i32), answer.split_off(16))
    }

    fn ask(&mut self, operation: u32, body: &[u8]) -> (i32, Vec<u8>) {
        self.send(operation, body);
        let (unique, error, bytes) = self.answer();
        assert_eq!(unique, self.unique, "one answer to each");
        assert!((0..4096).contains(&error), "{error} is no error");
        (error, bytes)
    }

    /// The file is served, and no answer is left over; returns its length.
    fn len(&mut self) -> u64 {
        let (error, bytes) = self.ask(GETATTR, &[0; 16]);
        assert_eq!(error, 0);
        u64::from_ne_bytes(bytes[24..32].try_into().unwrap())
    }

    /// Fills the device; returns its contents.
    fn fill(&self) -> Vec<u8> {
        let contents: Vec<u8> = (0..SIZE).map(|n| (n / 7 % 251) as u8).collect();
        self.disk.write(0, &contents).unwrap();
        contents
    }

    fn contents(&self) -> Vec<u8> {
        let mut contents = vec![0; SIZE as usize];
        self.disk.read(0, &mut contents).unwrap();
        contents
    }

    /// Ends the session; the server's thread has not panicked.
    fn end(mut self) {
        self.disk.store().check();
        assert_eq!(self.ask(DESTROY, &[]).0, 0);
        self.server.join().expect("no panic").unwrap();
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn reads_and_writes_at_the_edges_stay_on_the_device() {
    let mut driver = Driver::new();
    let mut model = driver.fill();
    for offset in EDGES {
        let rest = SIZE.saturating_sub(offset) as usize;
        for size in [0, 1, 4096, SIZE as u32, 1 << 20, 1 << 31, u32::MAX] {
            let (error, bytes) = driver.ask(READ, &words(&[0, offset, size.into(), 0, 0]));
            if error == 0 {
                let from = offset.min(SIZE) as usize;
                assert!(bytes == model[from..from + rest.min(size as usize)], "{offset} {size}");
            }
        }
        for len in [0, 1, 4096, 100_000] {
            let data = vec![(offset % 255) as u8; len];
            let (error, bytes) =
                driver.ask(WRITE, &[words(&[0, offset, len as u64, 0, 0]), data.clone()].concat());
            let written = rest.min(len);
            if error == 0 {
                assert_eq!(bytes[..4], (written as u32).to_ne_bytes(), "{offset} {len}");
                let from = offset.min(SIZE) as usize;
                model[from..from + written].copy_from_slice(&data[..written]);
            } else {
                assert!(offset >= SIZE, "{offset} {len}: {error}");
            }
        }
    }
    assert!(driver.contents() == model);
    assert_eq!(driver.len(), SIZE);
    driver.end();
}

#[test]
fn other_requests_at_the_edges_change_no_length_and_free_what_they_name() {
    let mut driver = Driver::new();
    for offset in EDGES {
        for len in EDGES {
            for mode in [0_u64, 1, 2, 3, 0x10, 0x11, 0x20, 0x40, u32::MAX.into()] {
                let mut model = driver.fill();
                let (error, _) = driver.ask(FALLOCATE, &words(&[0, offset, len, mode]));
                if error == 0 {
                    let from = offset.min(SIZE) as usize;
                    let end = offset.saturating_add(len).min(SIZE) as usize;
                    model[from..end.max(from)].fill(0);
                }
                assert!(driver.contents() == model, "{offset} {len} {mode}: {error}");
            }
        }
        for whence in [0_u64, 2, 3, 4, 5, u32::MAX.into()] {
            let (error, bytes) = driver.ask(LSEEK, &words(&[0, offset, whence]));
            if error == 0 {
                let at = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
                assert!((offset..=SIZE).contains(&at), "{offset} {whence}: {at}");
            }
        }
        // Of an open file, and as `O_TRUNC` comes, which empties it.
        for valid in [FATTR_SIZE | FATTR_FH, FATTR_SIZE] {
            let mut model = driver.fill();
            let body = [words(&[valid, 0, offset]), vec![0; 64]].concat();
            let emptied = offset == 0 && valid == FATTR_SIZE;
            let (error, _) = driver.ask(SETATTR, &body);
            assert_eq!(error, if emptied || offset == SIZE { 0 } else { EINVAL }, "to {offset}");
            if emptied {
                model.fill(0);
            }
            assert!(driver.contents() == model, "to {offset}");
            assert_eq!(driver.len(), SIZE);
        }
    }
    driver.end();
}

#[test]
fn unknown_operations_are_refused_and_storms_of_the_others_pass() {
    let mut driver = Driver::new();
    let contents = driver.fill();
    for operation in (48..61).chain(64..512).chain([0, 7, 19, 4095, 4097, 1 << 20, u32::MAX]) {
        assert_eq!(driver.ask(operation, &[0xFF; 64]).0, 38, "{operation}: ENOSYS");
    }
    for n in 0..5000 {
        assert_eq!(driver.ask(INTERRUPT, &words(&[n])).0, 38, "what is done is not interrupted");
        driver.send(FORGET, &words(&[u64::MAX]));
        driver.send(BATCH_FORGET, &words(&[1, 1, u64::MAX]));
    }
    // More than there are.
    driver.send(BATCH_FORGET, &words(&[u32::MAX.into(), 1]));
    assert_eq!(driver.answer().1, 38);
    assert_eq!(driver.ask(INIT, &[0; 64]).0, 5, "it has begun");
    assert!(driver.contents() == contents);
    assert_eq!(driver.len(), SIZE);
    driver.end();
}

#[test]
fn a_request_that_is_cut_off_ends_the_session_without_a_panic() {
    for len in [0, 1, 8, HEADER - 1] {
        let driver = Driver::new();
        rustix::net::send(&driver.socket, &vec![0xFF; len], SendFlags::NOSIGNAL).unwrap();
        assert!(driver.server.join().expect("no panic").is_err());
    }
    let driver = Driver::new();
    rustix::net::send(&driver.socket, &[0xFF; 64], SendFlags::NOSIGNAL).unwrap();
    assert!(driver.server.join().expect("no panic").is_err(), "it says that it is longer");
}

/// Bytes, most of them zeros, so that numbers are often small.
fn body() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![3 => Just(0), 1 => any::<u8>()], 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(16)
    })]

    #[test]
    fn bytes_at_random_are_survived(
        requests in vec((0..64_u32, body()), 1..200),
    ) {
        let mut driver = Driver::new();
        for (operation, body) in requests {
            // Of those with data, the library asserts that it is as long as they say.
            if [WRITE, SETXATTR, IOCTL, DESTROY].contains(&operation) {
                continue;
            }
            driver.send(operation, &body);
            // Not all have an answer; that to this one comes after all before it.
            driver.send(GETATTR, &[0; 16]);
            let (unique, error, _) = driver.answer();
            prop_assert!((0..4096).contains(&error), "{operation}: {error}");
            if unique != driver.unique {
                prop_assert_eq!(unique + 1, driver.unique, "one answer to each");
                prop_assert_eq!(driver.answer().0, driver.unique);
            }
        }
        prop_assert_eq!(driver.len(), SIZE);
        driver.end();
    }
}
