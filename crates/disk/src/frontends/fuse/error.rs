//! Why a device is not mounted, and what to do about it.

use std::io;

use thiserror::Error;

/// Why a device was not mounted or unmounted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FuseError {
    /// There is no `/dev/fuse`.
    #[error("there is no /dev/fuse (modprobe fuse)")]
    NoDriver,
    /// `/dev/fuse` may not be opened.
    #[error("no permission to open /dev/fuse (run as root, or chmod 666 /dev/fuse)")]
    DriverDenied,
    /// Only root may mount, and there is no `fusermount3` to help.
    #[error("mounting needs root or fusermount3 (install the package fuse3)")]
    NoHelper,
    /// The path is something else than a regular file.
    #[error("the device must be mounted over a file (name one, or a new path)")]
    NotAFile,
    /// A FUSE file is mounted there already, or was by a process that died.
    #[error("the path is already mounted (umount it first)")]
    Mounted,
    /// The path cannot be used.
    #[error("the path cannot be used: {0}")]
    Path(#[source] io::Error),
    /// The mount failed.
    #[error("the mount failed: {}", .0.to_string().trim_end())]
    Mount(#[source] io::Error),
    /// A program has the file open.
    #[error("the file is in use (unmount what is on it, and losetup -d its loop device)")]
    Busy,
    /// Unmounting failed.
    #[error("unmounting failed: {0}")]
    Unmount(#[source] io::Error),
}

impl FuseError {
    pub(super) fn path(error: io::Error) -> Self {
        match error.kind() {
            // A mount whose process died.
            io::ErrorKind::NotConnected => Self::Mounted,
            _ => Self::Path(error),
        }
    }

    pub(super) fn mount(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NoHelper,
            _ => Self::Mount(error),
        }
    }
}
