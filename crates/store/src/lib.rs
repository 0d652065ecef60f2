//! A store of compressed memory pages, for programs that keep more pages in memory than fit there:
//! what Linux's zswap and zram have in common, in user space.
//!
//! ```
//! use zfold_store::{CodecKind, Store, StoreOptions};
//!
//! // A million keys; all memory held counts against 64 MiB.
//! let options = StoreOptions::new(1_000_000, CodecKind::Lz4.into()).with_limit_bytes(64 << 20);
//! let store = Store::open(&options)?;
//! store.store(7, &[1; 4096])?;
//! let mut page = [0; 4096];
//! assert!(store.load(7, &mut page)? && page == [1; 4096]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Store`] keeps pages by number. Pages of one repeated word lie in their slot; all others are
//!   compressed by a [`codec`] into objects of a [`pool::Pool`], or kept as they are where that is
//!   no loss. Cold pages can be [written back](Store::writeback) to a [`backing`] or
//!   [recompressed](Store::recompress); [`snapshot`]s save all.
//! - [`Cache`] keeps values of any length by keys of bytes, the least recently used of them leave
//!   under its limit.
//! - [`shrinker`] keeps a store small in the background, and [`pressure`] reports how short of
//!   memory the machine is.
//!
//! # Features
//! `zstd`, which is on by default, and `lzo` are codecs; LZ4 and `page` are always there. `testing`
//! has what tests of stores need.

pub mod backing;
pub mod codec;
#[cfg(any(test, feature = "testing"))]
#[path = "../tests/testing/conformance.rs"]
pub mod conformance;
pub mod files;
pub mod pressure;
pub mod shrinker;

mod cache;
mod content;
mod digests;
mod entry;
mod error;
mod limit;
mod loader;
mod options;
mod pages;
mod reserve;
mod slots;
mod stats;
mod store;
mod sync;
mod tuning;

pub use cache::{Cache, CacheError, CacheOptions, CacheStats};
pub use codec::{Codec, CodecError, CodecKind, CodecSpec, DecodeError, Dictionary};
pub use content::{Content, Stored};
pub use digests::{Digest, Digests};
pub use error::{KeyError, LoadError, OpenError, ProcessError, StoreError, UpdateError};
pub use options::{BackingOptions, CodecChoice, Incompressible, StoreOptions, Tunables};
pub use pages::contexts::Loader;
pub use stats::StoreStats;
pub use store::postprocess::{Processed, Recompress, Selection};
pub use store::{Store, snapshot};
/// The crate of the pools, whose types are in this one's interface.
pub use zfold_pool as pool;
