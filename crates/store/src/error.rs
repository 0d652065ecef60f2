//! Errors of the store, one type per operation.

use std::error::Error;
use std::fmt;

use zfold_pool::source::SourceError;
use zfold_pool::{AllocError, ConfigError};

use crate::codec::CodecError;
use crate::entry::State;

/// A key beyond the store's last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// The key.
    pub key: u64,
    /// Number of keys of the store.
    pub slots: u64,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {} is not below the {} slots of the store", self.key, self.slots)
    }
}

impl Error for KeyError {}

/// Why a store was not made or not tuned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// A store has at least one slot.
    NoSlots,
    /// The accept threshold is a share of the limit, at most 100 percent.
    AcceptPercent(u8),
    /// A write of the backing file holds 1 to 1024 pages.
    WritebackBatch(u32),
    /// So many codecs for recompression are too many.
    TooManyCodecs(usize),
    /// The store has no codec of this priority.
    NoSuchCodec(u8),
    /// A codec cannot be set up.
    Codec(CodecError),
    /// Equal pages cannot share an object that names one key.
    DeduplicateWithKeys,
    /// Pages of the pool are longer than a store keeps.
    PageLength(usize),
    /// The pool holds objects that the store does not know.
    PoolInUse,
    /// The store's own pool cannot be made.
    Pool(ConfigError),
    /// The slot table cannot be reserved.
    SlotTable(SourceError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlots => write!(f, "a store needs at least one slot"),
            Self::AcceptPercent(percent) => {
                write!(f, "an accept threshold of {percent} % is above 100 %")
            }
            Self::WritebackBatch(pages) => {
                write!(f, "a writeback batch of {pages} pages is not within 1 to 1024")
            }
            Self::TooManyCodecs(count) => {
                let most = State::CODECS_MAX - 1;
                write!(f, "{count} codecs to recompress with are more than {most}")
            }
            Self::NoSuchCodec(priority) => write!(f, "there is no codec of priority {priority}"),
            Self::Codec(error) => error.fmt(f),
            Self::DeduplicateWithKeys => {
                write!(f, "deduplication and key headers exclude each other")
            }
            Self::PageLength(len) => write!(f, "pages of {len} bytes are too long for a store"),
            Self::PoolInUse => write!(f, "a store needs an empty pool of its own"),
            Self::Pool(error) => error.fmt(f),
            Self::SlotTable(source) => write!(f, "cannot reserve the slot table: {source}"),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Codec(error) => Some(error),
            Self::Pool(error) => Some(error),
            Self::SlotTable(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a page was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such key.
    Key(KeyError),
    /// The page has a wrong length.
    PageLength {
        /// Its length in bytes.
        len: usize,
        /// The store's page length in bytes.
        expected: usize,
    },
    /// The limit was hit, and the store has not shrunk to its accept threshold since. Pages can
    /// be stored again when others are gone.
    Full,
    /// The page compresses worse than the options or the pool allow.
    Incompressible,
    /// The pool took no object.
    Pool(AllocError),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::PageLength { len, expected } => page_length(f, *len, *expected),
            Self::Full => write!(f, "the store is full (raise its limit or invalidate pages)"),
            Self::Incompressible => write!(f, "the page does not compress enough for this pool"),
            Self::Pool(error) => error.fmt(f),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Key(error) => Some(error),
            Self::Pool(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a page was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no such key.
    Key(KeyError),
    /// The buffer has a wrong length.
    PageLength {
        /// Its length in bytes.
        len: usize,
        /// The store's page length in bytes.
        expected: usize,
    },
    /// The stored bytes are not those of a page, or not those that were written to the backing
    /// file.
    Damaged {
        /// The key.
        key: u64,
    },
    /// The backing file could not be read.
    Backing {
        /// The key.
        key: u64,
        /// The system's error number, 0 if there is none.
        errno: i32,
    },
    /// A thread panicked inside the pool; it refuses all calls.
    Dead,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::PageLength { len, expected } => page_length(f, *len, *expected),
            Self::Damaged { key } => write!(f, "the page of key {key} is damaged"),
            Self::Backing { key, errno } => {
                write!(f, "the page of key {key} cannot be read from its backing")?;
                match errno {
                    0 => Ok(()),
                    errno => write!(f, ": {}", std::io::Error::from_raw_os_error(*errno)),
                }
            }
            Self::Dead => write!(f, "the pool is dead: a thread panicked inside it"),
        }
    }
}

impl Error for LoadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Key(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a page was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateError {
    /// The page could not be loaded.
    Load(LoadError),
    /// The changed page could not be stored.
    Store(StoreError),
}

impl From<StoreError> for UpdateError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl Error for UpdateError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Load(error) => Some(error),
            Self::Store(error) => Some(error),
        }
    }
}

/// Why pages were not written back or recompressed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProcessError {
    /// The store has no backing file.
    NoBacking,
    /// The writeback limit is used up.
    WritebackLimit,
    /// The backing file is full.
    BackingFull,
    /// The backing file could not be written. The pages concerned stay in memory.
    Backing(std::io::Error),
    /// There is no codec of this priority.
    Priority {
        /// The priority.
        priority: u8,
        /// The highest one there is.
        max: u8,
    },
    /// The pool has no room to put a recompressed page beside the old one, which stays.
    Pool(AllocError),
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBacking => write!(f, "the store has no backing file to write pages to"),
            Self::WritebackLimit => write!(f, "the writeback limit is used up (raise it)"),
            Self::BackingFull => write!(f, "the backing file is full (give a larger one)"),
            Self::Backing(error) => write!(f, "cannot write the backing file: {error}"),
            Self::Priority { priority, max: 0 } => {
                write!(f, "no codec of priority {priority}: the store was made with none")
            }
            Self::Priority { priority, max } => {
                write!(f, "no codec of priority {priority} (choices: 1 to {max})")
            }
            Self::Pool(error) => error.fmt(f),
        }
    }
}

impl Error for ProcessError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Backing(error) => Some(error),
            Self::Pool(error) => Some(error),
            _ => None,
        }
    }
}

fn page_length(f: &mut fmt::Formatter<'_>, len: usize, expected: usize) -> fmt::Result {
    write!(f, "a page has {expected} bytes, not {len}")
}
