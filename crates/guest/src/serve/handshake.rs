//! The first message of a VMM: its regions, and a userfaultfd.
//!
//! - Q1: before a peer is checked, it can send one message of bounded length, and a descriptor.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::apart::Visitor;
use super::descriptor::{Descriptor, peer};
use crate::core::message::Message;

/// Bytes that are read at once.
const PIECE: usize = 16 << 10;

/// Why handshakes fail.
pub(crate) const LEFT: &str = "it disconnected before it said where its memory is";
pub(crate) const NO_UFFD: &str = "it sent no userfaultfd";

/// What a peer has sent.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Nothing is unread in it, and nothing comes by it.
    pub(crate) stream: UnixStream,
    pub(crate) text: Vec<u8>,
    /// A userfaultfd that was set up.
    pub(crate) descriptor: Descriptor,
    /// The process that connected, for messages only: the number may have been reused by now.
    pub(crate) pid: Option<i32>,
}

impl Offer {
    /// Returns the offer of a text and what came beside it: the userfaultfd, and the connection.
    pub(crate) fn new(text: Vec<u8>, fds: Vec<OwnedFd>) -> Option<Self> {
        let [fd, stream] = <[OwnedFd; 2]>::try_from(fds).ok()?;
        let stream = UnixStream::from(stream);
        let pid = peer(&stream);
        Some(Self { stream, text, descriptor: Descriptor::new(fd).ok()?, pid })
    }
}

/// Reads the message of a peer within `limit`; passes its userfaultfd on and returns the text, or
/// why there is none, in a line.
pub(crate) fn shake(visitor: &Visitor, limit: Duration) -> Result<Vec<u8>, String> {
    let until = Instant::now() + limit;
    let mut bytes = [0; PIECE];
    let (mut message, mut descriptor) = (Message::default(), None);
    loop {
        if message.is_whole()
            && let Some(descriptor) = &descriptor
        {
            let descriptor: &ManuallyDrop<Descriptor> = descriptor;
            visitor.pass(&[descriptor.as_fd()]);
            return Ok(message.into_bytes());
        }
        let received = visitor.receive(&mut bytes, until).map_err(|error| error.to_string())?;
        let Some((len, fds)) = received else {
            let late = "it did not say in time where its memory is";
            return Err(if message.is_whole() { NO_UFFD } else { late }.to_owned());
        };
        if fds.len() + usize::from(descriptor.is_some()) > 1 {
            return Err("it sent more descriptors than belong to its message".to_owned());
        }
        for fd in fds {
            // What is not one is closed by the end of this thread (apart/T1), like what is.
            let found = Descriptor::new(ManuallyDrop::into_inner(fd)).map(ManuallyDrop::new);
            match found.map_err(ManuallyDrop::new) {
                Ok(found) if found.is_set_up() => descriptor = Some(found),
                _ => return Err("what it sent is not a userfaultfd".to_owned()),
            }
        }
        if len == 0 {
            return Err(LEFT.to_owned());
        }
        message.add(&bytes[..len])?;
    }
}
