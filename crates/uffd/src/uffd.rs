//! userfaultfd: a descriptor by which the kernel reports missing pages of one address space, and
//! puts pages there.
//!
//! Addresses belong to that address space, which may be another process's: every operation except
//! [`Uffd::take_whole`] works from other processes, too. All ranges are whole pages.
//!
//! - D1: every [`Uffd`] is a userfaultfd: what is read from it are messages of the kernel, each of
//!   which is parsed once. A message that brings a descriptor owns it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use linux_raw_sys::general as raw;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::readlink;

use super::features::{Faults, Features};

/// A message.
#[derive(Debug)]
pub enum Event {
    /// A thread waits for a page.
    Missing {
        /// Address of the byte that it touched, not of the page.
        address: usize,
        /// Its number; 0 without [`Features::THREAD_ID`].
        thread: i32,
        /// It is about to write.
        writes: bool,
    },
    /// A thread waits to write to a page that is protected.
    Protected {
        /// Same as in `Missing`.
        address: usize,
    },
    /// A child of fork was made; its memory is answered through this descriptor.
    Forked(Uffd),
    /// A range has moved.
    Moved {
        /// Where it was.
        from: usize,
        /// Where it is.
        to: usize,
        /// Bytes of it.
        len: usize,
    },
    /// The contents of a range will be discarded.
    Discarded(Range<usize>),
    /// A range is no longer mapped.
    Unmapped(Range<usize>),
    /// A message that was not asked for.
    Other,
}

/// Why an operation did less than all of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// Bytes at the beginning of the range that are done.
    pub done: usize,
    /// What stopped it at the page after them. For copies: `EXIST`, a page is there; `NOENT`,
    /// nothing is registered there; `AGAIN`, the address space is being changed; `SRCH`, it is
    /// gone; `NOSPC`/`NOMEM`. For moves also `BUSY`: the page is shared or pinned; `INVAL`: the
    /// mappings do not match in access.
    pub error: rustix::io::Errno,
}

/// An open descriptor.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
}

/// Number of an ioctl of userfaultfd that takes and returns a `T`. C libraries differ in its type.
pub(crate) const fn code<T>(number: u32) -> libc::Ioctl {
    ((3 << 30) | ((size_of::<T>() as u32) << 16) | (0xAA << 8) | number) as libc::Ioctl
}

/// Number of one that only reads a `T`; the kernel's header says "_IOR" for these two.
const fn code_read<T>(number: u32) -> libc::Ioctl {
    ((2 << 30) | ((size_of::<T>() as u32) << 16) | (0xAA << 8) | number) as libc::Ioctl
}

const NEW: libc::Ioctl = 0xAA << 8;
const API: libc::Ioctl = code::<raw::uffdio_api>(raw::_UFFDIO_API);
const REGISTER: libc::Ioctl = code::<raw::uffdio_register>(raw::_UFFDIO_REGISTER);
const UNREGISTER: libc::Ioctl = code_read::<raw::uffdio_range>(raw::_UFFDIO_UNREGISTER);
const WAKE: libc::Ioctl = code_read::<raw::uffdio_range>(raw::_UFFDIO_WAKE);
const COPY: libc::Ioctl = code::<raw::uffdio_copy>(raw::_UFFDIO_COPY);
const ZEROPAGE: libc::Ioctl = code::<raw::uffdio_zeropage>(raw::_UFFDIO_ZEROPAGE);
const MOVE: libc::Ioctl = code::<raw::uffdio_move>(raw::_UFFDIO_MOVE);

pub(crate) fn range(of: &Range<usize>) -> raw::uffdio_range {
    raw::uffdio_range { start: of.start as u64, len: (of.end - of.start) as u64 }
}

fn last_errno() -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(rustix::io::Errno::IO)
}

/// The result of a call that reports no count.
pub(crate) fn check(result: libc::c_int) -> Result<(), rustix::io::Errno> {
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// The result of an operation that reports how many bytes it did in its own field: negative is an
/// error code, and the call itself says `EAGAIN` when it stopped in the middle.
fn finish(result: libc::c_int, reported: i64, len: usize) -> Result<(), Partial> {
    let done = usize::try_from(reported).unwrap_or(0).min(len);
    check(result).map_err(|error| Partial { done, error })
}

impl Uffd {
    /// Opens a descriptor for the calling process, not blocking and closed by exec. The handshake
    /// must follow.
    ///
    /// # Errors
    /// `EPERM` if [`Faults::All`] is not permitted by the system call; the device may permit it.
    pub fn open(faults: Faults) -> io::Result<Self> {
        let mut flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        if faults == Faults::UserOnly {
            flags |= raw::UFFD_USER_MODE_ONLY as libc::c_int;
        }
        // SAFETY: the call makes a descriptor and touches no memory.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel returned it just now, nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) };
        Ok(Self { fd })
    }

    /// Opens a descriptor for the calling process with all faults through `/dev/userfaultfd`, which
    /// requires only the right to open the device.
    pub fn open_by(device: &File) -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the call makes a descriptor and touches no memory.
        let fd = unsafe { libc::ioctl(device.as_raw_fd(), NEW, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel returned it just now, nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Returns a duplicate of the descriptor.
    ///
    /// # Errors
    /// `EMFILE` if the process has no free descriptor.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Takes a descriptor that another process opened, if it is a userfaultfd; any other is given
    /// back. No call is made on the file: to another one, the number of a call may mean something
    /// else, its owner may never answer, and what is read from it may name descriptors of this
    /// process.
    ///
    /// # Errors
    /// The descriptor: it is something else, or `/proc` does not say what it is.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, OwnedFd> {
        // Of this thread, whose table may be its own. No path begins like this name.
        let link = readlink(format!("/proc/thread-self/fd/{}", fd.as_raw_fd()), Vec::new());
        match link {
            Ok(link) if link.as_bytes() == b"anon_inode:[userfaultfd]" => Ok(Self { fd }),
            _ => Err(fd),
        }
    }

    /// Agrees with the kernel on features; once, before anything else.
    ///
    /// # Errors
    /// `EINVAL` if the kernel lacks one, `EPERM` if one is not permitted.
    pub fn handshake(&self, features: Features) -> io::Result<()> {
        let mut api =
            raw::uffdio_api { api: u64::from(raw::UFFD_API), features: features.0, ioctls: 0 };
        // SAFETY: the structure is the one that this number names and lives across the call.
        Ok(check(unsafe { libc::ioctl(self.fd.as_raw_fd(), API, &raw mut api) })?)
    }

    /// Opens a descriptor by `open`, and agrees on features and on others that the caller can do
    /// without. Returns whether those were agreed on, too. A descriptor whose features the kernel
    /// refused is closed, and another one opened.
    ///
    /// # Errors
    /// Those of `open`, and of [`handshake`](Self::handshake) without the others.
    pub fn open_with(
        open: impl Fn() -> io::Result<Self>,
        features: Features,
        wished: Features,
    ) -> io::Result<(Self, bool)> {
        let uffd = open()?;
        if uffd.handshake(features.with(wished)).is_ok() {
            return Ok((uffd, true));
        }
        drop(uffd);
        let uffd = open()?;
        uffd.handshake(features)?;
        Ok((uffd, false))
    }

    /// Asks for messages about missing pages in a range. Pages that are there stay.
    ///
    /// # Errors
    /// `EINVAL` for memory that is not anonymous, `ENOMEM` if nothing is mapped there, `EBUSY` if
    /// another descriptor has it.
    ///
    /// # Safety
    /// From now on only the owner of this descriptor fills missing pages of the range: the caller
    /// answers all faults there, on behalf of the owner of that memory.
    pub unsafe fn register(&self, of: Range<usize>) -> io::Result<()> {
        // SAFETY: the caller answers for the range.
        unsafe { self.register_by(Self::register_request(&of)) }
    }

    /// Allows pages to be moved to a range without messages about its missing pages, which are
    /// zeros: it asks for messages about writes to protected pages, of which there are none.
    ///
    /// # Errors
    /// Same as [`register`](Self::register); also `EINVAL` if the processor does not support it.
    pub fn register_quietly(&self, of: &Range<usize>) -> io::Result<()> {
        let mode = u64::from(raw::UFFDIO_REGISTER_MODE_WP);
        let request = raw::uffdio_register { mode, ..Self::register_request(of) };
        // SAFETY: no access to the range waits for an answer.
        unsafe { self.register_by(request) }
    }

    /// # Safety
    /// The caller answers the messages that it asks for.
    pub(crate) unsafe fn register_by(&self, mut request: raw::uffdio_register) -> io::Result<()> {
        // SAFETY: the structure is the one that this number names and lives across the call.
        Ok(check(unsafe { libc::ioctl(self.fd.as_raw_fd(), REGISTER, &raw mut request) })?)
    }

    /// Ends the messages about a range, and wakes the threads that wait there. Missing pages are
    /// zeros from now on.
    ///
    /// # Safety
    /// No page of the range is held elsewhere for its owner.
    pub unsafe fn unregister(&self, of: Range<usize>) -> io::Result<()> {
        let mut range = range(&of);
        // SAFETY: as in `register`.
        Ok(check(unsafe { libc::ioctl(self.fd.as_raw_fd(), UNREGISTER, &raw mut range) })?)
    }

    /// Fills missing pages from `to` on with `pages` and, if `wake`, wakes the threads that wait
    /// for them.
    ///
    /// # Safety
    /// The range is registered with this descriptor, and these are the contents that its owner
    /// expects there.
    pub unsafe fn copy(&self, to: usize, pages: &[u8], wake: bool) -> Result<(), Partial> {
        // SAFETY: the caller answers for the range and the contents.
        unsafe { self.copy_as(to, pages, wake, 0) }
    }

    /// # Safety
    /// Same as [`copy`](Self::copy).
    pub(crate) unsafe fn copy_as(
        &self,
        to: usize,
        pages: &[u8],
        wake: bool,
        mode: u64,
    ) -> Result<(), Partial> {
        let quiet = if wake { 0 } else { u64::from(raw::UFFDIO_COPY_MODE_DONTWAKE) };
        let mut copy = raw::uffdio_copy {
            dst: to as u64,
            src: pages.as_ptr() as u64,
            len: pages.len() as u64,
            mode: mode | quiet,
            copy: 0,
        };
        // SAFETY: the structure is the one that this number names, the pages are borrowed across
        // the call; the caller answers for the destination.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), COPY, &raw mut copy) };
        finish(result, copy.copy, pages.len())
    }

    /// Asks whether a range lies in one mapping that is registered with this descriptor and has no
    /// unread change; changes nothing, whatever is there.
    ///
    /// It is a copy whose source cannot be read: the kernel checks the mapping and unread changes
    /// first. `FAULT`: it reached the source, so the answer is yes; `EXIST`: it reached a huge page
    /// that is there.
    ///
    /// # Errors
    /// Same as [`copy`](Self::copy).
    pub fn probe(&self, of: &Range<usize>) -> Result<(), rustix::io::Errno> {
        let Ok(source) = crate::page::unreadable() else { return Err(rustix::io::Errno::NOMEM) };
        let mut copy = raw::uffdio_copy {
            dst: of.start as u64,
            src: source as u64,
            len: (of.end - of.start) as u64,
            mode: u64::from(raw::UFFDIO_COPY_MODE_DONTWAKE),
            copy: 0,
        };
        // SAFETY: the structure is the one that this number names. Nothing is copied: the first
        // page of the source cannot be read.
        match unsafe { libc::ioctl(self.fd.as_raw_fd(), COPY, &raw mut copy) } {
            0 => unreachable!("a page that cannot be read was copied"),
            _ => match last_errno() {
                rustix::io::Errno::FAULT | rustix::io::Errno::EXIST => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Fills missing pages with zeros, which cost no memory until they are written, and, if `wake`,
    /// wakes the threads that wait for them.
    ///
    /// # Safety
    /// The range is registered with this descriptor, and its owner expects zeros there.
    pub unsafe fn zero(&self, of: Range<usize>, wake: bool) -> Result<(), Partial> {
        let len = of.end - of.start;
        let mut zero = raw::uffdio_zeropage {
            range: range(&of),
            mode: if wake { 0 } else { u64::from(raw::UFFDIO_ZEROPAGE_MODE_DONTWAKE) },
            zeropage: 0,
        };
        // SAFETY: the structure is the one that this number names; the caller answers for the
        // range.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), ZEROPAGE, &raw mut zero) };
        finish(result, zero.zeropage, len)
    }

    /// Moves pages from one range to another of the calling process, after which those of `from`
    /// are missing. `to` is registered and empty. Stops at a missing page of `from` with `NOENT`.
    /// Atomic for each page: a store by another thread is in the page or waits for it.
    ///
    /// The kernel may report fewer pages than it moved. Seen on Linux 6.18.44: if the entry of a
    /// page changes at that very moment (zeros are written, an accessed bit is set), the kernel
    /// tries again, moves on, and then retries pages that it has just moved. That ends with
    /// `EXIST`, or with `AGAIN` and fewer pages than were moved.
    ///
    /// # Safety
    /// Both ranges belong to the caller, who answers for the missing pages that are left.
    pub unsafe fn take_whole(&self, to: usize, from: Range<usize>) -> Result<(), Partial> {
        let len = from.end - from.start;
        let mut take = Self::move_request(to, &from);
        // SAFETY: the structure is the one that this number names; the caller answers for both
        // ranges.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), MOVE, &raw mut take) };
        finish(result, take.move_, len)
    }

    /// The argument of the call by which a process moves its pages, for code that makes the call in
    /// another process.
    pub fn move_request(to: usize, from: &Range<usize>) -> raw::uffdio_move {
        raw::uffdio_move {
            dst: to as u64,
            src: from.start as u64,
            len: (from.end - from.start) as u64,
            mode: 0,
            move_: 0,
        }
    }

    /// Number of the ioctl that takes [`Uffd::move_request`].
    pub const MOVE_CODE: libc::c_ulong = MOVE as u32 as libc::c_ulong;

    /// The argument of [`Uffd::register`], for code that makes the call in another process; it
    /// begins with that of [`Uffd::unregister`].
    pub fn register_request(of: &Range<usize>) -> raw::uffdio_register {
        raw::uffdio_register {
            range: range(of),
            mode: u64::from(raw::UFFDIO_REGISTER_MODE_MISSING),
            ioctls: 0,
        }
    }

    /// Number of the ioctl of [`Uffd::register`]; its argument begins with start and length.
    pub const REGISTER_CODE: libc::c_ulong = REGISTER as u32 as libc::c_ulong;

    /// Number of the ioctl of [`Uffd::unregister`].
    pub const UNREGISTER_CODE: libc::c_ulong = UNREGISTER as u32 as libc::c_ulong;

    /// Number of the ioctl of `/dev/userfaultfd` that opens a descriptor for the calling process;
    /// its argument is the flags.
    pub const NEW_CODE: libc::c_ulong = NEW as u32 as libc::c_ulong;

    /// Wakes the threads that wait in a range; they look again.
    pub fn wake(&self, of: Range<usize>) -> io::Result<()> {
        let mut range = range(&of);
        // SAFETY: waking changes no memory; at worst a thread faults once more.
        Ok(check(unsafe { libc::ioctl(self.fd.as_raw_fd(), WAKE, &raw mut range) })?)
    }

    /// Reads up to `max` messages, at most 16, and adds them to `events`; returns how many. Waits
    /// for the first one if the descriptor is blocking.
    ///
    /// # Errors
    /// `EAGAIN` if there is none and the descriptor does not block; `EMFILE` if the process has no
    /// free descriptor for that of a child, whose parent continues to wait.
    pub fn read(&self, events: &mut Vec<Event>, max: usize) -> io::Result<usize> {
        const AT_ONCE: usize = 16;
        let mut bytes = [0_u8; AT_ONCE * MESSAGE];
        let got = rustix::io::read(&self.fd, &mut bytes[..max.min(AT_ONCE) * MESSAGE])?;
        events.extend(messages(&bytes[..got]));
        Ok(got / MESSAGE)
    }

    /// Reads messages into `into`, [`MESSAGE`] bytes each, and adds them to `events`; returns how
    /// many bytes. The kernel writes them before this process can end: messages that were read are
    /// in `into` even if the process is killed at that moment.
    ///
    /// It never waits, even if the descriptor blocks, which another process that holds it can
    /// change at any time. Before Linux 6.10 there is no such read. There it checks for a message
    /// first, and waits if another reader takes that message meanwhile and the descriptor blocks.
    ///
    /// # Errors
    /// `EAGAIN` if there is no message; `EMFILE` same as [`read`](Self::read).
    pub fn read_now(&self, into: &mut [u8], events: &mut Vec<Event>) -> io::Result<usize> {
        use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, preadv2};
        // This number means that it has no position.
        let nowait = ReadWriteFlags::NOWAIT;
        let result = preadv2(&self.fd, &mut [IoSliceMut::new(into)], u64::MAX, nowait);
        let got = match result {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if self.has_messages()? => {
                rustix::io::read(&self.fd, &mut *into)?
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Err(Errno::AGAIN.into()),
            result => result?,
        };
        events.extend(messages(&into[..got]));
        Ok(got)
    }

    /// Returns whether there is something to read; false if the descriptor blocks.
    fn has_messages(&self) -> Result<bool, rustix::io::Errno> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        Ok(fds[0].revents() == PollFlags::IN)
    }
}

/// Bytes of a message.
pub const MESSAGE: usize = size_of::<raw::uffd_msg>();

/// Returns the messages in bytes that were just read from an [`Uffd`], once for each read (D1).
fn messages(bytes: &[u8]) -> impl Iterator<Item = Event> + '_ {
    bytes.chunks_exact(MESSAGE).map(parse)
}

/// Returns the ranges that were discarded or unmapped, from messages that any process read at any
/// time. Zero bytes are not a message.
pub fn given_up(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let is_one = |message: &&[u8]| {
        [raw::UFFD_EVENT_REMOVE, raw::UFFD_EVENT_UNMAP].contains(&u32::from(message[0]))
    };
    bytes.chunks_exact(MESSAGE).filter(is_one).filter_map(|message| match parse(message) {
        Event::Discarded(of) | Event::Unmapped(of) => Some(of),
        _ => None,
    })
}

/// A message as bytes: u8 event, 7 unused bytes, then the fields of the event.
fn parse(message: &[u8]) -> Event {
    let word = |at: usize| u64::from_ne_bytes(message[at..at + 8].try_into().expect("8 bytes"));
    match u32::from(message[0]) {
        // u64 flags, u64 address, u32 thread
        raw::UFFD_EVENT_PAGEFAULT => {
            let (flags, address) = (word(8), word(16) as usize);
            let is = |flag: u32| flags & u64::from(flag) != 0;
            // A write to a protected page counts as that, whatever the other flags are.
            if is(raw::UFFD_PAGEFAULT_FLAG_WP) {
                Event::Protected { address }
            } else {
                let writes = is(raw::UFFD_PAGEFAULT_FLAG_WRITE);
                Event::Missing { address, thread: word(24) as u32 as i32, writes }
            }
        }
        // u32 descriptor
        raw::UFFD_EVENT_FORK => {
            // SAFETY: D1. The kernel made it for the reader of this message, and nothing else owns
            // it.
            Event::Forked(Uffd { fd: unsafe { OwnedFd::from_raw_fd(word(8) as u32 as i32) } })
        }
        // u64 from, u64 to, u64 length
        raw::UFFD_EVENT_REMAP => {
            Event::Moved { from: word(8) as usize, to: word(16) as usize, len: word(24) as usize }
        }
        // u64 start, u64 end
        raw::UFFD_EVENT_REMOVE => Event::Discarded(word(8) as usize..word(16) as usize),
        raw::UFFD_EVENT_UNMAP => Event::Unmapped(word(8) as usize..word(16) as usize),
        _ => Event::Other,
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
