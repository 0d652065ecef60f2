//! The errors that end an experiment early: one line each.

use std::io;

use zfold_compare::input::plain;
use zfold_pool::{AllocError, ConfigError, HandleError};
use zfold_store::{LoadError, OpenError, StoreError};

/// Why an experiment ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A pool cannot be made.
    #[error("{0}")]
    Pool(#[from] ConfigError),
    /// A pool took no object.
    #[error("{0}")]
    Alloc(#[from] AllocError),
    /// A pool refused a handle.
    #[error("{0}")]
    Handle(#[from] HandleError),
    /// A store cannot be made.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// A store took no page.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A store did not give a page back.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The system refused something: a thread, a file, the resident memory of this process.
    #[error("{}", plain(.0))]
    Io(#[from] io::Error),
    /// An object or a page came back with other bytes than were stored.
    #[error("{experiment}: wrong bytes came back: {what}")]
    WrongBytes {
        /// Name of the experiment, as on the command line.
        experiment: &'static str,
        /// What came back wrong, and where ("page 7 in zsmalloc").
        what: String,
    },
    /// A tool or a right that one contestant needs is missing: it is left out, and this says why.
    #[error("{0}")]
    Missing(String),
    /// Anything else, in one line.
    #[error("{0}")]
    Other(String),
}
