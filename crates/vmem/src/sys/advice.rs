//! Advice to the kernel about memory that changes nothing in it.

use std::ffi::c_void;
use std::io;

use rustix::mm::{Advice, madvise};

/// Asks the system to page out the whole pages of `bytes` now: the kernel, which does if there is
/// swap, or `zfold run` if the program runs under it. Returns when they have left; whatever cannot
/// leave stays.
///
/// # Errors
/// The kernel has no such advice (Linux 5.4), or cannot give it to this kind of memory.
///
/// # Cost
/// That of compressing every page.
pub fn page_out(bytes: &[u8]) -> io::Result<()> {
    let page = rustix::param::page_size();
    let start = bytes.as_ptr().align_offset(page).min(bytes.len());
    let len = (bytes.len() - start) / page * page;
    if len == 0 {
        return Ok(());
    }
    let address = bytes[start..].as_ptr().cast::<c_void>().cast_mut();
    // SAFETY: the whole pages at `address` are mapped and lent by `bytes`; the advice moves where
    // they lie, not what they hold, whoever else uses them.
    unsafe { madvise(address, len, Advice::LinuxPageOut) }.map_err(io::Error::from)
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
}
