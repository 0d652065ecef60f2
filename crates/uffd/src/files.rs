//! Pages of files in memory that several processes map: whoever has descriptor and file takes pages
//! out from outside, and puts them back.
//!
//! A page that is protected is not written to until it is let go, or taken out of the file. What is
//! in the file and not mapped is told, too, so that nobody sees what others put there meanwhile.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _};

use linux_raw_sys::general as raw;
use rustix::io::Errno;

use super::uffd::{Uffd, code, last_errno, range};

const PROTECT: libc::Ioctl = code::<raw::uffdio_writeprotect>(raw::_UFFDIO_WRITEPROTECT);
const CONTINUE: libc::Ioctl = code::<raw::uffdio_continue>(raw::_UFFDIO_CONTINUE);

/// `UFFDIO_WRITEPROTECT_MODE_WP`, which the crate of constants does not have.
const MODE_PROTECT: u64 = 1;

impl Uffd {
    /// Asks to be told of all that [`Features::FILES`](super::Features::FILES) names in a range.
    ///
    /// # Errors
    /// As of [`register`](Self::register); also `EINVAL` where the processor cannot do that.
    ///
    /// # Safety
    /// As of [`register`](Self::register).
    pub unsafe fn register_file(&self, of: &Range<usize>) -> io::Result<()> {
        let mode = raw::UFFDIO_REGISTER_MODE_MISSING
            | raw::UFFDIO_REGISTER_MODE_WP
            | raw::UFFDIO_REGISTER_MODE_MINOR;
        let request = raw::uffdio_register { mode: u64::from(mode), ..Self::register_request(of) };
        // SAFETY: the caller answers for the range.
        unsafe { self.register_by(request) }
    }

    /// Protects the pages of a range from writes, mapped or not; or lets writes to them go on.
    ///
    /// # Errors
    /// `NOENT`: not all of the range is registered for that; what lies before is done. `AGAIN`: the
    /// address space is being changed; nothing is done. `SRCH`: it is gone.
    pub fn protect(&self, of: &Range<usize>, on: bool) -> Result<(), Errno> {
        let mode = if on { MODE_PROTECT } else { 0 };
        let mut protect = raw::uffdio_writeprotect { range: range(of), mode };
        // SAFETY: the structure is the one that this number names and lives across the call, which
        // changes no contents.
        match unsafe { libc::ioctl(self.as_fd().as_raw_fd(), PROTECT, &raw mut protect) } {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }

    /// Maps pages that are in the file, unprotected, and wakes who waits for them.
    ///
    /// # Errors
    /// `EXIST`: it is mapped; `FAULT`: it is not in the file; otherwise as of
    /// [`protect`](Self::protect).
    pub fn link(&self, of: &Range<usize>) -> Result<(), Errno> {
        let mut proceed = raw::uffdio_continue { range: range(of), mode: 0, mapped: 0 };
        // SAFETY: as of `protect`: what is mapped is what the file has there.
        match unsafe { libc::ioctl(self.as_fd().as_raw_fd(), CONTINUE, &raw mut proceed) } {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }
}
