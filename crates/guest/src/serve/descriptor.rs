//! The descriptor of a guest, by which messages are read and pages are put in.
//!
//! - D1: the descriptor came from the process whose memory it fills. That process chose the ranges
//!   and answers for their contents; nothing of this process lies there.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use zfold_figures::Histogram;
use zfold_uffd::page::PAGE;
use zfold_uffd::{Event, Partial, Uffd};

use super::journal::Messages;
use crate::core::regions::Region;
use crate::core::space::Space;

/// An address that a process may have.
const ANYWHERE: usize = 1 << 30;

/// A userfaultfd of another process.
#[derive(Debug)]
pub(crate) struct Descriptor {
    uffd: Uffd,
}

/// Why a descriptor cannot be used.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// The regions are not registered with it.
    Unregistered(Errno),
    /// The address space is gone.
    Gone,
}

impl Descriptor {
    /// Takes a descriptor that is a userfaultfd; any other is given back as it was.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, OwnedFd> {
        Ok(Self { uffd: Uffd::from_fd(fd)? })
    }

    /// Returns whether it was set up, and then makes reads not wait. One that was not refuses every
    /// call with the same error, so the end of its address space would stay unnoticed; no thread
    /// waits for it.
    pub(super) fn is_set_up(&self) -> bool {
        // For others this call always works, whether or not a thread is woken.
        let is_set_up = self.uffd.wake(ANYWHERE..ANYWHERE + PAGE).is_ok();
        if is_set_up {
            self.no_waiting();
        }
        is_set_up
    }

    /// Makes reads not wait, so that polls work: they fail on a descriptor whose reads wait. The
    /// other side can undo this at any time, so no read relies on it.
    pub(super) fn no_waiting(&self) {
        if let Ok(flags) = fcntl_getfl(&self.uffd)
            && !flags.contains(OFlags::NONBLOCK)
        {
            // It fails only for invalid flags.
            let _ = fcntl_setfl(&self.uffd, flags | OFlags::NONBLOCK);
        }
    }

    /// Checks that the regions are registered, at least at their ends.
    pub(super) fn check(&self, regions: &[Region]) -> Result<(), Unfit> {
        for region in regions {
            let last = region.at.end - region.unit;
            for at in [region.at.start, last] {
                match self.uffd.probe(&(at..at + region.unit)) {
                    Ok(()) | Err(Errno::AGAIN) => {}
                    Err(Errno::SRCH) => return Err(Unfit::Gone),
                    Err(error) => return Err(Unfit::Unregistered(error)),
                }
            }
        }
        Ok(())
    }

    /// Returns whether the address space is gone.
    pub(crate) fn is_gone(&self) -> bool {
        // Any valid address will do: the kernel looks for the address space first.
        self.uffd.probe(&(ANYWHERE..ANYWHERE + PAGE)) == Err(Errno::SRCH)
    }

    /// Unregisters the regions.
    pub(super) fn let_go(&self, regions: &[Region]) {
        for region in regions {
            // SAFETY: no page of the region is to come from the image (`Guest::is_complete`), so
            // missing pages are zeros, which the kernel maps there.
            let released = unsafe { self.uffd.unregister(region.at.clone()) };
            // It fails for ranges that are no longer mapped.
            drop(released);
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.uffd.as_fd()
    }
}

/// Returns the number of the process that connected, if it has one here; the number may have been
/// reused by now.
pub(crate) fn peer(stream: &UnixStream) -> Option<i32> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&found) as libc::socklen_t;
    // SAFETY: the option is written to a structure of its type and length, which lives across the
    // call. Not by `rustix`: a process of another namespace has the number 0, which rustix's type
    // for processes excludes.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut len,
        )
    };
    (done == 0 && found.pid > 0).then_some(found.pid)
}

/// Returns a pidfd of the process that connected, which never names another one. Linux 6.5.
pub(crate) fn peer_pidfd(stream: &UnixStream) -> Option<OwnedFd> {
    let mut found: libc::c_int = -1;
    let mut len = size_of_val(&found) as libc::socklen_t;
    // SAFETY: same as for `peer`.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut found).cast(),
            &raw mut len,
        )
    };
    // SAFETY: the kernel made it for this call, and nothing else owns it.
    (done == 0 && found >= 0).then(|| unsafe { OwnedFd::from_raw_fd(found) })
}

/// A descriptor at work.
pub(super) struct Memory<'a> {
    pub(super) descriptor: &'a Descriptor,
    pub(super) latencies: &'a Histogram,
    messages: Messages,
    began: Instant,
}

impl<'a> Memory<'a> {
    pub(super) fn new(
        descriptor: &'a Descriptor,
        latencies: &'a Histogram,
        messages: Messages,
    ) -> Self {
        Self { descriptor, latencies, messages, began: Instant::now() }
    }

    /// Returns the time, in nanoseconds from the beginning.
    pub(super) fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Records that the thread has finished its work for now.
    pub(super) fn rest(&self) {
        self.messages.look(false);
    }

    /// Returns the ranges given up by the messages read last, perhaps by another process.
    pub(super) fn given_up(&mut self) -> Vec<Range<usize>> {
        self.messages.given_up()
    }
}

impl Space for Memory<'_> {
    fn read(&mut self, into: &mut Vec<Event>) {
        self.messages.look(true);
        for round in self.messages.rounds() {
            // Messages that cannot be read now are read next time.
            let Ok(got) = self.descriptor.uffd.read_now(round, into) else { break };
            if got < round.len() {
                break;
            }
        }
    }

    fn copy(&mut self, to: usize, pages: &[u8]) -> Result<(), Partial> {
        // SAFETY: the range is in a region that was found registered, otherwise the kernel refuses;
        // its owner expects the image's pages there (D1).
        unsafe { self.descriptor.uffd.copy(to, pages, true) }
    }

    fn zero(&mut self, of: Range<usize>) -> Result<(), Partial> {
        // SAFETY: same as for `copy`; its owner expects zeros where the image has zeros, and where
        // it gave pages up (D1).
        unsafe { self.descriptor.uffd.zero(of, true) }
    }

    fn wake(&mut self, of: Range<usize>) {
        // It fails only for invalid ranges.
        let _ = self.descriptor.uffd.wake(of);
    }

    fn answered(&mut self, since: u64) {
        self.latencies.record(self.now() - since);
    }
}
