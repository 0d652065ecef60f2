//! A keyed store of compressed memory pages over a zfold pool: what zswap and zram have in
//! common, in user space.
//!
//! [`Store`] keeps pages by key. Pages of one repeated word lie in their slot; all others are
//! compressed by a [`codec`] into objects of a [`zfold_pool::Pool`], or kept as they are where
//! that is no loss. The store knows nothing of how the pool packs objects.

pub mod backing;
pub mod codec;
pub mod conformance;
pub mod pressure;
pub mod shrinker;
pub mod snapshot;

mod entry;
mod error;
mod loader;
mod options;
mod pages;
mod postprocess;
mod slots;
mod stats;
mod store;
mod sync;

pub use codec::{Codec, CodecError, CodecKind, CodecSpec, DecodeError, Dictionary};
pub use error::{KeyError, LoadError, OpenError, ProcessError, StoreError, UpdateError};
pub use loader::Loader;
pub use options::{BackingOptions, CodecChoice, Incompressible, StoreOptions, Tunables};
pub use postprocess::{Processed, Recompress, Selection};
pub use stats::StoreStats;
pub use store::{Content, Store, Stored};
