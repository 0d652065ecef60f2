//! What ends a comparison early.

use std::error::Error;
use std::fmt;
use std::io;

use zfold_pool::{AllocError, ConfigError, HandleError};
use zfold_store::{LoadError, OpenError, StoreError};

use crate::input::plain;

/// A comparison that ended early: where, and why.
#[derive(Debug)]
pub struct RunError {
    /// Name of the input.
    pub input: String,
    /// Name of the allocator.
    pub allocator: String,
    /// Name of the codec; `trace` in a replay.
    pub codec: String,
    /// What happened.
    pub fault: Fault,
}

/// Why a comparison ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The pool cannot be made as planned.
    Config(ConfigError),
    /// The store cannot be made as planned.
    Open(OpenError),
    /// A page or object came back with other bytes than were stored.
    WrongBytes {
        /// Page of the input, or slot of the trace, from 0.
        page: u64,
    },
    /// A page that was stored was not found.
    Lost {
        /// Page of the input, from 0.
        page: u64,
    },
    /// A page that was not stored was found.
    Unexpected {
        /// Page of the input, from 0.
        page: u64,
    },
    /// A page could not be stored, for another reason than its size or the limit.
    Store {
        /// Page of the input, from 0.
        page: u64,
        /// What the store said.
        source: StoreError,
    },
    /// A page could not be loaded.
    Load {
        /// Page of the input, from 0.
        page: u64,
        /// What the store said.
        source: LoadError,
    },
    /// An object of a trace could not be allocated.
    Alloc {
        /// Slot of the trace, from 0.
        slot: u32,
        /// What the pool said.
        source: AllocError,
    },
    /// An object of a trace could not be written, read or freed.
    Access {
        /// Slot of the trace, from 0.
        slot: u32,
        /// What the pool said.
        source: HandleError,
    },
    /// The pool kept memory though everything in it was freed.
    NotReturned {
        /// What is left.
        bytes: u64,
    },
    /// The limit keeps every page out.
    LimitTooLow {
        /// The limit.
        limit_bytes: u64,
    },
    /// The resident memory of this process cannot be read.
    Resident(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { input, allocator, codec, fault } = self;
        write!(f, "{input} in {allocator} with {codec}: {fault}")
    }
}

impl Error for RunError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(source) => source.fmt(f),
            Self::Open(source) => source.fmt(f),
            Self::WrongBytes { page } => write!(f, "page {page} came back with wrong bytes"),
            Self::Lost { page } => write!(f, "page {page} was stored, but is not found"),
            Self::Unexpected { page } => write!(f, "page {page} is found, but was not stored"),
            Self::Store { page, source } => write!(f, "cannot store page {page}: {source}"),
            Self::Load { page, source } => write!(f, "cannot load page {page}: {source}"),
            Self::Alloc { slot, source } => write!(f, "cannot store slot {slot}: {source}"),
            Self::Access { slot, source } => write!(f, "cannot access slot {slot}: {source}"),
            Self::NotReturned { bytes } => {
                write!(f, "{bytes} bytes are still held after everything was freed")
            }
            Self::LimitTooLow { limit_bytes } => {
                write!(f, "no page fits under the limit of {limit_bytes} bytes")
            }
            Self::Resident(source) => {
                write!(f, "cannot read the resident memory of this process: {}", plain(source))
            }
        }
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Config(source) => Some(source),
            Self::Open(source) => Some(source),
            Self::Store { source, .. } => Some(source),
            Self::Load { source, .. } => Some(source),
            Self::Alloc { source, .. } => Some(source),
            Self::Access { source, .. } => Some(source),
            Self::Resident(source) => Some(source),
            _ => None,
        }
    }
}
