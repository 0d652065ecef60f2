//! Errors of the store, one type per operation.

use thiserror::Error;
use zfold_pool::source::SourceError;
use zfold_pool::{AllocError, ConfigError};

use crate::codec::CodecError;

/// A key beyond the store's last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("key {key} is not below the {slots} slots of the store")]
pub struct KeyError {
    /// The key.
    pub key: u64,
    /// Number of keys of the store.
    pub slots: u64,
}

/// Why a store was not made or not tuned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// An option makes no store; which, and why.
    #[error("{0}")]
    Option(String),
    /// A codec cannot be set up.
    #[error("{0}")]
    Codec(#[source] CodecError),
    /// The pool holds objects that the store does not know.
    #[error("a store needs an empty pool of its own")]
    PoolInUse,
    /// The store's own pool cannot be made.
    #[error("{0}")]
    Pool(#[source] ConfigError),
    /// The slot table cannot be reserved.
    #[error("cannot reserve the slot table: {0}")]
    SlotTable(#[source] SourceError),
}

/// Why a page was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such key.
    #[error("{0}")]
    Key(#[source] KeyError),
    /// The page has a wrong length.
    #[error("a page has {expected} bytes, not {len}")]
    PageLength {
        /// Its length in bytes.
        len: usize,
        /// The store's page length in bytes.
        expected: usize,
    },
    /// The limit was hit, and the store has not shrunk to its accept threshold since. Pages can
    /// be stored again when others are gone.
    #[error("the store is full (raise its limit or invalidate pages)")]
    Full,
    /// The page compresses worse than the options or the pool allow.
    #[error("the page does not compress enough for this pool")]
    Incompressible,
    /// The pool took no object.
    #[error("{0}")]
    Pool(#[source] AllocError),
}

/// Why a page was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no such key.
    #[error("{0}")]
    Key(#[source] KeyError),
    /// The buffer has a wrong length.
    #[error("a page has {expected} bytes, not {len}")]
    PageLength {
        /// Its length in bytes.
        len: usize,
        /// The store's page length in bytes.
        expected: usize,
    },
    /// The stored bytes are not those of a page, or not those that were written to the backing
    /// file.
    #[error("the page of key {key} is damaged")]
    Damaged {
        /// The key.
        key: u64,
    },
    /// The backing file could not be read.
    #[error("the page of key {key} cannot be read from its backing{}", why(*.errno))]
    Backing {
        /// The key.
        key: u64,
        /// The system's error number, 0 if there is none.
        errno: i32,
    },
    /// A thread panicked inside the pool; it refuses all calls.
    #[error("the pool is dead: a thread panicked inside it")]
    Dead,
}

/// Why a page was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// The page could not be loaded.
    #[error("{0}")]
    Load(#[source] LoadError),
    /// The changed page could not be stored.
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// Why pages were not written back or recompressed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The store has no backing file.
    #[error("the store has no backing file to write pages to")]
    NoBacking,
    /// The writeback limit is used up.
    #[error("the writeback limit is used up (raise it)")]
    WritebackLimit,
    /// The backing file is full.
    #[error("the backing file is full (give a larger one)")]
    BackingFull,
    /// The backing file could not be written. The pages concerned stay in memory.
    #[error("cannot write the backing file: {0}")]
    Backing(#[source] std::io::Error),
    /// There is no codec of this priority.
    #[error("no codec of priority {priority}{}", choices(*.max))]
    Priority {
        /// The priority.
        priority: u8,
        /// The highest one there is.
        max: u8,
    },
    /// The pool has no room to put a recompressed page beside the old one, which stays.
    #[error("{0}")]
    Pool(#[source] AllocError),
}

/// Returns what the system says of this number, 0 if it says nothing.
fn why(errno: i32) -> String {
    match errno {
        0 => String::new(),
        errno => format!(": {}", std::io::Error::from_raw_os_error(errno)),
    }
}

/// Returns which priorities there are, up to `max`.
fn choices(max: u8) -> String {
    match max {
        0 => ": the store was made with none".to_owned(),
        max => format!(" (choices: 1 to {max})"),
    }
}
