//! The first message of a VMM: its regions, and a userfaultfd.
//!
//! - Q1: before a peer is checked, it can send one message of bounded length, and a descriptor.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use thiserror::Error;

use super::descriptor::peer;
use crate::core::message::{Message, Wrong};

/// Descriptors that are received at once; the kernel drops more than these.
const FDS: usize = 2;

/// Bytes that are read at once.
const PIECE: usize = 16 << 10;

/// A connection whose message is not complete.
#[derive(Debug)]
pub(super) struct Handshake {
    stream: UnixStream,
    message: Message,
    fd: Option<OwnedFd>,
    pub(super) since: Instant,
}

/// What a peer has sent.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) stream: UnixStream,
    pub(crate) text: Vec<u8>,
    pub(crate) fd: OwnedFd,
    /// The process that connected, for messages only: the number may have been reused by now.
    pub(crate) pid: Option<i32>,
}

/// Why a handshake failed.
#[derive(Debug, Error)]
pub(super) enum Failed {
    #[error("it disconnected before it said where its memory is")]
    Left,
    #[error("it sent no userfaultfd")]
    NoUffd,
    #[error("it did not say in time where its memory is")]
    Late,
    #[error("{}", message(.0))]
    Message(Wrong),
    #[error("it sent more descriptors than belong to its message")]
    Descriptors,
    #[error("{0}")]
    System(#[from] Errno),
}

fn message(wrong: &Wrong) -> &'static str {
    match wrong {
        Wrong::TooLong => "its message does not end",
        _ => "its message is not a list of regions",
    }
}

impl Handshake {
    pub(super) fn new(stream: UnixStream) -> Self {
        let (message, since) = (Message::default(), Instant::now());
        Self { stream, message, fd: None, since }
    }

    /// Receives what was sent.
    pub(super) fn receive(&mut self) -> Result<(), Failed> {
        let mut bytes = [0; PIECE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received =
            recvmsg(&self.stream, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags);
        let len = match received {
            Ok(received) => received.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let messages = beside.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        for fd in messages.flatten() {
            if self.fd.replace(fd).is_some() {
                return Err(Failed::Descriptors);
            }
        }
        if len == 0 {
            return Err(Failed::Left);
        }
        self.message.add(&bytes[..len]).map_err(Failed::Message)
    }

    /// Returns whether the message and its descriptors are complete.
    pub(super) fn is_done(&self) -> bool {
        self.message.is_whole() && self.fd.is_some()
    }

    /// Returns the offer, if it is complete.
    pub(super) fn finish(self) -> Result<Offer, Failed> {
        match (self.message.is_whole(), self.fd) {
            (true, Some(fd)) => {
                let (pid, text) = (peer(&self.stream), self.message.into_bytes());
                Ok(Offer { stream: self.stream, text, fd, pid })
            }
            (true, None) => Err(Failed::NoUffd),
            (false, _) => Err(Failed::Late),
        }
    }
}

impl AsFd for Handshake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
