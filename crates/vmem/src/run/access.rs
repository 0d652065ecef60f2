//! What the memory side can do in an address space that is attached. The one place that calls
//! the unsafe operations of userfaultfd for other address spaces.
//!
//! Why they are sound: pages are filled in and moved out only as [`super::space`] decides, for
//! ranges that are registered, with the contents that left there (S2, S6). The memory is not this
//! process's own, but in tests, which treat it as another's.

use std::io;
use std::ops::Range;
use std::sync::Mutex;

use rustix::io::Errno;

use super::memory::Attached;
use super::mover::Mover;
use super::ranges::{PAGE, PageNo, Pages, bytes_of, page_of, pages_of};
use crate::sys::pagemap::Pagemap;
use crate::sys::uffd::{Event, Partial, Uffd};

/// Tries of an operation that says "again" without progress.
const TRIES: u32 = 1000;

/// What became of pages that were to be filled in. Who waits for those that are there is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    /// All are there.
    All,
    /// So many from the first on; the next one is not registered (any more).
    UpTo(usize),
    /// The address space is gone.
    Gone,
    /// The system has no memory for them.
    NoMemory,
}

/// Access to an attached address space.
pub(crate) struct Access {
    uffd: Uffd,
    pid: i32,
    helper: i32,
    pagemap: Pagemap,
    /// All of the helper's own mapping.
    staging: Range<usize>,
    /// Moves pages out; one thread at a time.
    pub mover: Mutex<Mover>,
}

impl Access {
    /// Takes what the tracer made.
    ///
    /// # Errors
    /// Those of the kernel when the staging is registered or the pagemap opened.
    pub(crate) fn new(attached: Attached) -> io::Result<Self> {
        let Attached { uffd, number, inside, helper, staging, arguments, pid } = attached;
        // SAFETY: the mapping is the helper's own and empty; its missing pages are answered with
        // zeros.
        unsafe { uffd.register(staging.start..arguments) }?;
        let mover = Mover::new(inside, number, pid, staging.start..arguments, arguments);
        let pagemap = Pagemap::open(pid)?;
        Ok(Self { uffd, pid, helper, pagemap, staging, mover: Mutex::new(mover) })
    }

    /// Returns a process that has this memory.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns the helper's own mapping.
    pub(crate) fn staging(&self) -> Pages {
        pages_of(&self.staging)
    }

    /// Returns whether a thread is the helper.
    pub(crate) fn is_helper(&self, thread: i32) -> bool {
        thread == self.helper
    }

    /// Waits for a fault; returns its page and thread, or `None` for a message of another kind.
    ///
    /// # Errors
    /// `EINTR` if the thread was interrupted.
    pub(crate) fn next_fault(&self) -> io::Result<Option<(PageNo, i32)>> {
        // One at a time: other readers take the next.
        let mut events = [Event::Other(0)];
        self.uffd.read(&mut events)?;
        Ok(match events[0] {
            Event::Missing { address, thread, .. } => Some((page_of(address), thread)),
            Event::Other(_) => None,
        })
    }

    /// Asks to be told of missing pages of a range; again does no harm.
    ///
    /// # Errors
    /// Those of [`Uffd::register`]: it is not, or not all, anonymous memory.
    pub(crate) fn register(&self, range: &Pages) -> io::Result<()> {
        // SAFETY: the caller closes the range; missing pages are answered as `Space` decides.
        unsafe { self.uffd.register(bytes_of(range)) }
    }

    /// No longer asks, and lets those that wait there look again.
    ///
    /// # Errors
    /// Those of [`Uffd::unregister`].
    pub(crate) fn unregister(&self, range: &Pages) -> io::Result<()> {
        // SAFETY: the caller has put back all that left, and forgets the range.
        unsafe { self.uffd.unregister(bytes_of(range)) }
    }

    /// Returns the parts of a range that are there.
    ///
    /// # Errors
    /// Those of [`Pagemap::present`].
    pub(crate) fn present(&self, range: &Pages) -> io::Result<Vec<Pages>> {
        let present = self.pagemap.present(&bytes_of(range))?;
        Ok(present.iter().map(pages_of).collect())
    }

    /// Fills pages from `first` on with bytes and wakes who waits.
    pub(crate) fn copy(&self, first: PageNo, bytes: &[u8]) -> Filled {
        self.fill(first..first + bytes.len() / PAGE, |part| {
            let bytes = &bytes[part.start * PAGE..part.end * PAGE];
            // SAFETY: see the module.
            unsafe { self.uffd.copy((first + part.start) * PAGE, bytes, true) }
        })
    }

    /// Fills pages with zeros and wakes who waits.
    pub(crate) fn zero(&self, pages: Pages) -> Filled {
        let first = pages.start;
        self.fill(pages, |part| {
            // SAFETY: see the module.
            unsafe { self.uffd.zero(bytes_of(&(first + part.start..first + part.end)), true) }
        })
    }

    /// Repeats `fill`, which is given which pages to fill, from the how manieth to which, until
    /// all are there. A closed range may be several mappings, because parts of it are protected
    /// in other ways, and the kernel fills nothing if the pages are not of one: then only half of
    /// them are tried, and so on.
    fn fill(&self, pages: Pages, fill: impl Fn(Range<usize>) -> Result<(), Partial>) -> Filled {
        let mut done = 0;
        let mut part = pages.len();
        let mut tries = 0;
        while done < pages.len() {
            let end = pages.len().min(done + part);
            let Err(partial) = fill(done..end) else {
                done = end;
                continue;
            };
            tries = if partial.done > 0 { 0 } else { tries + 1 };
            done += partial.done / PAGE;
            match partial.error {
                Errno::NOENT if partial.done == 0 && end - done > 1 => part = (end - done) / 2,
                Errno::AGAIN if tries < TRIES => std::thread::yield_now(),
                // Something else filled it, or the kernel kept it: it is there.
                Errno::EXIST => {
                    self.wake(&(pages.start + done..pages.start + done + 1));
                    done += 1;
                }
                Errno::SRCH => return Filled::Gone,
                Errno::NOMEM => return Filled::NoMemory,
                _ => {
                    self.wake(&(pages.start + done..pages.end));
                    return Filled::UpTo(done);
                }
            }
        }
        Filled::All
    }

    /// Lets threads that wait in a range look again.
    pub(crate) fn wake(&self, range: &Pages) {
        // It fails only for a range that is none, or when the space is gone.
        let _ = self.uffd.wake(bytes_of(range));
    }
}
