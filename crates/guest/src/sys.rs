//! Calls of the system that several modules make.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Most descriptors of a message: Linux's `SCM_MAX_FD`.
const FDS: usize = 253;

/// Waits until one of these is ready, at most for so long; returns how many are.
pub(crate) fn poll(fds: &mut [PollFd<'_>], wait: Option<Duration>) -> Result<usize, Errno> {
    let wait = wait.map(|wait| Timespec::try_from(wait).expect("the waits here are short"));
    rustix::event::poll(fds, wait.as_ref())
}

/// Returns what a poll says at once; one of a userfaultfd or a socket waits for nothing (apart/T2).
pub(crate) fn ready(fd: &impl AsFd) -> PollFlags {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut fds, Some(Duration::ZERO)).map_or(PollFlags::empty(), |_| fds[0].revents())
}

/// Sends bytes, and descriptors beside the first of them; returns how many bytes were sent.
///
/// # Panics
/// There are more descriptors than Linux takes.
pub(crate) fn send(
    to: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<usize, Errno> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(beside.push(SendAncillaryMessage::ScmRights(fds)), "more than {FDS}");
    }
    let flags = flags | SendFlags::NOSIGNAL;
    retry_on_intr(|| sendmsg(&to, &[IoSlice::new(bytes)], &mut beside, flags))
}

/// Receives bytes, with all descriptors beside them.
pub(crate) fn receive(
    from: impl AsFd,
    into: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let mut into = [IoSliceMut::new(into)];
    let len = retry_on_intr(|| recvmsg(&from, &mut into, &mut beside, flags))?.bytes;
    let fds = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((len, fds.flatten().collect()))
}

/// Wakes threads that wait for its descriptor, however late they begin to wait.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn ring(&self) {
        // It fails only if the counter would exceed 64 bits.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Has those that wait from now on wait for the next ring.
    pub(crate) fn hush(&self) {
        // It may not have rung.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
