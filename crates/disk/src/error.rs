//! Errors of the device, with the error numbers that protocols know them by.

use thiserror::Error;
use zfold_store::{LoadError, StoreError, UpdateError};

/// Why a request was not served. The range of a failed write or discard may have been changed in
/// part, page by page; nothing else has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IoError {
    /// The request reaches beyond the end of the device.
    #[error("{len} bytes at {offset} reach beyond the device of {size} bytes")]
    OutOfRange {
        /// First byte of the request.
        offset: u64,
        /// Its length in bytes.
        len: u64,
        /// The device's size in bytes.
        size: u64,
    },
    /// The device takes no writes.
    #[error("the device is read-only")]
    ReadOnly,
    /// The memory limit leaves no room for the page.
    #[error("no space: the memory limit is reached")]
    NoSpace,
    /// The page's bytes did not come back right, or could not be written.
    #[error("the page is damaged or cannot be read")]
    Io,
    /// The device is being shut down and takes no more changes.
    #[error("the device is being shut down")]
    Closed,
}

impl IoError {
    /// Returns the error number of Linux for it, `EIO` and the like.
    #[must_use]
    pub fn errno(self) -> i32 {
        let errno = match self {
            Self::OutOfRange { .. } => rustix::io::Errno::INVAL,
            Self::ReadOnly => rustix::io::Errno::PERM,
            Self::NoSpace => rustix::io::Errno::NOSPC,
            Self::Io => rustix::io::Errno::IO,
            Self::Closed => rustix::io::Errno::SHUTDOWN,
        };
        errno.raw_os_error()
    }
}

impl From<LoadError> for IoError {
    fn from(_: LoadError) -> Self {
        Self::Io
    }
}

impl From<StoreError> for IoError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full | StoreError::Pool(_) | StoreError::Incompressible => Self::NoSpace,
            _ => Self::Io,
        }
    }
}

impl From<UpdateError> for IoError {
    fn from(error: UpdateError) -> Self {
        match error {
            UpdateError::Store(error) => error.into(),
            _ => Self::Io,
        }
    }
}

/// Why a device was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The size is zero or no multiple of the sector size.
    #[error("a size of {size} bytes is not a positive multiple of {sector}")]
    Size {
        /// The size in bytes.
        size: u64,
        /// The sector size in bytes.
        sector: u32,
    },
    /// The store has too few slots for the size.
    #[error("a size of {size} bytes exceeds the {max} that the store was made for")]
    TooLarge {
        /// The size in bytes.
        size: u64,
        /// The largest size in bytes.
        max: u64,
    },
}
