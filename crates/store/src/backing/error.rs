//! Why a backing was not opened.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// How others could reach the contents of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// It belongs to another user.
    Owner,
    /// Its mode permits something to the group or to all.
    Mode,
    /// It has another name.
    Names,
}

/// Why a file or device cannot be a backing. Every message names it and what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackingError {
    /// It cannot be opened for reading and writing, or not be created.
    #[error("cannot open {path}: {source}; {}", remedy(.source))]
    Open {
        /// The path as it was given.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process or another part of this one uses it: as a backing, or, if it is a device,
    /// as a file system or swap area.
    #[error("{path} is in use; end the process that uses it, or name another file")]
    InUse {
        /// The path as it was given.
        path: PathBuf,
    },
    /// It is neither a regular file nor a block device.
    #[error("{path} is neither a file nor a block device; name one of these")]
    NotAFile {
        /// The path as it was given.
        path: PathBuf,
    },
    /// It is a symbolic link that leads to no block device.
    #[error("{path} is a symbolic link, which others may have made; name what it leads to")]
    Link {
        /// The path as it was given.
        path: PathBuf,
    },
    /// It is a file to which others could come.
    #[error("{path} {}", exposed(.path, *.why))]
    Exposed {
        /// The path as it was given.
        path: PathBuf,
        /// How.
        why: Exposure,
    },
    /// It is a file whose contents are not those of a backing, and overwriting it was not
    /// permitted.
    #[error(
        "{path} has no mark of zfold, and its contents would be lost; name another, or use force \
         to overwrite it (files of earlier versions have no mark)"
    )]
    Foreign {
        /// The path as it was given.
        path: PathBuf,
    },
    /// It has fewer bytes than a page, or it is a device with fewer bytes than requested.
    #[error("{path} has {len} bytes and needs at least {needed}; give a length that it can have")]
    TooShort {
        /// The path as it was given.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// The least length that would do, in bytes.
        needed: u64,
    },
    /// The file cannot be extended to the requested length.
    #[error(
        "cannot make {path} {len} bytes long: {source}; ask for less or name a file on a larger \
         disk"
    )]
    Resize {
        /// The path as it was given.
        path: PathBuf,
        /// The requested length in bytes.
        len: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The mark of a backing file cannot be written.
    #[error("cannot write to {path}: {source}; free some space or name another file")]
    Mark {
        /// The path as it was given.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Returns what to do about a file that cannot be opened.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "give a length to create it, in a directory that exists",
        io::ErrorKind::PermissionDenied => "name a file or device that you may read and write",
        _ => "name a file on a local disk, or a block device",
    }
}

/// Returns how others come to a file, and what to do about it.
fn exposed(path: &Path, why: Exposure) -> String {
    match why {
        Exposure::Owner => "belongs to another user, who could read what is written there; name a \
                            file of yours, or one that does not exist"
            .to_owned(),
        Exposure::Mode => format!(
            "is open to other users, who could read what is written there; chmod 600 {}, or name a \
             file that does not exist",
            path.display()
        ),
        Exposure::Names => "has another name by which it can be opened (a hard link); name a file \
                            that does not exist"
            .to_owned(),
    }
}
