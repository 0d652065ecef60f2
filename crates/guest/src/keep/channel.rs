//! Messages between front, server and stock: one JSON document a packet, with descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::sys::{receive, send};

/// Longest message in bytes.
const LEN_MAX: usize = 16 << 10;

/// A message to a server.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToServer {
    /// The first message: the front, the servers lost before, and the sockets to answer.
    Begin {
        /// The front's process.
        front: u32,
        /// Servers that were lost.
        takeovers: u64,
    },
    /// Serve this guest: its descriptor, its journal, its connection.
    Guest(u64),
    /// Put pages into this machine, whose image has that name.
    Machine(u64, String),
    /// The answer to the last request: where guests connect, or why they cannot.
    Answer(Result<String, String>),
    /// The number of handshakes that have failed so far.
    Failed(u64),
    /// Make a new stock.
    Renew,
    /// Give each guest all its pages, and end.
    Release,
}

/// A message to the front from a server.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToFront {
    /// Accept guests of an image.
    Listen(String),
    /// Accept none from now on.
    Close(String),
    /// Keep a machine that gets pages of this image on demand.
    Machine(String),
    /// All images are there.
    Ready,
    /// A guest cannot be served, and waits.
    Held(u64),
    /// A guest needs no server.
    Ended(u64),
    /// Here is the other end of the stock's channel.
    Stock,
    /// A user asks for the end.
    Stop,
    /// All is done; ends with this status.
    Done(u8),
}

/// An end of a channel.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl Channel {
    /// Returns both ends of a new channel.
    ///
    /// # Errors
    /// There is no number for a descriptor.
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (one, other) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Self(one), Self(other)))
    }

    pub(super) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    pub(super) fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Sends a server its first message, without waiting for room.
    pub(super) fn begin(&self, takeovers: u64, sockets: &[OwnedFd]) -> io::Result<()> {
        let begin = ToServer::Begin { front: std::process::id(), takeovers };
        let sockets: Vec<_> = sockets.iter().map(OwnedFd::as_fd).collect();
        Ok(self.try_send(&begin, &sockets)?)
    }

    /// Sends a message without waiting for room.
    ///
    /// # Errors
    /// `AGAIN`: there is no room now; otherwise nobody listens.
    pub(super) fn try_send(
        &self,
        message: &impl Serialize,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), Errno> {
        self.send_with(message, fds, SendFlags::DONTWAIT)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Nobody listens.
    pub(super) fn send(
        &self,
        message: &impl Serialize,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), Errno> {
        self.send_with(message, fds, SendFlags::empty())
    }

    fn send_with(
        &self,
        message: &impl Serialize,
        fds: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> Result<(), Errno> {
        let text = serde_json::to_vec(message).expect("names and numbers are JSON");
        send(&self.0, &text, fds, flags).map(drop)
    }

    /// Waits for a message; returns none if the other process has ended.
    pub(super) fn receive<T: DeserializeOwned>(&self) -> Option<(T, Vec<OwnedFd>)> {
        let mut bytes = vec![0; LEN_MAX];
        loop {
            return match receive(&self.0, &mut bytes, RecvFlags::empty()) {
                // If a process ends with unread messages, Linux reports that once, before the
                // messages that it sent.
                Err(Errno::CONNRESET) => continue,
                // Both ends belong to the same program.
                Ok((len @ 1.., fds)) => Some((serde_json::from_slice(&bytes[..len]).ok()?, fds)),
                _ => None,
            };
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_with_their_descriptors_and_then_the_end() {
        let (front, server) = Channel::pair().expect("a pair");
        let file = tempfile::tempfile().expect("a file");
        front.send(&ToServer::Guest(7), &[file.as_fd(), file.as_fd()]).expect("sent");
        front.try_send(&ToServer::Answer(Err("no".to_owned())), &[]).expect("sent");
        server.send(&ToFront::Ready, &[]).expect("sent");
        drop(front);
        let (message, fds) = server.receive::<ToServer>().expect("a message");
        assert_eq!((message, fds.len()), (ToServer::Guest(7), 2));
        let (message, fds) = server.receive::<ToServer>().expect("a message");
        assert_eq!((message, fds.len()), (ToServer::Answer(Err("no".to_owned())), 0));
        assert!(server.receive::<ToServer>().is_none());
        assert!(server.send(&ToFront::Ready, &[]).is_err(), "nobody listens");
    }

    #[test]
    fn what_a_process_said_last_is_heard() {
        let (front, server) = Channel::pair().expect("a pair");
        server.send(&ToFront::Ended(3), &[]).expect("sent");
        front.send(&ToServer::Renew, &[]).expect("sent");
        // It ends with a message unread.
        drop(server);
        let (message, _) = front.receive::<ToFront>().expect("a message");
        assert_eq!(message, ToFront::Ended(3));
        assert!(front.receive::<ToFront>().is_none());
    }

    #[test]
    fn a_full_channel_is_not_waited_for() {
        let (front, _server) = Channel::pair().expect("a pair");
        let refused = (0..1_000_000).find_map(|n| front.try_send(&ToServer::Guest(n), &[]).err());
        assert_eq!(refused, Some(Errno::AGAIN));
    }
}
