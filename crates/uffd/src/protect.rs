//! Pages that are protected from writes: a thread that writes to one waits, or gets the signal,
//! until writes are allowed.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _};

use linux_raw_sys::general as raw;
use rustix::io::Errno;

use super::uffd::{Partial, Uffd, check, code, range};

const PROTECT: libc::Ioctl = code::<raw::uffdio_writeprotect>(raw::_UFFDIO_WRITEPROTECT);

/// `UFFDIO_WRITEPROTECT_MODE_WP`, which the crate of constants does not have.
const MODE_PROTECT: u64 = 1;

impl Uffd {
    /// Same as [`register`](Self::register), and asks for messages about writes to protected pages.
    ///
    /// # Errors
    /// Same as [`register`](Self::register); also `EINVAL` if the processor does not support it.
    ///
    /// # Safety
    /// Same as [`register`](Self::register).
    pub unsafe fn register_protecting(&self, of: &Range<usize>) -> io::Result<()> {
        let mode = raw::UFFDIO_REGISTER_MODE_MISSING | raw::UFFDIO_REGISTER_MODE_WP;
        let request = raw::uffdio_register { mode: u64::from(mode), ..Self::register_request(of) };
        // SAFETY: the caller answers for the range.
        unsafe { self.register_by(request) }
    }

    /// Same as [`copy`](Self::copy); the pages are protected from writes from the beginning.
    ///
    /// # Safety
    /// Same as [`copy`](Self::copy); the range is registered by
    /// [`register_protecting`](Self::register_protecting).
    pub unsafe fn copy_protected(
        &self,
        to: usize,
        pages: &[u8],
        wake: bool,
    ) -> Result<(), Partial> {
        // SAFETY: the caller answers for the range and the contents.
        unsafe { self.copy_as(to, pages, wake, u64::from(raw::UFFDIO_COPY_MODE_WP)) }
    }

    /// Protects the pages of a range from writes; or allows writes again, and wakes the threads
    /// that wait for that.
    ///
    /// # Errors
    /// `NOENT`: not all of the range is registered for that; the pages before are done. `AGAIN`:
    /// the address space is being changed; nothing is done. `SRCH`: it is gone.
    pub fn protect(&self, of: &Range<usize>, on: bool) -> Result<(), Errno> {
        let mode = if on { MODE_PROTECT } else { 0 };
        let mut protect = raw::uffdio_writeprotect { range: range(of), mode };
        // SAFETY: the structure is the one that this number names and lives across the call, which
        // changes no contents.
        check(unsafe { libc::ioctl(self.as_fd().as_raw_fd(), PROTECT, &raw mut protect) })
    }
}
