//! The channel to a helper, which carries calls and results; and the layout of the helper's memory.
//!
//! One thread at a time uses a channel, exclusively. A call is answered or given up before the next
//! one is sent, and after a failure the helper is given up, so an answer is never taken for that of
//! another call. Memory is written only at the helper's own addresses (helper/H1), directly or, if
//! the program does not permit access to its memory, through the socket.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::link::{BATCH_BYTES, Call, Inside};
use crate::sys::{proc, remote};
use zfold_uffd::page::PAGE_LEN_MAX;

/// Where the helper's page lies in every space: just below the lowest address at which the kernel
/// places a program, with any randomization of addresses or none (two thirds of the address space,
/// 0x5555_5555_4000), and where it places nothing else.
///
/// Sanitizers check the existing mappings and refuse those at addresses that they use. By the
/// layouts that they document, all of them let a program have memory here: ThreadSanitizer from
/// 0x5500_0000_0000 to 0x5680_0000_0000, MemorySanitizer from 0x5100_0000_0000 to 0x6000_0000_0000,
/// and AddressSanitizer wherever it has neither shadows nor its allocator, which begins at
/// 0x6000_0000_0000, or, in some versions, ends at 0x5400_0000_0000.
pub const AT: usize = 0x5510_7a00_0000;
/// Bytes of the mapping with the loop. All places suit each page size that the system may have.
pub(super) const CODE_LEN: usize = PAGE_LEN_MAX;
/// After the loop, placed so that no huge page fits in.
pub(super) const STAGING: usize = AT + CODE_LEN;
/// After what a batch has, and a spare page.
pub(super) const ARGUMENTS: usize = STAGING + BATCH_BYTES + PAGE_LEN_MAX;
pub(super) const CALLS: usize = ARGUMENTS + (16 << 10);
pub(super) const OTHERS: usize = (CALLS + (16 << 10)).next_multiple_of(PAGE_LEN_MAX);
pub(super) const OTHER: usize = BATCH_BYTES;
/// The protections of the stagings there, in order.
pub(super) const PROTECTIONS: [i32; 3] = [
    libc::PROT_WRITE,
    libc::PROT_WRITE | libc::PROT_EXEC,
    libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
];
pub(super) const DATA_END: usize = OTHERS + PROTECTIONS.len() * OTHER;

/// Adds what failed to an error; `ESRCH` stays as it is: the thread has ended.
pub(super) fn because<T>(what: &str, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| {
        if error.raw_os_error() == Some(libc::ESRCH) {
            return error;
        }
        named(what, &error)
    })
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// A result of a system call as an error of this program; never a bare `ESRCH`, since the thread
/// that made the call exists.
pub(super) fn checked(what: &str, result: i64) -> io::Result<i64> {
    if result >= 0 {
        return Ok(result);
    }
    let error = io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO));
    Err(named(what, &error))
}

/// The manager's end of the helper's socket.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) socket: OwnedFd,
    pub(super) pid: i32,
    buffer: Vec<u8>,
    /// Its memory may not be accessed, because its program forbids that: the helper passes it
    /// through the socket.
    by_socket: bool,
}

/// A helper that answers later is given up: a thread that waits for it holds up others. Its calls
/// take milliseconds, and those that make pages the program's own wait for pages to come in.
const LATE: Duration = Duration::from_secs(10);

/// How often it is looked at until then, and the processor time in its own code, in ticks of 10 ms,
/// with which it is given up at once: its loop takes some nanoseconds of it for each call, and a
/// program may have written to the loop.
const LOOK: Duration = Duration::from_millis(50);
const BURNT: u64 = 3;

/// Bytes that go through the socket at once.
const AT_ONCE: usize = 32 << 10;

const CALL_LEN: usize = size_of::<Call>();

fn plain(number: libc::c_long, args: [u64; 6]) -> Call {
    Call { number: number as u64, args }
}

impl Inside for Channel {
    fn call(&mut self, calls: &[Call], results: &mut [i64]) -> io::Result<()> {
        self.send(calls)?;
        self.receive(&mut results[..calls.len()], late(self.pid))
    }

    fn read(&mut self, from: usize, into: &mut [u8]) -> io::Result<()> {
        if !self.by_socket {
            match remote::read(self.pid, from, into) {
                Err(error) if is_refused(&error) => self.by_socket = true,
                // On this architecture, memory that is only writable can be read by its process.
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {}
                result => return result,
            }
        }
        let mut from = from;
        for part in into.chunks_mut(AT_ONCE) {
            self.send(&[plain(libc::SYS_write, [0, from as u64, part.len() as u64, 0, 0, 0])])?;
            self.receive_bytes(part, late(self.pid))?;
            self.receive(&mut [0], late(self.pid))?;
            from += part.len();
        }
        Ok(())
    }

    fn write(&mut self, to: usize, bytes: &[u8]) -> io::Result<()> {
        debug_assert!((STAGING..DATA_END).contains(&to));
        if !self.by_socket {
            // SAFETY: these addresses are the helper's own (helper/H1).
            match unsafe { remote::write(self.pid, to, bytes) } {
                Err(error) if is_refused(&error) => self.by_socket = true,
                result => return result,
            }
        }
        let mut to = to;
        for part in bytes.chunks(AT_ONCE) {
            self.send(&[plain(libc::SYS_read, [0, to as u64, part.len() as u64, 0, 0, 0])])?;
            send(&self.socket, part, SendFlags::NOSIGNAL)?;
            self.receive(&mut [0], late(self.pid))?;
            to += part.len();
        }
        Ok(())
    }
}

/// Returns the processor time that a process has spent in its own code, in ticks.
fn own_ticks(pid: i32) -> u64 {
    const USER_TIME: usize = 11;
    proc::stat(pid, USER_TIME).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

/// Returns what fails when a helper is late.
fn late(pid: i32) -> impl FnMut() -> io::Result<()> {
    let (began, mut before) = (Instant::now(), None);
    move || {
        let burnt = own_ticks(pid);
        let before = *before.get_or_insert(burnt);
        if burnt >= before + BURNT || began.elapsed() >= LATE {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the helper is late"));
        }
        Ok(())
    }
}

fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}

impl Channel {
    /// Returns the channel of a process that reads from the other end of this socket in its loop.
    ///
    /// # Errors
    /// The socket's timeout cannot be set.
    pub(super) fn new(pid: i32, socket: OwnedFd) -> io::Result<Self> {
        set_socket_timeout(&socket, Timeout::Recv, Some(LOOK))?;
        set_socket_timeout(&socket, Timeout::Send, Some(LATE))?;
        Ok(Self { socket, pid, buffer: Vec::new(), by_socket: false })
    }

    pub(super) fn send(&mut self, calls: &[Call]) -> io::Result<()> {
        assert!(calls.len() <= Call::AT_ONCE, "more calls than go at once");
        self.buffer.clear();
        for call in calls {
            self.buffer.extend_from_slice(&call.number.to_ne_bytes());
            for argument in call.args {
                self.buffer.extend_from_slice(&argument.to_ne_bytes());
            }
        }
        debug_assert_eq!(self.buffer.len(), calls.len() * CALL_LEN);
        send(&self.socket, &self.buffer, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives so many results. `idle` is called now and then while there are none.
    pub(super) fn receive(
        &mut self,
        results: &mut [i64],
        idle: impl FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.resize(results.len() * 8, 0);
        let received = self.receive_bytes(&mut bytes, idle);
        for (result, bytes) in results.iter_mut().zip(bytes.chunks_exact(8)) {
            *result = i64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        }
        self.buffer = bytes;
        received
    }

    /// Receives a message of this length.
    fn receive_bytes(
        &self,
        into: &mut [u8],
        mut idle: impl FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        loop {
            match recv(&self.socket, &mut *into, RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => idle()?,
                Err(error) => return Err(error.into()),
                Ok((got, _)) if got == into.len() => return Ok(()),
                Ok(_) => {
                    return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the helper is gone"));
                }
            }
        }
    }
}
