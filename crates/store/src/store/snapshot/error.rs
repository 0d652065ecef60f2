//! The outcome of a snapshot.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::codec::CodecError;
use crate::error::{LoadError, StoreError};

/// Longest label in bytes.
pub const LABEL_MAX: usize = 2 << 20;

/// The pages that were saved or restored.
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
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is no snapshot of zfold.
    #[error("it is not a zfold snapshot")]
    Foreign,
    /// It has a version that this program does not know.
    #[error("it has format version {0}, this program reads version 1")]
    Version(u32),
    /// It was damaged or cut off; the text says where.
    #[error("it is damaged or truncated ({0})")]
    Damaged(&'static str),
    /// It has pages of a codec that this crate was built without.
    #[error("{0}")]
    Codec(#[source] CodecError),
    /// Its pages are of another length than the store's.
    #[error("its pages have {snapshot} bytes, those of the store {store}")]
    PageLength {
        /// Of the snapshot, in bytes.
        snapshot: usize,
        /// Of the store, in bytes.
        store: usize,
    },
    /// It has a page that the store has no slot for.
    #[error("it has page {key}, the store has {slots} slots (make it larger)")]
    Slots {
        /// The page's key.
        key: u64,
        /// Number of slots of the store.
        slots: u64,
    },
    /// The store holds pages already.
    #[error("the store already holds pages; restore into an empty one")]
    NotEmpty,
    /// The label is longer than [`LABEL_MAX`].
    #[error("a label of {0} bytes is longer than {LABEL_MAX}")]
    Label(usize),
    /// The pool is unusable after a panic, so no page can be read.
    #[error("{0}")]
    Load(LoadError),
    /// Some pages could not be read. All others were saved beside.
    #[error(
        "{pages} pages cannot be read; what was saved before is unchanged, all other pages are in \
         {saved}"
    )]
    Lost {
        /// How many.
        pages: u64,
        /// Where the others are; the lost ones fail to load once they are restored from there.
        saved: PathBuf,
    },
    /// A page could not be restored.
    #[error("{0}")]
    Store(#[from] StoreError),
}
