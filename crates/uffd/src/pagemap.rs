//! Which pages of an address space are present, and which of them the kernel protects from writes,
//! or saw accessed.
//!
//! An answer describes the moments at which the kernel looked: the program runs, so a page can have
//! come or gone since, and callers must be correct in either case. An opened file stays that of its
//! address space, even if the number of the process is reused. Any thread may ask.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use linux_raw_sys::general as raw;

use crate::page::page_len;

/// `PAGEMAP_SCAN`: number 16 of the type 'f', which takes and returns the structure.
const SCAN: libc::Ioctl =
    ((3_u32 << 30) | ((size_of::<raw::pm_scan_arg>() as u32) << 16) | ((b'f' as u32) << 8) | 16)
        as libc::Ioctl;

/// Ranges that one scan returns at most.
const REGIONS: usize = 256;

/// What a page of a range is to be.
#[derive(Clone, Copy)]
struct Wanted {
    /// In memory, or on the system's swap.
    any_of: u32,
    /// All of these.
    all_of: u32,
    /// Not one of these.
    none_of: u32,
}

/// In memory or on the system's swap.
const THERE: Wanted =
    Wanted { any_of: raw::PAGE_IS_PRESENT | raw::PAGE_IS_SWAPPED, all_of: 0, none_of: 0 };

/// Of these, those with userfaultfd's protection: "written" is the kernel's name for pages without.
const PROTECTED: Wanted = Wanted { none_of: raw::PAGE_IS_WRITTEN, ..THERE };

/// `PAGE_IS_ACCESSED` of Linux 7.3, which the crate of constants does not have.
const IS_ACCESSED: u32 = 1 << 9;

/// In watched ranges, those that were touched since they were watched.
const ACCESSED: Wanted = Wanted { all_of: IS_ACCESSED, ..THERE };

/// Of these, pages of huge ones.
const HUGE: Wanted = Wanted { all_of: raw::PAGE_IS_HUGE, ..THERE };

/// Bits of an entry of the plain file: the page is in memory, or on the system's swap.
const PRESENT_OR_SWAPPED: u64 = 1 << 63 | 1 << 62;
/// Or no other address space maps it.
const ON_SWAP: u64 = 1 << 62;
const EXCLUSIVE: u64 = 1 << 56;

/// `/proc/PID/pagemap`, opened.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    /// The kernel (before 6.7) cannot scan.
    plain: AtomicBool,
}

impl Pagemap {
    /// Opens the pagemap of a process; it stays that of its current address space.
    ///
    /// # Errors
    /// `ENOENT` if there is no such process, `EACCES` without the right to trace it.
    pub fn open(pid: i32) -> io::Result<Self> {
        Self::open_at(&format!("/proc/{pid}/pagemap"))
    }

    /// Opens the pagemap of this process.
    ///
    /// # Errors
    /// `ENOENT` if `/proc` is not mounted, `EACCES` if the process cannot be dumped and is not
    /// root's.
    pub fn open_own() -> io::Result<Self> {
        Self::open_at("/proc/self/pagemap")
    }

    fn open_at(path: &str) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, plain: AtomicBool::new(false) })
    }

    /// Returns the parts of a range that are there, zero pages and pages on the system's swap
    /// included, in order.
    ///
    /// # Errors
    /// Those of the kernel.
    ///
    /// # Cost
    /// About 10 ns a page that is there.
    pub fn present(&self, range: &Range<usize>) -> io::Result<Vec<Range<usize>>> {
        // Relaxed: a hint; the other way works as well.
        if !self.plain.load(Ordering::Relaxed) {
            match self.scan(range, THERE) {
                Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => {
                    self.plain.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        self.read(range, PRESENT_OR_SWAPPED)
    }

    /// Returns the parts of a range that are there and that no other address space maps, pages on
    /// the system's swap included, in order.
    ///
    /// # Errors
    /// Those of the kernel.
    ///
    /// # Cost
    /// Same as [`present`](Self::present).
    pub fn exclusive(&self, range: &Range<usize>) -> io::Result<Vec<Range<usize>>> {
        self.read(range, EXCLUSIVE | ON_SWAP)
    }

    /// Returns the parts of a range that are there and protected from writes by userfaultfd, pages
    /// on the system's swap included, in order. A page that is not there is not among them.
    ///
    /// # Errors
    /// Those of the kernel; `ENOTTY` before Linux 6.7.
    ///
    /// # Cost
    /// Same as [`present`](Self::present).
    pub fn protected(&self, range: &Range<usize>) -> io::Result<Vec<Range<usize>>> {
        self.scan(range, PROTECTED)
    }

    /// Returns the parts of a range that are there and were accessed since
    /// [`Uffd::watch`](crate::Uffd::watch) marked them, or never marked, in order; those on the
    /// system's swap included. What is there and not among them was not touched: the rest of
    /// [`present`](Self::present). Only ranges that are registered for that have such pages.
    ///
    /// A page can be reported that nobody needed: after mlock, as a part of a huge page, or because
    /// it has just come. One that a device accesses, without a mapping, is not reported.
    ///
    /// # Errors
    /// Those of the kernel; `EINVAL` before Linux 7.3, `ENOTTY` before Linux 6.7.
    ///
    /// # Cost
    /// Same as [`present`](Self::present).
    pub fn accessed(&self, range: &Range<usize>) -> io::Result<Vec<Range<usize>>> {
        self.scan(range, ACCESSED)
    }

    /// Returns the parts of a range that lie in huge pages, in order. Such a page has one mark.
    ///
    /// # Errors
    /// Those of the kernel; `ENOTTY` before Linux 6.7.
    ///
    /// # Cost
    /// Same as [`present`](Self::present).
    pub fn huge(&self, range: &Range<usize>) -> io::Result<Vec<Range<usize>>> {
        self.scan(range, HUGE)
    }

    fn scan(&self, range: &Range<usize>, wanted: Wanted) -> io::Result<Vec<Range<usize>>> {
        let mut found = Vec::new();
        let mut regions = [raw::page_region { start: 0, end: 0, categories: 0 }; REGIONS];
        let mut from = range.start;
        while from < range.end {
            let mut scan = raw::pm_scan_arg {
                size: size_of::<raw::pm_scan_arg>() as u64,
                flags: 0,
                start: from as u64,
                end: range.end as u64,
                walk_end: 0,
                vec: (&raw mut regions).addr() as u64,
                vec_len: REGIONS as u64,
                max_pages: 0,
                category_inverted: wanted.none_of.into(),
                category_mask: (wanted.all_of | wanted.none_of).into(),
                category_anyof_mask: wanted.any_of.into(),
                // Not distinguished, so that neighbours are joined; the kernel requires at least
                // one.
                return_mask: u64::from(raw::PAGE_IS_WPALLOWED),
            };
            // SAFETY: the structure is the one that this number names; the kernel writes to it
            // and to at most `vec_len` elements of `regions`, and both live across the call.
            let count = unsafe { libc::ioctl(self.file.as_raw_fd(), SCAN, &raw mut scan) };
            let Ok(count) = usize::try_from(count) else {
                return Err(io::Error::last_os_error());
            };
            for region in &regions[..count] {
                join(&mut found, region.start as usize..region.end as usize);
            }
            if scan.walk_end as usize <= from {
                break;
            }
            from = scan.walk_end as usize;
        }
        Ok(found)
    }

    /// Returns the parts of which the entries have any of these bits.
    fn read(&self, range: &Range<usize>, any_of: u64) -> io::Result<Vec<Range<usize>>> {
        const AT_ONCE: usize = 512;
        let mut found = Vec::new();
        let mut bytes = [0; AT_ONCE * 8];
        let mut from = range.start;
        while from < range.end {
            let wanted = ((range.end - from) / page_len()).min(AT_ONCE);
            let got =
                self.file.read_at(&mut bytes[..wanted * 8], (from / page_len() * 8) as u64)? / 8;
            if got == 0 {
                break;
            }
            let (entries, _) = bytes[..got * 8].as_chunks::<8>();
            for (at, entry) in entries.iter().enumerate() {
                if u64::from_ne_bytes(*entry) & any_of != 0 {
                    let page = from + at * page_len();
                    join(&mut found, page..page + page_len());
                }
            }
            from += got * page_len();
        }
        Ok(found)
    }
}

fn join(found: &mut Vec<Range<usize>>, range: Range<usize>) {
    match found.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => found.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Faults, Features, Uffd};

    const PAGES: usize = 700;

    /// Runs a test in a mapping of its own.
    fn with_pages(test: impl FnOnce(usize)) {
        let (len, access) = (PAGES * page_len(), libc::PROT_READ | libc::PROT_WRITE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping overlaps nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the mapping is this test's. Each touch brings one page, whatever the system does
        // by default.
        assert_eq!(unsafe { libc::madvise(start, len, libc::MADV_NOHUGEPAGE) }, 0);
        test(start.expose_provenance());
        // SAFETY: nobody uses it any longer.
        assert_eq!(unsafe { libc::munmap(start, len) }, 0);
    }

    fn touch(start: usize, page: usize) {
        let at = std::ptr::with_exposed_provenance_mut::<u8>(start + page * page_len());
        // SAFETY: in the mapping of this test.
        unsafe { at.write_volatile(1) };
    }

    fn addresses(start: usize, pages: &Range<usize>) -> Range<usize> {
        start + pages.start * page_len()..start + pages.end * page_len()
    }

    #[test]
    fn both_ways_find_the_pages_that_were_touched() {
        with_pages(|start| {
            let touched = [0..1, 3..5, 100..101, 511..513, 690..700];
            touched.iter().cloned().flatten().for_each(|page| touch(start, page));
            let expected: Vec<_> = touched.iter().map(|pages| addresses(start, pages)).collect();
            let map = Pagemap::open(std::process::id() as i32).unwrap();
            let range = addresses(start, &(0..PAGES));
            assert_eq!(map.read(&range, PRESENT_OR_SWAPPED).unwrap(), expected);
            assert_eq!(map.exclusive(&range).unwrap(), expected);
            assert_eq!(map.present(&range).unwrap(), expected);
            let one = addresses(start, &(3..4));
            assert_eq!(map.present(&one).unwrap(), vec![one]);
        });
    }

    #[test]
    fn protected_pages_are_told_from_others_and_from_missing_ones() {
        let opened = Uffd::open(Faults::UserOnly).and_then(|uffd| {
            uffd.handshake(Features::SIGBUS.with(Features::PROTECT)).map(|()| uffd)
        });
        let Ok(uffd) = opened else {
            return zfold_testing::skip("no protection by userfaultfd");
        };
        with_pages(|start| {
            let range = addresses(start, &(0..PAGES));
            // SAFETY: no page is touched that is not there.
            unsafe { uffd.register_protecting(&range) }.unwrap();
            let bytes = vec![1; 600 * page_len()];
            // SAFETY: the mapping is this test's.
            unsafe { uffd.copy_protected(start, &bytes, false) }.unwrap();
            uffd.protect(&addresses(start, &(10..20)), false).unwrap();
            touch(start, 15);
            let at = std::ptr::with_exposed_provenance_mut(start + 30 * page_len());
            // SAFETY: the mapping is this test's.
            assert_eq!(unsafe { libc::madvise(at, page_len(), libc::MADV_DONTNEED) }, 0);
            let map = Pagemap::open_own().unwrap();
            let expected = [0..10, 20..30, 31..600].map(|pages| addresses(start, &pages));
            assert_eq!(map.protected(&range).unwrap(), expected);
        });
    }
}
