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
use rustix::process::{Signal, pidfd_send_signal};
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

    /// Checks that the regions are registered, at least at their ends; says why they are not.
    pub(super) fn check(&self, regions: &[Region]) -> Result<(), String> {
        for region in regions {
            let last = region.at.end - region.unit;
            for at in [region.at.start, last] {
                match self.uffd.probe(&(at..at + region.unit)) {
                    Ok(()) | Err(Errno::AGAIN) => {}
                    Err(Errno::SRCH) => return Err("it is gone".to_owned()),
                    Err(error) => {
                        return Err(format!(
                            "its regions are not registered with its userfaultfd ({error})"
                        ));
                    }
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
    // SAFETY: the option writes such a structure. Not by `rustix`: a process of another namespace
    // has the number 0, which rustix's type for processes excludes.
    let is_done = unsafe { option(stream, libc::SO_PEERCRED, &mut found) };
    (is_done && found.pid > 0).then_some(found.pid)
}

/// Kills a process; false if this user may not, or there is no descriptor of it.
pub(crate) fn kill(pidfd: Option<&OwnedFd>) -> bool {
    pidfd.is_some_and(|pidfd| pidfd_send_signal(pidfd, Signal::KILL).is_ok())
}

/// Returns a pidfd of the process that connected, which never names another one. Linux 6.5.
pub(crate) fn peer_pidfd(stream: &UnixStream) -> Option<OwnedFd> {
    let mut found: libc::c_int = -1;
    // SAFETY: the option writes such a number.
    let is_done = unsafe { option(stream, libc::SO_PEERPIDFD, &mut found) };
    // SAFETY: the kernel made it for this call, and nothing else owns it.
    (is_done && found >= 0).then(|| unsafe { OwnedFd::from_raw_fd(found) })
}

/// Reads an option of a socket; returns whether there is one.
///
/// # Safety
/// The option is a `T`.
unsafe fn option<T>(stream: &UnixStream, name: libc::c_int, into: &mut T) -> bool {
    let (fd, mut len) = (stream.as_raw_fd(), size_of::<T>() as libc::socklen_t);
    let into = std::ptr::from_mut(into).cast();
    // SAFETY: at most as many bytes as a `T` has are written, which are one (caller).
    unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, into, &raw mut len) == 0 }
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
