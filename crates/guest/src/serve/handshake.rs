//! The first message of a VMM: its regions, and a userfaultfd.
//!
//! - Q1: before a peer is checked, it can send one message of bounded length, and a descriptor.

use std::io::{self, Read};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::Deserialize as _;
use serde::de::IgnoredAny;
use serde_json::Deserializer;

use super::apart::Visitor;
use super::descriptor::{Descriptor, peer};

/// Bytes that are read at once, and the longest message: some thousand regions.
const PIECE: usize = 16 << 10;
const LEN_MAX: usize = 256 << 10;

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

/// What comes from a peer, as JSON is read from it: its length is not sent, so it ends with its
/// list.
struct Message<'a> {
    visitor: &'a Visitor,
    until: Instant,
    text: Vec<u8>,
    /// How much of the text was looked at.
    seen: usize,
    descriptor: Option<ManuallyDrop<Descriptor>>,
    /// Why nothing more is read.
    failed: Option<String>,
}

impl Message<'_> {
    /// Receives a piece, and perhaps the descriptor; says why there is none.
    fn receive(&mut self, late: &str) -> Result<(), String> {
        let mut piece = [0; PIECE];
        let received = self.visitor.receive(&mut piece, self.until);
        let (len, fds) = received.map_err(|error| error.to_string())?.ok_or(late)?;
        if fds.len() + usize::from(self.descriptor.is_some()) > 1 {
            return Err("it sent more descriptors than belong to its message".to_owned());
        }
        for fd in fds {
            // What is not one is closed by the end of this thread (apart/T1), like what is.
            let found = Descriptor::new(ManuallyDrop::into_inner(fd)).map(ManuallyDrop::new);
            match found.map_err(ManuallyDrop::new) {
                Ok(found) if found.is_set_up() => self.descriptor = Some(found),
                _ => return Err("what it sent is not a userfaultfd".to_owned()),
            }
        }
        self.text.extend_from_slice(&piece[..len]);
        match (len, self.text.len()) {
            (0, _) => Err(LEFT.to_owned()),
            (_, ..=LEN_MAX) => Ok(()),
            _ => Err("its message does not end".to_owned()),
        }
    }
}

impl Read for Message<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.seen == self.text.len() {
            let received = self.receive("it did not say in time where its memory is");
            self.failed = received.err();
            if self.failed.is_some() {
                return Err(io::ErrorKind::Other.into());
            }
        }
        let len = into.len().min(self.text.len() - self.seen);
        into[..len].copy_from_slice(&self.text[self.seen..][..len]);
        self.seen += len;
        Ok(len)
    }
}

/// Reads the message of a peer within `limit`; passes its userfaultfd on and returns the text, or
/// why there is none, in a line.
pub(crate) fn shake(visitor: &Visitor, limit: Duration) -> Result<Vec<u8>, String> {
    let until = Instant::now() + limit;
    let (text, seen, descriptor, failed) = (Vec::new(), 0, None, None);
    let mut message = Message { visitor, until, text, seen, descriptor, failed };
    let list = Vec::<IgnoredAny>::deserialize(&mut Deserializer::from_reader(&mut message));
    if list.is_err()
        && let Some(failed) = message.failed
    {
        return Err(failed);
    }
    if !message.text.trim_ascii_start().starts_with(b"[") {
        return Err("its message is not a list of regions".to_owned());
    }
    // A list that cannot be read is passed on, too, so that its guest is held: without its
    // descriptor, which would be closed, the guest would read zeros.
    while message.descriptor.is_none() {
        message.receive(NO_UFFD)?;
    }
    visitor.pass(&[message.descriptor.as_ref().expect("it was awaited").as_fd()]);
    Ok(message.text)
}
