//! Why something could not be done with an image.

use std::io;

use thiserror::Error;
use zfold_store::snapshot::SnapshotError;
use zfold_store::{LoadError, StoreError};

use super::image::CHAIN_MAX;

/// Why something could not be done with an image. Every message names the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A name that no image can have.
    #[error(
        "{0:?} cannot be the name of an image: use 1 to 64 letters, digits, '.', '_' or '-', the \
         first not '.' or '-'"
    )]
    Name(String),
    /// There is an image of that name, or one is being imported.
    #[error("there is already an image {0}: remove it first, or choose another name")]
    Exists(String),
    /// There is no image of that name.
    #[error("there is no image {name}{}", others(choices))]
    Missing {
        /// The name.
        name: String,
        /// The images that exist.
        choices: Vec<String>,
    },
    /// The image is used.
    #[error("{name} is used by {by}: end or remove it first")]
    InUse {
        /// The image.
        name: String,
        /// The user.
        by: String,
    },
    /// The length of a memory file is 0, or not a whole number of pages.
    #[error("{0} bytes are not whole pages of 4096 bytes: give the memory file of a snapshot")]
    Length(u64),
    /// A difference and its base have different lengths.
    #[error(
        "the file has {file} bytes, its base {base}: give the memory file of a guest that was \
         restored from that image"
    )]
    BaseLength {
        /// Bytes of the file.
        file: u64,
        /// Bytes of the base.
        base: u64,
    },
    /// The base has as many bases as an image may have.
    #[error("{0} has a chain of {CHAIN_MAX} bases: export it, and import that file without a base")]
    Chain(String),
    /// No range of keys is long enough.
    #[error("the images have 16 TiB together: remove some")]
    NoKeys,
    /// The list of images has no room for another one.
    #[error("a server has no room for more than {0} images: start another one")]
    TooMany(usize),
    /// The file cannot be read or written.
    #[error("{0}")]
    File(#[from] io::Error),
    /// A page was not stored.
    #[error("{}", not_stored(.0))]
    Store(#[from] StoreError),
    /// A page cannot be read.
    #[error("page {page} cannot be read: {source}")]
    Load {
        /// Its number in the image.
        page: u64,
        /// Why.
        source: LoadError,
    },
    /// A document of a machine is not whole.
    #[error("a document of the machine {0} is missing: save the machine again")]
    Document(String),
    /// No state file is kept with it.
    #[error("{0} was imported without its state file: give --state to import or hibernate")]
    NoState(String),
    /// A state file has no bytes, or too many.
    #[error("a state file has 1 byte to 64 MiB: give that of the snapshot")]
    State,
    /// The snapshot cannot be written or read.
    #[error("{0}")]
    Snapshot(#[from] SnapshotError),
    /// The snapshot does not hold images.
    #[error("it is not a snapshot of guest images")]
    Foreign,
    /// Its list of images makes no sense.
    #[error("its list of images is damaged ({0})")]
    Damaged(&'static str),
}

fn others(choices: &[String]) -> String {
    match choices {
        [] => ", nor any other: import one first".to_owned(),
        choices => format!(" (choices: {})", choices.join(", ")),
    }
}

fn not_stored(error: &StoreError) -> String {
    match error {
        StoreError::Full => "the limit is reached: raise it, or remove images".to_owned(),
        error => error.to_string(),
    }
}
