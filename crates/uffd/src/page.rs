//! Page sizes: that of the system, which regions and runs use, and that of guests' images.

use std::ffi::c_void;
use std::io;
use std::sync::OnceLock;

use rustix::mm::{Advice, madvise};

/// Bytes of a page of a guest's image.
pub const PAGE: usize = 4096;

/// Bytes of the smallest page that a system with this processor may have.
pub const PAGE_LEN_MIN: usize = 4 << 10;
/// Bytes of the largest.
pub const PAGE_LEN_MAX: usize = if cfg!(target_arch = "x86_64") { PAGE_LEN_MIN } else { 64 << 10 };

/// Returns the bytes of a page of the system.
#[cfg(target_arch = "x86_64")]
pub const fn page_len() -> usize {
    PAGE
}

/// Returns the bytes of a page of the system: 4, 16 or 64 KiB. Allocates nothing.
#[cfg(not(target_arch = "x86_64"))]
pub fn page_len() -> usize {
    rustix::param::page_size()
}

/// Returns how many pages of the system so many bytes are, rounded down; at least one.
pub fn pages_in(bytes: usize) -> usize {
    (bytes / page_len()).max(1)
}

/// Returns whether a page is all zeros.
pub fn is_zero(page: &[u8]) -> bool {
    let last = page.len() - 1;
    page[0] == 0 && page[last] == 0 && page[..last] == page[1..]
}

/// Asks the system to page out `bytes`, which begin at a page: the kernel, which does if there is
/// swap, or `zfold run` if the program runs under it. Pages that cannot leave stay.
///
/// # Errors
/// The kernel has no such advice (Linux 5.4), or cannot give it to this kind of memory.
pub fn page_out(bytes: &[u8]) -> io::Result<()> {
    let address = bytes.as_ptr().cast::<c_void>().cast_mut();
    // SAFETY: mapped and lent by `bytes`; the advice changes where the pages lie, not their
    // contents, whoever else uses them.
    unsafe { madvise(address, bytes.len(), Advice::LinuxPageOut) }.map_err(io::Error::from)
}

/// The address of that page, unless it is taken: the kernel refuses a source that ends after the
/// address space, so the page is low, with nearly all addresses after it.
const LOW: usize = 1 << 36;

/// Returns the address of a page that cannot be read or written, the same at each call. The first
/// call maps it for the life of the process. It is low, so that it can stand for the source of a
/// copy of any length.
///
/// # Errors
/// The address space is full.
pub fn unreadable() -> io::Result<usize> {
    static AT: OnceLock<usize> = OnceLock::new();
    if let Some(&at) = AT.get() {
        return Ok(at);
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let hint = std::ptr::without_provenance_mut(LOW);
    // SAFETY: without MAP_FIXED, a fresh mapping overlaps nothing, wherever it is requested.
    let base = unsafe { libc::mmap(hint, page_len(), libc::PROT_NONE, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // If two threads are first, one has mapped a page that is not used.
    Ok(*AT.get_or_init(|| base.addr()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unreadable_page_may_be_the_source_of_a_copy_of_many_terabytes() {
        let at = unreadable().expect("an address space with room");
        assert_eq!(unreadable().expect("the same"), at);
        // Most processes have 47 bits of addresses, those of some kernels for arm64 39.
        let end = 1_usize << if cfg!(target_arch = "x86_64") { 47 } else { 39 };
        assert!(at < end / 4, "{at:#x}");
    }
}
