//! Advice to the kernel about memory.

use std::ffi::c_void;
use std::io;
use std::ops::Range;

use rustix::mm::{Advice, madvise};

use crate::page::page_len;

/// `MADV_DONTNEED` also for locked memory (Linux 5.18 and later).
pub const DONTNEED_LOCKED: libc::c_int = 24;

/// Asks the system to page out the whole pages of `bytes` now: the kernel, which does if there is
/// swap, or `zfold run` if the program runs under it. Returns when they have left; pages that
/// cannot leave stay.
///
/// # Errors
/// The kernel has no such advice (Linux 5.4), or cannot give it to this kind of memory.
///
/// # Cost
/// That of compressing every page.
pub fn page_out(bytes: &[u8]) -> io::Result<()> {
    let whole = &bytes[whole_pages(bytes)];
    if whole.is_empty() {
        return Ok(());
    }
    let address = whole.as_ptr().cast::<c_void>().cast_mut();
    // SAFETY: the whole pages at `address` are mapped and lent by `bytes`; the advice changes where
    // the pages lie, not their contents, whoever else uses them.
    unsafe { madvise(address, whole.len(), Advice::LinuxPageOut) }.map_err(io::Error::from)
}

/// Discards the contents of the whole pages of `bytes`, if they are private memory: they then read
/// as zeros, or as the file that they map, and take no memory until they are touched.
///
/// # Errors
/// The pages are locked in memory, or of a kind that cannot be discarded.
///
/// # Cost
/// One system call.
pub fn discard(bytes: &mut [u8]) -> io::Result<()> {
    let range = whole_pages(bytes);
    let whole = &mut bytes[range];
    if whole.is_empty() {
        return Ok(());
    }
    let address = whole.as_mut_ptr().cast::<c_void>();
    // SAFETY: the whole pages at `address` are mapped and lent by `bytes` alone, and whatever they
    // hold afterwards are bytes.
    unsafe { madvise(address, whole.len(), Advice::LinuxDontNeed) }.map_err(io::Error::from)
}

/// Returns where the whole pages of `bytes` lie.
fn whole_pages(bytes: &[u8]) -> Range<usize> {
    let page = page_len();
    let start = bytes.as_ptr().align_offset(page).min(bytes.len());
    start..start + (bytes.len() - start) / page * page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_keep_what_they_hold() {
        let bytes: Vec<u8> = (0..1 << 16).map(|at: u32| (at % 251) as u8).collect();
        page_out(&bytes[1..]).unwrap();
        assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
        page_out(&bytes[..7]).unwrap();
        page_out(&[]).unwrap();
    }

    #[test]
    fn what_is_given_up_reads_as_zeros() {
        let page = page_len();
        let mut bytes = vec![7; 4 * page];
        let whole = whole_pages(&bytes);
        assert!(whole.len() >= 3 * page);
        discard(&mut bytes).unwrap();
        for (at, &byte) in bytes.iter().enumerate() {
            assert_eq!(byte, if whole.contains(&at) { 0 } else { 7 }, "byte {at}");
        }
        discard(&mut bytes[..7]).unwrap();
    }
}
