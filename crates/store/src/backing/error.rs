//! Why a backing was not opened.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a file or device cannot be a backing. Every message names it and what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackingError {
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
    /// It cannot be used for another reason, which the message says.
    #[error("{0}")]
    Unfit(String),
}

impl BackingError {
    /// Returns that a file or device is something, or has something, that it must not.
    pub(super) fn unfit(path: &Path, what: impl Display) -> Self {
        Self::Unfit(format!("{} {what}", path.display()))
    }

    /// Returns that it cannot be opened.
    pub(super) fn open(path: &Path, source: &io::Error) -> Self {
        let remedy = match source.kind() {
            io::ErrorKind::NotFound => "give a length to create it, in a directory that exists",
            io::ErrorKind::PermissionDenied => "name a file or device that you may read and write",
            _ => "name a file on a local disk, or a block device",
        };
        Self::Unfit(format!("cannot open {}: {source}; {remedy}", path.display()))
    }
}
