//! A connected stream socket, shared by the threads that read and write it.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};

/// Slices that one system call takes at most.
const SLICES_PER_CALL: usize = 512;

/// A connected stream socket. Sending to one whose peer has left is an error, never a signal.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self(stream.into())
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        // Replies are small and never wait for another one; a peer that vanished is noticed.
        // Both are conveniences: the connection works without them.
        let _ = stream.set_nodelay(true);
        let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        Self(stream.into())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Socket {
    /// Receives what there is, at least one byte; 0 means that the peer sends no more.
    pub(super) fn receive(&self, out: &mut [u8]) -> io::Result<usize> {
        let (received, _) = retry_on_intr(|| recv(&self.0, &mut *out, RecvFlags::empty()))?;
        Ok(received)
    }

    /// Sends all of `slices`, in as few system calls as possible.
    pub(super) fn send_all(&self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let some = &slices[..slices.len().min(SLICES_PER_CALL)];
            let send = || {
                let mut nothing = SendAncillaryBuffer::default();
                sendmsg(&self.0, some, &mut nothing, SendFlags::NOSIGNAL)
            };
            let sent = retry_on_intr(send)?;
            IoSlice::advance_slices(&mut slices, sent);
        }
        Ok(())
    }

    /// Limits how long a call waits for the peer; `None` is for ever.
    pub(super) fn limit_waits(&self, limit: Option<Duration>) -> io::Result<()> {
        set_socket_timeout(&self.0, Timeout::Recv, limit)?;
        Ok(set_socket_timeout(&self.0, Timeout::Send, limit)?)
    }

    /// Ends receiving: a thread that waits for bytes gets none.
    pub(super) fn close_reading(&self) {
        // A peer that has left already makes this fail, which is as good.
        let _ = shutdown(&self.0, Shutdown::Read);
    }

    /// Ends both directions at once.
    pub(super) fn close(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}
