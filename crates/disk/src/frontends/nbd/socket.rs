//! A connected stream socket, shared by the threads that read and write it.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};

use super::lock::lock;

/// Slices that one system call takes at most.
const SLICES_PER_CALL: usize = 512;

/// A connected stream socket. Sending to one whose peer has left is an error, never a signal.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    /// When calls give up waiting for the peer.
    deadline: Mutex<Option<Instant>>,
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self { fd: stream.into(), deadline: Mutex::default() }
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        // Replies are small and never wait for another one; a peer that vanished is noticed.
        // Both are conveniences: the connection works without them.
        let _ = stream.set_nodelay(true);
        let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        Self { fd: stream.into(), deadline: Mutex::default() }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket {
    /// Receives what there is, at least one byte; 0 means that the peer sends no more.
    pub(super) fn receive(&self, out: &mut [u8]) -> io::Result<usize> {
        self.check_deadline()?;
        let (received, _) = retry_on_intr(|| recv(&self.fd, &mut *out, RecvFlags::empty()))?;
        Ok(received)
    }

    /// Sends all of `slices`, in as few system calls as possible.
    pub(super) fn send_all(&self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            self.check_deadline()?;
            let some = &slices[..slices.len().min(SLICES_PER_CALL)];
            let send = || {
                let mut nothing = SendAncillaryBuffer::default();
                sendmsg(&self.fd, some, &mut nothing, SendFlags::NOSIGNAL)
            };
            let sent = retry_on_intr(send)?;
            IoSlice::advance_slices(&mut slices, sent);
        }
        Ok(())
    }

    /// Sets when calls give up waiting for the peer, however slowly it goes on; `None` is never.
    pub(super) fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
        *lock(&self.deadline) = deadline;
        if deadline.is_none() { self.limit_wait(None) } else { Ok(()) }
    }

    /// Limits the next call to what is left until the deadline.
    fn check_deadline(&self) -> io::Result<()> {
        let deadline = *lock(&self.deadline);
        let Some(deadline) = deadline else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.limit_wait(Some(left))
    }

    fn limit_wait(&self, limit: Option<Duration>) -> io::Result<()> {
        set_socket_timeout(&self.fd, Timeout::Recv, limit)?;
        Ok(set_socket_timeout(&self.fd, Timeout::Send, limit)?)
    }

    /// Ends receiving: a thread that waits for bytes gets none.
    pub(super) fn close_reading(&self) {
        // A peer that has left already makes this fail, which is as good.
        let _ = shutdown(&self.fd, Shutdown::Read);
    }

    /// Ends both directions at once.
    pub(super) fn close(&self) {
        let _ = shutdown(&self.fd, Shutdown::Both);
    }
}
