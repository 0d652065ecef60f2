//! Which pages of a file in memory are there.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use linux_raw_sys::general as raw;

/// Returns whether any page of a range of a file in memory is there, in memory or paged out. Unlike
/// `lseek`, it takes no lock of the file, which others may hold for as long as they like. Costs a
/// step for each page that is there. Linux 6.5.
///
/// # Errors
/// `EPERM`: the file is neither this user's nor open for writing; or the call is not permitted.
pub fn is_any_there(file: BorrowedFd<'_>, of: &Range<u64>) -> io::Result<bool> {
    let range = raw::cachestat_range { off: of.start, len: of.end - of.start };
    // SAFETY: numbers, of which all values are valid.
    let mut found: raw::cachestat = unsafe { std::mem::zeroed() };
    let number = libc::c_long::from(raw::__NR_cachestat);
    // SAFETY: the call reads one structure and writes the other, both of its types; they live
    // across it.
    let done =
        unsafe { libc::syscall(number, file.as_raw_fd(), &raw const range, &raw mut found, 0_u32) };
    match done {
        0 => Ok(found.nr_cache + found.nr_evicted > 0),
        _ => Err(io::Error::last_os_error()),
    }
}
