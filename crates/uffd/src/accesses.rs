//! Pages whose accesses the kernel notes (`RWP`, Linux 7.3): the first access to a marked page
//! clears its mark and costs the thread a short fault. No message is sent, and no thread waits:
//! [`Pagemap::accessed`](crate::Pagemap::accessed) says later which marks are gone.
//!
//! | event | mark of a page |
//! | --- | --- |
//! | load, store, system call with the page, another process's access, mlock | cleared |
//! | mprotect, mremap, `MADV_FREE`, `MADV_COLD` | kept |
//! | fork | kept; a child whose fork is reported has it, too |
//! | the page is discarded, evicted, or filled in by `UFFDIO_COPY` or `UFFDIO_ZEROPAGE` | cleared |
//! | `UFFDIO_MOVE` into a range that is watched | set, whatever it was |
//! | `UFFDIO_MOVE` into any other range | cleared |
//! | the system swaps it out | kept; cleared as it is swapped in |
//! | the range is unregistered, the descriptor is closed | cleared |
//!
//! - A1: a mark is a hint. It decides nothing about contents: a move does, which takes the page
//!   itself.
//! - A2: [`Features::ACCESSES`](crate::Features::ACCESSES) are both features, so that no thread
//!   ever waits at a mark.
//! - A5: unregistering a range clears its marks; to watch it then is `NOENT`, not a mistake.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _};

use linux_raw_sys::general as raw;
use rustix::io::Errno;

use super::uffd::{Uffd, check, code, range};

/// What the crate of constants does not have: `UFFDIO_REGISTER_MODE_RWP`, `UFFDIO_RWPROTECT` and
/// `UFFDIO_RWPROTECT_MODE_RWP`, whose structure is that of `UFFDIO_WRITEPROTECT`.
const REGISTER_WATCHED: u64 = 1 << 3;
const WATCH: libc::Ioctl = code::<raw::uffdio_writeprotect>(9);
const MODE_WATCH: u64 = 1;

impl Uffd {
    /// Same as [`register`](Self::register); the range can also be watched. One that is registered
    /// already can be registered again by this, but not by `register` any more.
    ///
    /// # Errors
    /// Same as [`register`](Self::register); also `EINVAL` if the descriptor was opened without
    /// [`Features::ACCESSES`](crate::Features::ACCESSES), or a mapping allows no access;
    /// `EBUSY` if the range is registered for protection from writes.
    ///
    /// # Safety
    /// Same as [`register`](Self::register).
    pub unsafe fn register_watched(&self, of: &Range<usize>) -> io::Result<()> {
        let mode = u64::from(raw::UFFDIO_REGISTER_MODE_MISSING) | REGISTER_WATCHED;
        let request = raw::uffdio_register { mode, ..Self::register_request(of) };
        // SAFETY: the caller answers for missing pages of the range; a mark needs no answer (A2).
        unsafe { self.register_by(request) }
    }

    /// Marks the pages that are present in a range, or clears their marks. Pages that are absent
    /// are not marked when they come.
    ///
    /// # Errors
    /// Each of them is an answer, after which the caller knows as much as before (A1). `NOENT`: not
    /// all of the range is registered for that, or nothing is; nothing is done. `AGAIN`: the
    /// address space is being changed; nothing is done. `SRCH`: it is gone. `INVAL` or `NOTTY`: the
    /// kernel does not know it.
    ///
    /// # Cost
    /// About a tenth of a minor fault a page in ranges of 64 pages and more, two thirds for a lone
    /// page, next to nothing for one that is marked already; and for each processor that runs the
    /// program an interrupt. The first access costs a third of a minor fault.
    pub fn watch(&self, of: &Range<usize>, on: bool) -> Result<(), Errno> {
        let mode = if on { MODE_WATCH } else { 0 };
        let mut watch = raw::uffdio_writeprotect { range: range(of), mode };
        // SAFETY: the structure is the one that this number names and lives across the call, which
        // changes no contents.
        check(unsafe { libc::ioctl(self.as_fd().as_raw_fd(), WATCH, &raw mut watch) })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::page::page_len;
    use crate::{Faults, Features};

    /// Returns whether a thread that touches a marked page waits; `None` where there are no marks.
    fn waits(features: Features) -> Option<bool> {
        let uffd = Uffd::open(Faults::UserOnly).ok()?;
        uffd.handshake(Features::MOVE.with(features)).ok()?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let flags = flags | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a fresh mapping overlaps nothing; it stays.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), page_len(), access, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        let start = page.expose_provenance();
        let range = start..start + page_len();
        // SAFETY: the page is there.
        unsafe { uffd.register_watched(&range) }.unwrap();
        uffd.watch(&range, true).unwrap();
        let touch = move || {
            // SAFETY: in the mapping.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(start).write_volatile(1) };
        };
        let thread = thread::spawn(touch);
        let mut events = Vec::new();
        loop {
            if uffd.read(&mut events, 1).is_ok() {
                uffd.watch(&range, false).unwrap();
                thread.join().unwrap();
                return Some(true);
            }
            if thread.is_finished() {
                return Some(false);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn no_thread_waits_at_a_mark_but_where_one_of_two_features_is_left_out() {
        let Some(waited) = waits(Features::ACCESSES) else {
            return zfold_testing::skip("accesses are not seen (Linux 7.3)");
        };
        assert!(!waited, "A2");
        let twin = Features(1 << 17);
        assert_eq!(waits(twin), Some(true), "the twin is caught");
    }
}
