//! Connections of strangers: each is read by a thread with a table of descriptors of its own.
//!
//! A descriptor that a peer sends can be any file: a socket that lingers when it is closed, or a
//! file of FUSE whose owner never answers a close, a poll or an `fstat`. A thread that makes such a
//! call waits for as long as the peer likes, and even a descriptor that nobody asked for is closed
//! by the thread that received the message, or that closes the connection with the message unread.
//!
//! - T1: what a peer sends is received by such a thread alone. What it received, what the kernel
//!   dropped for lack of room, and what is unread is closed by its end: a task that ends does not
//!   linger, and where it waits for a file's owner, it waits alone.
//! - T2: it passes on only what it has recognised by calls that run no code of the file's owner:
//!   the name of a userfaultfd in `/proc` ([`Uffd::from_fd`](zfold_uffd::Uffd::from_fd)), and
//!   `F_GET_SEALS`, which only files in memory have.
//! - T3: a connection is passed on when nothing can come by it any more, and nothing is unread.
//! - T4: the end of its channel comes when all that the thread had is closed. Until then it has its
//!   place, so a peer has no more threads than places.

use std::io;
use std::mem::ManuallyDrop;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::fcntl_get_seals;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};

use crate::sys::{poll, receive, send};

/// Bytes of such a thread's stack.
const STACK: usize = 128 << 10;

/// Said by the thread: it has a table of its own; or it has none. The first is said to it, too,
/// once it has the last copy of the connection. Descriptors come with the third.
const ALONE: u8 = 0;
const SHARED: u8 = 1;
const PASSED: u8 = 2;

/// A thread that reads what a peer sends; its work returns a `T`.
#[derive(Debug)]
pub(crate) struct Apart<T> {
    door: OwnedFd,
    thread: JoinHandle<Option<T>>,
    passed: Vec<OwnedFd>,
}

/// A connection, seen from its thread. Nothing of it is closed before the thread ends (T1).
#[derive(Debug)]
pub(crate) struct Visitor {
    stream: ManuallyDrop<UnixStream>,
    door: ManuallyDrop<OwnedFd>,
}

/// A descriptor that a peer has sent.
pub(crate) type Foreign = ManuallyDrop<OwnedFd>;

impl<T: Send + 'static> Apart<T> {
    /// Has a connection read by `work`, in a thread of its own; its descriptor here is closed.
    ///
    /// # Errors
    /// There is no thread, descriptor or table for it; the connection is closed here then.
    pub(crate) fn start(
        stream: impl Into<OwnedFd>,
        work: impl FnOnce(&Visitor) -> T + Send + 'static,
    ) -> io::Result<Self> {
        let stream = stream.into();
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (door, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        let numbers = (stream.as_raw_fd(), theirs.as_raw_fd());
        let run = move || {
            // SAFETY: open until this thread has said whether it has a table of its own.
            let theirs = unsafe { BorrowedFd::borrow_raw(numbers.1) };
            let is_alone = unshare(numbers);
            say(theirs, if is_alone { ALONE } else { SHARED }, &[]);
            if !is_alone {
                return None;
            }
            close_others(numbers);
            // SAFETY: in this thread's table the number is this thread's alone, and it is not
            // closed before the table is.
            let stream = unsafe { UnixStream::from_raw_fd(numbers.0) };
            // SAFETY: same as above.
            let door = unsafe { OwnedFd::from_raw_fd(numbers.1) };
            let (stream, door) = (ManuallyDrop::new(stream), ManuallyDrop::new(door));
            // So this is the last copy, and the other thread does not close what comes by it.
            hear(door.as_fd());
            Some(work(&Visitor { stream, door }))
        };
        let thread = Builder::new().name("zfold-visitor".to_owned()).stack_size(STACK);
        let thread = thread.spawn(run)?;
        // It waits for nothing but that thread's table.
        if hear(door.as_fd()) != Some(ALONE) {
            return Err(io::Error::other("close_range is refused, which needs Linux 5.9"));
        }
        drop((stream, theirs));
        say(door.as_fd(), ALONE, &[]);
        Ok(Self { door, thread, passed: Vec::new() })
    }

    /// Has the thread end soon, with what has come until now.
    pub(crate) fn dismiss(&self) {
        // It has ended already, or hears of this.
        let _ = rustix::net::shutdown(&self.door, rustix::net::Shutdown::Write);
    }

    /// Takes what the thread passed on; returns whether it has ended and closed all else (T4). It
    /// may wait if the descriptor of this is not readable.
    pub(crate) fn hear(&mut self) -> bool {
        match receive(&self.door, &mut [0], RecvFlags::empty()) {
            Ok((1.., fds)) => {
                self.passed.extend(fds);
                false
            }
            _ => true,
        }
    }

    /// Waits until the work is done; returns its result and what it passed on, the connection last;
    /// nothing if it panicked. It does not wait until all that the thread had is closed.
    pub(crate) fn wait(mut self) -> Option<(T, Vec<OwnedFd>)> {
        let found = self.thread.join().ok().flatten()?;
        if let Ok((_, fds)) = receive(&self.door, &mut [0], RecvFlags::DONTWAIT) {
            self.passed.extend(fds);
        }
        Some((found, self.passed))
    }
}

impl<T> AsFd for Apart<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.door.as_fd()
    }
}

/// Closes a socket at which strangers connect, together with what they sent and nobody accepted.
pub(crate) fn close(listener: UnixListener) {
    let wait = |visitor: &Visitor| {
        let mut fds = [PollFd::from_borrowed_fd(visitor.door.as_fd(), PollFlags::RDHUP)];
        while let Err(Errno::INTR) = poll(&mut fds, None) {}
    };
    // The thread has the last copy, and ends when the other end of its channel is closed. If there
    // is no thread, the socket was closed here.
    drop(Apart::start(listener, wait));
}

impl Visitor {
    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Receives bytes, and descriptors beside them; 0 bytes if the peer has left. Nothing if it is
    /// too late, or if the thread is to end.
    pub(crate) fn receive(
        &self,
        into: &mut [u8],
        until: Instant,
    ) -> Result<Option<(usize, Vec<Foreign>)>, Errno> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let mut fds = [
                PollFd::from_borrowed_fd(self.door.as_fd(), PollFlags::IN | PollFlags::RDHUP),
                PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, Some(left)) {
                Ok(0) => return Ok(None),
                Ok(_) if fds[1].revents().is_empty() => return Ok(None),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            }
            match receive(self.stream(), into, RecvFlags::DONTWAIT) {
                Ok((len, fds)) => {
                    return Ok(Some((len, fds.into_iter().map(ManuallyDrop::new).collect())));
                }
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Passes on what was recognised (T2), and then the connection, by which the peer can send
    /// nothing any more (T3).
    pub(crate) fn pass(&self, fds: &[BorrowedFd<'_>]) {
        // The connection is open; what comes from here on fails where it is sent.
        let _ = self.stream.shutdown(Shutdown::Read);
        let mut rest = [0; 4096];
        while let Ok((1.., fds)) = receive(self.stream(), &mut rest, RecvFlags::DONTWAIT) {
            fds.into_iter().for_each(std::mem::forget);
        }
        let all: Vec<_> = fds.iter().copied().chain([self.stream.as_fd()]).collect();
        say(self.door.as_fd(), PASSED, &all);
    }
}

/// Returns whether a descriptor is a file in memory, of ordinary or of huge pages: only these have
/// seals, and the kernel answers that without the file system. A name would prove nothing.
pub(crate) fn is_in_memory(fd: BorrowedFd<'_>) -> bool {
    fcntl_get_seals(fd).is_ok()
}

/// Gives this thread a table of its own, with the descriptors up to the higher of these two;
/// returns whether it has one.
fn unshare((one, other): (RawFd, RawFd)) -> bool {
    let first = one.max(other) as libc::c_uint + 1;
    let flags = libc::CLOSE_RANGE_UNSHARE;
    // SAFETY: the table that is closed in part is a copy, which only this thread has.
    (unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, flags) }) == 0
}

/// Closes all other descriptors of this thread's own table but the standard ones.
fn close_others((one, other): (RawFd, RawFd)) {
    let (low, high) = (one.min(other) as libc::c_uint, one.max(other) as libc::c_uint);
    for (first, end) in [(3, low), (low + 1, high)] {
        if first < end {
            // SAFETY: the table is this thread's own, which uses only the two and the standard
            // ones.
            unsafe { libc::syscall(libc::SYS_close_range, first, end - 1, 0) };
        }
    }
}

/// Waits for a byte; there is none if the other end is closed.
fn hear(door: BorrowedFd<'_>) -> Option<u8> {
    let mut said = [0];
    let read = retry_on_intr(|| rustix::io::read(door, &mut said));
    read.is_ok_and(|len| len > 0).then_some(said[0])
}

/// Sends a byte with descriptors.
fn say(door: BorrowedFd<'_>, what: u8, fds: &[BorrowedFd<'_>]) {
    // If nobody listens, what was not passed on ends with this thread.
    let _ = send(door, &[what], fds, SendFlags::empty());
}
