//! What ends an experiment early: one line each.

use std::fmt;
use std::io;

use zfold_compare::input::{InputError, plain};
use zfold_pool::{AllocError, ConfigError, HandleError};
use zfold_store::{LoadError, OpenError, StoreError};

/// Why an experiment ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A pool cannot be made.
    Pool(ConfigError),
    /// A pool took no object.
    Alloc(AllocError),
    /// A pool refused a handle.
    Handle(HandleError),
    /// A store cannot be made.
    Open(OpenError),
    /// A store took no page.
    Store(StoreError),
    /// A store did not give a page back.
    Load(LoadError),
    /// The pages of an experiment cannot be had.
    Input(InputError),
    /// The system refused something: a thread, a file, the resident memory of this process.
    Io(io::Error),
    /// An object or a page came back with other bytes than were stored.
    WrongBytes {
        /// Name of the experiment, as on the command line.
        experiment: &'static str,
        /// What came back wrong, and where ("page 7 in zsmalloc").
        what: String,
    },
    /// Anything else, in one line.
    Other(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(source) => source.fmt(f),
            Self::Alloc(source) => source.fmt(f),
            Self::Handle(source) => source.fmt(f),
            Self::Open(source) => source.fmt(f),
            Self::Store(source) => source.fmt(f),
            Self::Load(source) => source.fmt(f),
            Self::Input(source) => source.fmt(f),
            Self::Io(source) => f.write_str(&plain(source)),
            Self::WrongBytes { experiment, what } => {
                write!(f, "{experiment}: wrong bytes came back: {what}")
            }
            Self::Other(line) => f.write_str(line),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Pool(source) => Some(source),
            Self::Alloc(source) => Some(source),
            Self::Handle(source) => Some(source),
            Self::Open(source) => Some(source),
            Self::Store(source) => Some(source),
            Self::Load(source) => Some(source),
            Self::Input(source) => Some(source),
            Self::Io(source) => Some(source),
            Self::WrongBytes { .. } | Self::Other(_) => None,
        }
    }
}

impl From<ConfigError> for Error {
    fn from(source: ConfigError) -> Self {
        Self::Pool(source)
    }
}

impl From<AllocError> for Error {
    fn from(source: AllocError) -> Self {
        Self::Alloc(source)
    }
}

impl From<HandleError> for Error {
    fn from(source: HandleError) -> Self {
        Self::Handle(source)
    }
}

impl From<OpenError> for Error {
    fn from(source: OpenError) -> Self {
        Self::Open(source)
    }
}

impl From<StoreError> for Error {
    fn from(source: StoreError) -> Self {
        Self::Store(source)
    }
}

impl From<LoadError> for Error {
    fn from(source: LoadError) -> Self {
        Self::Load(source)
    }
}

impl From<InputError> for Error {
    fn from(source: InputError) -> Self {
        Self::Input(source)
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Self::Io(source)
    }
}
