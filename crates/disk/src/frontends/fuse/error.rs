//! Why a device is not mounted, and what to do about it.

use std::error::Error;
use std::fmt;
use std::io;

/// Why a device was not mounted or unmounted.
#[derive(Debug)]
#[non_exhaustive]
pub enum FuseError {
    /// There is no `/dev/fuse`.
    NoDriver,
    /// `/dev/fuse` may not be opened.
    DriverDenied,
    /// Only root may mount, and there is no `fusermount3` to help.
    NoHelper,
    /// Only root may let others open the file, unless the system's configuration allows it.
    OthersDenied,
    /// The path is something else than a regular file.
    NotAFile,
    /// A FUSE file is mounted there already, or was by a process that died.
    Mounted,
    /// The path cannot be used.
    Path(io::Error),
    /// The mount failed.
    Mount(io::Error),
    /// Somebody has the file open.
    Busy,
    /// Unmounting failed.
    Unmount(io::Error),
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
            io::ErrorKind::PermissionDenied => Self::OthersDenied,
            _ => Self::Mount(error),
        }
    }
}

impl fmt::Display for FuseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => write!(f, "there is no /dev/fuse (modprobe fuse)"),
            Self::DriverDenied => {
                write!(f, "no permission to open /dev/fuse (run as root, or chmod 666 /dev/fuse)")
            }
            Self::NoHelper => {
                write!(f, "mounting needs root or fusermount3 (install the package fuse3)")
            }
            Self::OthersDenied => write!(
                f,
                "only root can admit other users (put user_allow_other into /etc/fuse.conf)"
            ),
            Self::NotAFile => {
                write!(f, "the device must be mounted over a file (name one, or a new path)")
            }
            Self::Mounted => write!(f, "the path is already mounted (umount it first)"),
            Self::Path(error) => write!(f, "the path cannot be used: {error}"),
            Self::Mount(error) => write!(f, "the mount failed: {}", error.to_string().trim_end()),
            Self::Busy => write!(
                f,
                "the file is in use (unmount what is on it, and losetup -d its loop device)"
            ),
            Self::Unmount(error) => write!(f, "unmounting failed: {error}"),
        }
    }
}

impl Error for FuseError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Path(error) | Self::Mount(error) | Self::Unmount(error) => Some(error),
            _ => None,
        }
    }
}
