//! Why something could not be done with an image.

use std::fmt;
use std::io;

use zfold_store::snapshot::SnapshotError;
use zfold_store::{LoadError, StoreError};

use super::image::CHAIN_MAX;

/// Why something could not be done with an image. Every message names the remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImageError {
    /// A name that no image can have.
    Name(String),
    /// There is an image of that name, or one is being imported.
    Exists(String),
    /// There is no image of that name.
    Missing {
        /// The name.
        name: String,
        /// Those that there are.
        choices: Vec<String>,
    },
    /// The image is used.
    InUse {
        /// The image.
        name: String,
        /// By what.
        by: String,
    },
    /// The length of a memory file is 0, or not of whole pages.
    Length(u64),
    /// A difference and its base have different lengths.
    BaseLength {
        /// Bytes of the file.
        file: u64,
        /// Bytes of the base.
        base: u64,
    },
    /// The base has as many bases as an image may have.
    Chain(String),
    /// No range of keys is long enough.
    NoKeys,
    /// The list of so many images has no room for another one.
    TooMany(usize),
    /// The file cannot be read or written.
    File(io::Error),
    /// A page was not stored.
    Store(StoreError),
    /// A page cannot be read.
    Load {
        /// Its number in the image.
        page: u64,
        /// Why.
        source: LoadError,
    },
    /// The snapshot cannot be written or read.
    Snapshot(SnapshotError),
    /// The snapshot is none of images.
    Foreign,
    /// Its list of images makes no sense.
    Damaged(&'static str),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "{name:?} cannot be the name of an image: use 1 to 64 letters, digits, '.', '_' or \
                 '-', the first no '.' or '-'"
            ),
            Self::Exists(name) => {
                write!(f, "there is an image {name}: remove it first, or choose another name")
            }
            Self::Missing { name, choices } if choices.is_empty() => {
                write!(f, "there is no image {name}, nor any other: import one first")
            }
            Self::Missing { name, choices } => {
                write!(f, "there is no image {name} (choices: {})", choices.join(", "))
            }
            Self::InUse { name, by } => write!(f, "{name} is used by {by}: end or remove it first"),
            Self::Length(bytes) => write!(
                f,
                "{bytes} bytes are no memory of a guest, which has whole pages of 4096: give the \
                 memory file of a snapshot"
            ),
            Self::BaseLength { file, base } => write!(
                f,
                "the file has {file} bytes, its base {base}: give the memory file of a guest that \
                 was restored from that image"
            ),
            Self::Chain(name) => write!(
                f,
                "{name} has {CHAIN_MAX} bases one upon the other: export it, and import that file \
                 without a base"
            ),
            Self::TooMany(images) => {
                write!(f, "a server has no room for more than {images} images: start another one")
            }
            Self::NoKeys => write!(f, "the images have 16 TiB together: remove some"),
            Self::File(error) => error.fmt(f),
            Self::Store(StoreError::Full) => {
                write!(f, "the limit is reached: raise it, or remove images")
            }
            Self::Store(error) => error.fmt(f),
            Self::Load { page, source } => write!(f, "page {page} cannot be read: {source}"),
            Self::Snapshot(error) => error.fmt(f),
            Self::Foreign => write!(f, "it is no snapshot of images of guests"),
            Self::Damaged(what) => write!(f, "its list of images is damaged ({what})"),
        }
    }
}

impl std::error::Error for ImageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => Some(error),
            Self::Store(error) => Some(error),
            Self::Load { source, .. } => Some(source),
            Self::Snapshot(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ImageError {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<StoreError> for ImageError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<SnapshotError> for ImageError {
    fn from(error: SnapshotError) -> Self {
        Self::Snapshot(error)
    }
}
