//! The page size of all memory that regions and runs manage.

use std::io;
use std::sync::OnceLock;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Returns whether a page is all zeros.
pub fn is_zero(page: &[u8]) -> bool {
    debug_assert_eq!(page.len(), PAGE);
    page[0] == 0 && page[PAGE - 1] == 0 && page[..PAGE - 1] == page[1..]
}

/// Returns the address of a page that nobody can read or write, the same at each call; mapped at
/// the first one, for as long as the process lives.
///
/// # Errors
/// The address space is full.
pub fn unreadable() -> io::Result<usize> {
    static AT: OnceLock<usize> = OnceLock::new();
    if let Some(&at) = AT.get() {
        return Ok(at);
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_NONE, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // Of two that come first, one has mapped a page in vain.
    Ok(*AT.get_or_init(|| base.addr()))
}
