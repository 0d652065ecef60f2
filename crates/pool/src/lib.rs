//! The page pools of Linux's compressed memory, zbud, z3fold and zsmalloc, in user space, and one
//! of zfold's own, fit. For programs that keep millions of small blobs and want to know exactly
//! what they cost.
//!
//! ```
//! use zfold_pool::{Allocator, PoolOptions};
//!
//! let pool = zfold_pool::create("example", &PoolOptions::new(Allocator::Zsmalloc))?;
//! let handle = pool.insert(b"forty-two bytes or any other length up to a page")?;
//! assert_eq!(&pool.read(handle)?[..9], b"forty-two");
//! assert_eq!(pool.stats().objects, 1);
//! pool.free(handle)?;
//! pool.compact(u64::MAX);
//! assert_eq!(pool.stats().pages.0, 0, "an empty pool holds no page");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A pool keeps many small objects (compressed pages, usually) densely in whole pages, gives a
//! [`Handle`] for each, moves them together on request, and returns every page that becomes empty.
//! The four allocators stand behind one contract, [`Pool`]; [`create`] makes one.
//!
//! A pool is its process's own. A forked child must not call or drop one of its parent: a lock may
//! be held there by a thread that the child does not have. [`process::Local`] sees to that.
//!
//! Rooms, each knowing only those below it:
//! - `create`: makes a pool of what [`PoolOptions`] says
//! - `buddy`: zbud and z3fold, single-threaded cores, and the locks around them
//! - `zsmalloc`: zsmalloc and its lock designs
//! - `fit`: objects of any length in the holes that fit them best
//! - `cell`: the entry behind a handle in zsmalloc and fit, and which thread may touch an object
//! - [`Pool`], its errors and counters: what every pool does
//! - `owned`: objects that are found by where they are; the rules for who owns them
//! - `memory`: the arena of page frames, where frames come from ([`source::PageSource`]), lists
//!   and tables
//! - `sync`: locks, their order and statistics, threads of a pool's own
//! - [`Lock`]: a lock that a panic does not close, for the crates above
//! - [`process`]: values that a forked child leaves alone
//! - `sys`: the system calls

mod buddy;
mod builders;
mod cell;
mod create;
mod fit;
mod handle;
mod lock;
mod memory;
mod options;
mod owned;
mod pool;
pub mod process;
mod reclaim;
mod sync;
mod sys;
mod units;
mod zsmalloc;

// What tests of pools share, compiled for the types of this crate under test.
#[cfg(test)]
extern crate self as zfold_pool;
#[cfg(test)]
#[path = "../../testing/src/pool/mod.rs"]
pub mod testing;

pub use create::create;
pub use fit::Fit;
pub use handle::Handle;
pub use lock::{Lock, sound};
pub use options::error::ConfigError;
pub use options::zsmalloc::{Chooser, Commit, Compaction, Grouping};
pub use options::{Allocator, Contexts, KernelRules, Locking, PoolOptions, Release, Upkeep};
pub use owned::{Address, KEYS_MAX, Owners};
pub use pool::{AllocError, HandleError, Pool, PoolStats, ReadGuard, ReclaimError, Refused};
pub use sync::stat::LockStat;
pub use units::{PageCount, PageSize};
pub use zsmalloc::geometry::{ClassSpec, Geometry};

/// Advice to the system on many ranges at once, for the crates beside this one.
#[doc(hidden)]
pub mod advice {
    pub use crate::sys::advise_many;
}

/// Where a pool's memory comes from: the system, or a source of the user's own.
pub mod source {
    pub use crate::memory::source::{PageSource, Reservation, SourceError, SystemPages};
}
