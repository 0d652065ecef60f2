//! What became of a snapshot.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::error::{LoadError, StoreError};

/// Longest label in bytes.
pub const LABEL_MAX: usize = 64 << 10;

/// What was saved or restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotReport {
    /// Pages, same-filled ones included.
    pub pages: u64,
    /// Bytes of the snapshot.
    pub bytes: u64,
    /// Of the pages, those that could not be read when it was saved: only their keys are in it.
    pub lost_pages: u64,
}

/// Why a snapshot was not written or not read.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Reading or writing failed.
    Io(io::Error),
    /// It is no snapshot of zfold.
    Foreign,
    /// It has a version that this program does not know.
    Version(u32),
    /// It was damaged or cut off; the text says where.
    Damaged(&'static str),
    /// Its pages are of another length than the store's.
    PageLength {
        /// Of the snapshot, in bytes.
        snapshot: usize,
        /// Of the store, in bytes.
        store: usize,
    },
    /// It has a page that the store has no slot for.
    Slots {
        /// The page's key.
        key: u64,
        /// Number of slots of the store.
        slots: u64,
    },
    /// The store holds pages already.
    NotEmpty,
    /// The label is longer than [`LABEL_MAX`].
    Label(usize),
    /// The pool is dead, so no page can be read.
    Load(LoadError),
    /// Some pages could not be read. All others were saved beside.
    Lost {
        /// How many.
        pages: u64,
        /// Where the others are; the lost ones fail to load once they are restored from there.
        saved: PathBuf,
    },
    /// A page could not be restored.
    Store(StoreError),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Foreign => write!(f, "it is not a zfold snapshot"),
            Self::Version(version) => {
                write!(f, "it has format version {version}, this program reads version 1")
            }
            Self::Damaged(place) => write!(f, "it is damaged or truncated ({place})"),
            Self::PageLength { snapshot, store } => {
                write!(f, "its pages have {snapshot} bytes, those of the store {store}")
            }
            Self::Slots { key, slots } => {
                write!(f, "it has page {key}, the store has {slots} slots (make it larger)")
            }
            Self::NotEmpty => write!(f, "the store already holds pages; restore into an empty one"),
            Self::Label(len) => write!(f, "a label of {len} bytes is longer than {LABEL_MAX}"),
            Self::Load(error) => error.fmt(f),
            Self::Lost { pages, saved } => write!(
                f,
                "{pages} pages cannot be read; what was saved before is unchanged, all other pages \
                 are in {}",
                saved.display()
            ),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SnapshotError {}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<StoreError> for SnapshotError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
