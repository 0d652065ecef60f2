//! Why a backing was not opened.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// How others could come to what is in a file.
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
#[derive(Debug)]
#[non_exhaustive]
pub enum BackingError {
    /// It cannot be opened for reading and writing, or not be created.
    Open {
        /// The path as it was given.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process or another part of this one uses it: as a backing, or, if it is a device,
    /// as a file system or swap area.
    InUse {
        /// The path as it was given.
        path: PathBuf,
    },
    /// It is neither a regular file nor a block device.
    NotAFile {
        /// The path as it was given.
        path: PathBuf,
    },
    /// It is a symbolic link that leads to no block device.
    Link {
        /// The path as it was given.
        path: PathBuf,
    },
    /// It is a file to which others could come.
    Exposed {
        /// The path as it was given.
        path: PathBuf,
        /// How.
        why: Exposure,
    },
    /// It is a file with contents that are not those of a backing, and nobody said that these may
    /// be lost.
    Foreign {
        /// The path as it was given.
        path: PathBuf,
    },
    /// It has fewer bytes than a page, or a device fewer than were asked for.
    TooShort {
        /// The path as it was given.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// The least length that would do, in bytes.
        needed: u64,
    },
    /// The file cannot be made as long as was asked for.
    Resize {
        /// The path as it was given.
        path: PathBuf,
        /// The length that was asked for, in bytes.
        len: u64,
        /// What the system says.
        source: io::Error,
    },
    /// What marks a file as a backing cannot be written.
    Mark {
        /// The path as it was given.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl fmt::Display for BackingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { path, source } => {
                write!(f, "cannot open {}: {source}; ", path.display())?;
                match source.kind() {
                    io::ErrorKind::NotFound => {
                        write!(f, "give a length to create it, in a directory that exists")
                    }
                    io::ErrorKind::PermissionDenied => {
                        write!(f, "name a file or device that you may read and write")
                    }
                    _ => write!(f, "name a file on a local disk, or a block device"),
                }
            }
            Self::InUse { path } => {
                write!(f, "{} is in use; stop what uses it or name another file", path.display())
            }
            Self::NotAFile { path } => write!(
                f,
                "{} is neither a file nor a block device; name one of these",
                path.display()
            ),
            Self::Link { path } => write!(
                f,
                "{} is a symbolic link, which others may have made; name what it leads to",
                path.display()
            ),
            Self::Exposed { path, why } => {
                let path = path.display();
                match why {
                    Exposure::Owner => write!(
                        f,
                        "{path} belongs to another user, who could read what is written there; \
                         name a file of yours, or one that does not exist"
                    ),
                    Exposure::Mode => write!(
                        f,
                        "{path} is open to other users, who could read what is written there; \
                         chmod 600 {path}, or name a file that does not exist"
                    ),
                    Exposure::Names => write!(
                        f,
                        "{path} has another name by which it can be opened (a hard link); name a \
                         file that does not exist"
                    ),
                }
            }
            Self::Foreign { path } => write!(
                f,
                "{} has no mark of zfold, and its contents would be lost; name another, or use \
                 force to overwrite it (files of earlier versions have no mark)",
                path.display()
            ),
            Self::Mark { path, source } => write!(
                f,
                "cannot write to {}: {source}; free some space or name another file",
                path.display()
            ),
            Self::TooShort { path, len, needed } => write!(
                f,
                "{} has {len} bytes and needs at least {needed}; give a length that it can have",
                path.display()
            ),
            Self::Resize { path, len, source } => write!(
                f,
                "cannot make {} {len} bytes long: {source}; ask for less or name a file on a \
                 larger disk",
                path.display()
            ),
        }
    }
}

impl Error for BackingError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Open { source, .. } | Self::Resize { source, .. } | Self::Mark { source, .. } => {
                Some(source)
            }
            Self::InUse { .. }
            | Self::NotAFile { .. }
            | Self::Link { .. }
            | Self::Exposed { .. }
            | Self::Foreign { .. }
            | Self::TooShort { .. } => None,
        }
    }
}
