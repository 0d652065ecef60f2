//! A monitor that does what bytes say: messages of vhost-user with descriptors, a queue in the
//! guest's memory, kicks, and memory that shrinks. For a corpus of such bytes and for the fuzzer.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Bytes of the guest's memory.
const MEMORY: u64 = 1 << 20;
/// Where the monitor says that it has the memory.
const USER: u64 = 0x7F00_0000_0000;
/// Longer than a sound server takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a byte of a payload, or a place in memory, stands for.
const VALUES: [u64; 32] = [
    0,
    1,
    2,
    // Indexes of queues in the low half, numbers in the high one.
    1 << 32,
    16 << 32,
    256 << 32,
    (1 << 32) + 1,
    // Features: those that guests ask for, and all.
    0x1_4000_0000,
    0x208,
    0x8208,
    u64::MAX,
    // The memory, the queue's parts and requests in it, as the monitor and as the guest sees them.
    MEMORY,
    USER,
    USER + 0x1000,
    USER + 0x2000,
    USER + 0x3000,
    0x1000,
    0x2000,
    0x3000,
    0x1_0000,
    0x1_0010,
    // Requests and descriptors.
    16 + (1 << 32) + (1 << 48),
    512 + (1 << 32) + (2 << 48),
    512 + (3 << 32) + (2 << 48),
    1 + (2 << 32),
    // What is not there.
    2 * MEMORY,
    MEMORY - 8,
    1 << 62,
    u64::MAX - 4095,
    USER + MEMORY - 4,
    0xFFFF_FFFF,
    4096,
];

fn value(byte: u8) -> u64 {
    VALUES[usize::from(byte) % VALUES.len()]
}

/// Numbers of actions that are no messages.
const PUT: u8 = 200;
const KICK: u8 = 201;
const SHRINK: u8 = 202;
const HEAR: u8 = 203;
const RAW: u8 = 204;

/// Messages that come with memory; all others with event descriptors.
const SET_MEM_TABLE: u8 = 5;
const ADD_MEM_REG: u8 = 37;

/// Connects to `socket`, does what `script` says, and leaves. An action is a number, a shape (how
/// many bytes follow, in the low six bits, and how many descriptors, in the others), and the bytes.
/// It waits so long for an answer that it wants to hear.
///
/// # Panics
/// If the system has no descriptors.
pub(crate) fn play(socket: &Path, mut script: &[u8], quiet: Duration) {
    let mut stream = UnixStream::connect(socket).expect("the server listens");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time");
    let memory = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory"));
    memory.set_len(MEMORY).expect("memory");
    let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
    let event: OwnedFd = eventfd(0, flags).expect("a descriptor");
    while let [action, shape, rest @ ..] = script {
        let (bytes, rest) = rest.split_at(usize::from(shape & 63).min(rest.len()));
        script = rest;
        match *action {
            PUT => {
                let mut at = bytes.first().map_or(0, |&byte| value(byte) % MEMORY);
                for &byte in bytes.iter().skip(1) {
                    let _ = memory.write_all_at(&value(byte).to_le_bytes(), at);
                    at += 8;
                }
            }
            KICK => drop(rustix::io::write(&event, &1_u64.to_le_bytes())),
            SHRINK => {
                let len = bytes.first().map_or(0, |&byte| value(byte) % MEMORY);
                let _ = memory.set_len(len);
            }
            HEAR => {
                // A server that has hung up, or has no answer to that, says nothing.
                let _ = stream.set_read_timeout(Some(quiet));
                let _ = stream.read(&mut [0; 512]);
            }
            RAW => drop(stream.write_all(bytes)),
            request => {
                let payload: Vec<u8> =
                    bytes.iter().flat_map(|&byte| value(byte).to_le_bytes()).collect();
                let fd = match request {
                    SET_MEM_TABLE | ADD_MEM_REG => memory.as_fd(),
                    _ => event.as_fd(),
                };
                send(&stream, request, &payload, &vec![fd; usize::from(shape >> 6)]);
            }
        }
    }
}

fn send(stream: &UnixStream, request: u8, payload: &[u8], fds: &[BorrowedFd<'_>]) {
    // Version 1; the answer asked for.
    let head = [u32::from(request), 1 | 8, payload.len() as u32].map(u32::to_le_bytes).concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let slices = [IoSlice::new(&head), IoSlice::new(payload)];
    // The server may have hung up.
    let _ = sendmsg(stream, &slices, &mut ancillary, SendFlags::NOSIGNAL);
}

/// Asks for the features, as the next monitor: the one before has been seen to its end.
///
/// # Panics
/// If there is no answer.
pub(crate) fn assert_serves(socket: &Path) {
    let mut stream = UnixStream::connect(socket).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    send(&stream, 1, &[], &[]);
    stream.read_exact(&mut [0; 20]).expect("the server answers");
}
