//! Pages of files in memory that several processes map: a process with the descriptor and the file
//! can take pages out and put them back.
//!
//! A protected page is not written to until the protection is lifted or the page is taken out of
//! the file. Touches of pages that are in the file and not mapped are reported, too, so that no
//! thread sees a page that another process has put there.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _};

use linux_raw_sys::general as raw;
use rustix::io::Errno;

use super::uffd::{Uffd, check, code, range};

const CONTINUE: libc::Ioctl = code::<raw::uffdio_continue>(raw::_UFFDIO_CONTINUE);

impl Uffd {
    /// Asks for all messages that [`Features::FILES`](super::Features::FILES) names, for a range.
    ///
    /// # Errors
    /// Same as [`register`](Self::register); also `EINVAL` if the processor does not support it.
    ///
    /// # Safety
    /// Same as [`register`](Self::register).
    pub unsafe fn register_file(&self, of: &Range<usize>) -> io::Result<()> {
        let mode = raw::UFFDIO_REGISTER_MODE_MISSING
            | raw::UFFDIO_REGISTER_MODE_WP
            | raw::UFFDIO_REGISTER_MODE_MINOR;
        let request = raw::uffdio_register { mode: u64::from(mode), ..Self::register_request(of) };
        // SAFETY: the caller answers for the range.
        unsafe { self.register_by(request) }
    }

    /// Maps pages that are in the file, unprotected, and wakes the threads that wait for them.
    ///
    /// # Errors
    /// `EXIST`: it is mapped; `FAULT`: it is not in the file; otherwise same as
    /// [`protect`](Self::protect).
    pub fn link(&self, of: &Range<usize>) -> Result<(), Errno> {
        let mut proceed = raw::uffdio_continue { range: range(of), mode: 0, mapped: 0 };
        // SAFETY: same as for `protect`: what is mapped is what the file has there.
        check(unsafe { libc::ioctl(self.as_fd().as_raw_fd(), CONTINUE, &raw mut proceed) })
    }
}
