//! The errors that end a comparison early.

use std::io;

use thiserror::Error;
use zfold_pool::ConfigError;
use zfold_store::{LoadError, OpenError, StoreError};

use crate::input::plain;

/// A comparison that ended early: where, and why.
#[derive(Debug, Error)]
#[error("{input} in {allocator} with {codec}: {fault}")]
pub struct RunError {
    /// Name of the input.
    pub input: String,
    /// Name of the allocator.
    pub allocator: String,
    /// Name of the codec.
    pub codec: String,
    /// The error.
    #[source]
    pub fault: Fault,
}

/// Why a comparison ended early.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The pool cannot be made as planned.
    #[error("{0}")]
    Config(#[source] ConfigError),
    /// The store cannot be made as planned.
    #[error("{0}")]
    Open(#[source] OpenError),
    /// A page came back with other bytes than were stored.
    #[error("page {page} came back with wrong bytes")]
    WrongBytes {
        /// Page of the input, from 0.
        page: u64,
    },
    /// A page that was stored was not found.
    #[error("page {page} was stored, but is not found")]
    Lost {
        /// Page of the input, from 0.
        page: u64,
    },
    /// A page that was not stored was found.
    #[error("page {page} is found, but was not stored")]
    Unexpected {
        /// Page of the input, from 0.
        page: u64,
    },
    /// A page could not be stored, for another reason than its size or the limit.
    #[error("cannot store page {page}: {source}")]
    Store {
        /// Page of the input, from 0.
        page: u64,
        /// The store's error.
        source: StoreError,
    },
    /// A page could not be loaded.
    #[error("cannot load page {page}: {source}")]
    Load {
        /// Page of the input, from 0.
        page: u64,
        /// The store's error.
        source: LoadError,
    },
    /// The pool kept memory though everything in it was freed.
    #[error("{bytes} bytes are still held after everything was freed")]
    NotReturned {
        /// The remaining bytes.
        bytes: u64,
    },
    /// The limit keeps every page out.
    #[error("no page fits under the limit of {limit_bytes} bytes")]
    LimitTooLow {
        /// The limit.
        limit_bytes: u64,
    },
    /// The resident memory of this process cannot be read.
    #[error("cannot read the resident memory of this process: {}", plain(.0))]
    Resident(#[source] io::Error),
}
