//! Which pages of an address space are present.
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

use zfold_uffd::page::page_len;

/// `PAGEMAP_SCAN`: number 16 of the type 'f', which takes and returns the structure.
const SCAN: libc::Ioctl =
    ((3_u32 << 30) | ((size_of::<raw::pm_scan_arg>() as u32) << 16) | ((b'f' as u32) << 8) | 16)
        as libc::Ioctl;

/// Ranges that one scan returns at most.
const REGIONS: usize = 256;

/// Bits of an entry of the plain file: the page is in memory, or on the system's swap.
const PRESENT_OR_SWAPPED: u64 = 1 << 63 | 1 << 62;

/// `/proc/PID/pagemap`, opened.
#[derive(Debug)]
pub(crate) struct Pagemap {
    file: File,
    /// The kernel (before 6.7) cannot scan.
    plain: AtomicBool,
}

impl Pagemap {
    /// Opens the pagemap of a process; it stays that of its current address space.
    ///
    /// # Errors
    /// `ENOENT` if there is no such process, `EACCES` without the right to trace it.
    pub(crate) fn open(pid: i32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/pagemap"))?;
        Ok(Self { file, plain: AtomicBool::new(false) })
    }

    /// Returns the parts of a range that are there, zero pages and pages on the system's swap
    /// included, in order.
    ///
    /// # Errors
    /// Those of the kernel.
    ///
    /// # Cost
    /// About 10 ns a page that is there.
    pub(crate) fn present(&self, range: &Range<usize>) -> io::Result<Vec<Range<usize>>> {
        // Relaxed: a hint; the other way works as well.
        if !self.plain.load(Ordering::Relaxed) {
            match self.scan(range) {
                Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => {
                    self.plain.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        self.read(range)
    }

    fn scan(&self, range: &Range<usize>) -> io::Result<Vec<Range<usize>>> {
        let mut found = Vec::new();
        let mut regions = [raw::page_region { start: 0, end: 0, categories: 0 }; REGIONS];
        let mut from = range.start;
        while from < range.end {
            let there = u64::from(raw::PAGE_IS_PRESENT | raw::PAGE_IS_SWAPPED);
            let mut scan = raw::pm_scan_arg {
                size: size_of::<raw::pm_scan_arg>() as u64,
                flags: 0,
                start: from as u64,
                end: range.end as u64,
                walk_end: 0,
                vec: (&raw mut regions).addr() as u64,
                vec_len: REGIONS as u64,
                max_pages: 0,
                category_inverted: 0,
                category_mask: 0,
                category_anyof_mask: there,
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

    fn read(&self, range: &Range<usize>) -> io::Result<Vec<Range<usize>>> {
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
                if u64::from_ne_bytes(*entry) & PRESENT_OR_SWAPPED != 0 {
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
    use crate::sys::testing;

    #[test]
    fn both_ways_find_the_pages_that_were_touched() {
        let len = 700 * page_len();
        let start = testing::window(len).start;
        assert_eq!(testing::map(start, len, true), start as i64);
        // Each touch brings one page, whatever the system does by default.
        testing::advise(&(start..start + len), libc::MADV_NOHUGEPAGE);
        let touched = [0..1, 3..5, 100..101, 511..513, 690..700];
        for page in touched.iter().cloned().flatten() {
            testing::put(start + page * page_len(), 1);
        }
        let expected: Vec<_> = touched
            .iter()
            .map(|t| start + t.start * page_len()..start + t.end * page_len())
            .collect();
        let map = Pagemap::open(std::process::id() as i32).unwrap();
        let range = start..start + len;
        assert_eq!(map.read(&range).unwrap(), expected);
        assert_eq!(map.present(&range).unwrap(), expected);
        let one = start + 3 * page_len()..start + 4 * page_len();
        assert_eq!(map.present(&one).unwrap(), vec![one]);
        assert_eq!(testing::unmap(&range), 0);
    }
}
