//! Operations of the memory side on another address space. Only this file calls the unsafe
//! operations of userfaultfd for other address spaces.
//!
//! They are sound because all of them happen under the lock of the space, for ranges that are
//! registered, and fill in the pages that left there (space/S1 and S3). The memory is not this
//! process's own, except in tests, which treat it as another's.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::io::Errno;

use crate::core::ranges::{PageNo, Pages, bytes_of, pages_of};
use crate::permission::sees_accesses;
use crate::sys::procmap;
use zfold_uffd::page::page_len;
use zfold_uffd::{Event, Pagemap, Partial, Uffd};

/// Messages that are read at once.
const AT_ONCE: usize = 16;

/// Why pages were not filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A change is unread, or the thread that made it has not continued yet.
    Again,
    /// The page is there.
    Exists,
    /// Not registered (any longer), or not in one mapping.
    Elsewhere,
    /// The address space is gone.
    Gone,
    /// The system has no memory for it.
    NoMemory,
}

/// Access to an address space.
#[derive(Debug)]
pub(crate) struct Access {
    uffd: Uffd,
    pagemap: OnceLock<Pagemap>,
}

impl Access {
    /// Takes a descriptor.
    pub(crate) fn new(uffd: Uffd) -> Self {
        Self { uffd, pagemap: OnceLock::new() }
    }

    /// Returns a duplicate of the descriptor.
    ///
    /// # Errors
    /// `EMFILE` if the process has no free descriptor.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.uffd.duplicate()
    }

    /// Reads up to [`AT_ONCE`] messages.
    ///
    /// # Errors
    /// `EAGAIN` if there are none.
    pub(crate) fn read(&self, events: &mut Vec<Event>) -> io::Result<usize> {
        self.uffd.read(events, AT_ONCE)
    }

    /// Asks for messages about missing pages of a range of a process that has this memory;
    /// repeating it does no harm. Its pages can be marked, where the kernel tells accesses and the
    /// program has any at present.
    ///
    /// # Errors
    /// Those of [`Uffd::register`]: not all of it is anonymous memory.
    pub(crate) fn register(&self, pid: i32, range: &Pages) -> io::Result<()> {
        let bytes = bytes_of(range);
        // SAFETY: the caller closes the range; missing pages are answered as `Space` decides.
        let plain = |bytes: &Range<usize>| unsafe { self.uffd.register(bytes.clone()) };
        // SAFETY: as above.
        let marked = |bytes: &Range<usize>| unsafe { self.uffd.register_watched(bytes) };
        if !sees_accesses() {
            return plain(&bytes);
        }
        if marked(&bytes).is_ok() {
            return Ok(());
        }
        // One of its mappings is inaccessible.
        for vma in procmap::within(pid, &bytes)? {
            marked(&vma.range).or_else(|_| plain(&vma.range))?;
        }
        Ok(())
    }

    /// Marks pages of a closed range (`crate::seen`); under the lock of its space.
    ///
    /// # Errors
    /// Those of [`Uffd::watch`]; all may be ignored.
    pub(crate) fn watch(&self, range: &Pages) -> Result<(), Errno> {
        self.uffd.watch(&bytes_of(range), true)
    }

    /// Returns the parts of a range that were accessed; `pid` is a process that has this memory.
    ///
    /// # Errors
    /// Those of [`Pagemap::open`] and [`Pagemap::accessed`].
    pub(crate) fn accessed(&self, pid: i32, range: &Pages) -> io::Result<Vec<Pages>> {
        self.scan(pid, range, Pagemap::accessed)
    }

    /// Returns the parts of a range that lie in huge pages; `pid` is a process that has this
    /// memory.
    ///
    /// # Errors
    /// Those of [`Pagemap::open`] and [`Pagemap::huge`].
    pub(crate) fn huge(&self, pid: i32, range: &Pages) -> io::Result<Vec<Pages>> {
        self.scan(pid, range, Pagemap::huge)
    }

    /// Ends these messages, and wakes the threads that wait there.
    ///
    /// # Errors
    /// Those of [`Uffd::unregister`].
    pub(crate) fn unregister(&self, range: &Pages) -> io::Result<()> {
        // SAFETY: the caller has put back all pages that left, and forgets the range.
        unsafe { self.uffd.unregister(bytes_of(range)) }
    }

    /// Returns the parts of a range that are there; `pid` is a process that has this memory.
    ///
    /// # Errors
    /// Those of [`Pagemap::open`] and [`Pagemap::present`].
    pub(crate) fn present(&self, pid: i32, range: &Pages) -> io::Result<Vec<Pages>> {
        self.scan(pid, range, Pagemap::present)
    }

    /// Returns the parts of a range that no other space has, too.
    ///
    /// # Errors
    /// Those of [`Pagemap::open`] and [`Pagemap::exclusive`].
    pub(crate) fn exclusive(&self, pid: i32, range: &Pages) -> io::Result<Vec<Pages>> {
        self.scan(pid, range, Pagemap::exclusive)
    }

    fn scan(
        &self,
        pid: i32,
        range: &Pages,
        wanted: impl FnOnce(&Pagemap, &Range<usize>) -> io::Result<Vec<Range<usize>>>,
    ) -> io::Result<Vec<Pages>> {
        let found = wanted(self.pagemap(pid)?, &bytes_of(range))?;
        Ok(found.iter().map(pages_of).collect())
    }

    /// Returns what [`present`](Self::present) reads; it is opened at the first call, since the
    /// process may become unreadable later.
    ///
    /// # Errors
    /// Those of [`Pagemap::open`].
    pub(crate) fn pagemap(&self, pid: i32) -> io::Result<&Pagemap> {
        if let Some(pagemap) = self.pagemap.get() {
            return Ok(pagemap);
        }
        let opened = Pagemap::open(pid)?;
        Ok(self.pagemap.get_or_init(|| opened))
    }

    /// Fills pages from `first` on with bytes and wakes the waiting threads. Returns how many pages
    /// are done, and why not more.
    pub(crate) fn copy(&self, first: PageNo, bytes: &[u8]) -> (usize, Option<Refused>) {
        // SAFETY: see the module.
        outcome(bytes.len() / page_len(), unsafe {
            self.uffd.copy(first * page_len(), bytes, true)
        })
    }

    /// Fills pages with zeros and wakes the waiting threads. Returns how many pages are done, and
    /// why not more.
    pub(crate) fn zero(&self, pages: &Pages) -> (usize, Option<Refused>) {
        // SAFETY: see the module.
        outcome(pages.len(), unsafe { self.uffd.zero(bytes_of(pages), true) })
    }

    /// Returns why a range is not wholly in one registered mapping without an unread change; `None`
    /// if it is. Changes nothing.
    pub(crate) fn doubt(&self, range: &Pages) -> Option<Refused> {
        self.uffd.probe(&bytes_of(range)).err().map(refused)
    }

    /// Lets threads that wait in a range look again.
    pub(crate) fn wake(&self, range: &Pages) {
        // It fails only for an invalid range, or when the space is gone.
        let _ = self.uffd.wake(bytes_of(range));
    }
}

fn outcome(pages: usize, result: Result<(), Partial>) -> (usize, Option<Refused>) {
    let Err(partial) = result else { return (pages, None) };
    (partial.done / page_len(), Some(refused(partial.error)))
}

fn refused(error: Errno) -> Refused {
    match error {
        // Also the error when it was stopped in the middle.
        Errno::AGAIN => Refused::Again,
        Errno::EXIST => Refused::Exists,
        Errno::SRCH => Refused::Gone,
        Errno::NOMEM => Refused::NoMemory,
        _ => Refused::Elsewhere,
    }
}

impl AsFd for Access {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.uffd.as_fd()
    }
}
