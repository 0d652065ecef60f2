//! The page pools of Linux's compressed memory, zbud, z3fold and zsmalloc, in user space: for
//! programs that keep millions of small blobs and want to know exactly what they cost.
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
//! [`Handle`] for each, moves them together when asked, and returns every page that becomes
//! empty. The three allocators stand behind one contract, [`Pool`]; [`create`] makes one.
//!
//! Layers, each knowing only those below it:
//! - [`Pool`], its errors and counters: what every pool does
//! - the plain lock design: one lock around a single-threaded core; and the per-CPU one of many
//!   such locks, with workers
//! - the cores: zbud, z3fold, zsmalloc
//! - lists and tables, the arena of page frames, and where frames come from
//!   ([`source::PageSource`])
//! - the system calls

mod age;
mod builders;
mod chunks;
mod contract;
mod core;
mod cpu;
mod frames;
mod gate;
mod handle;
mod list;
mod lock;
mod lock_stat;
mod locking;
mod options;
mod pins;
mod sharded;
mod shell;
mod slab;
mod sync;
mod sys;
mod units;
mod worker;
mod z3fold;
mod zbud;
mod zsmalloc;

#[cfg(any(test, feature = "testing"))]
pub mod conformance;

pub use contract::{AllocError, HandleError, Pool, PoolStats, ReadGuard, ReclaimError, Refused};
pub use handle::Handle;
pub use lock_stat::LockStat;
pub use locking::{Contexts, Locking, Release, Upkeep};
pub use options::{Allocator, ConfigError, PoolOptions, create};
pub use units::{PageCount, PageSize};
pub use zsmalloc::compact::Compaction;
pub use zsmalloc::fullness::Grouping;
pub use zsmalloc::geometry::{Chooser, ClassSpec, Geometry};
pub use zsmalloc::zspage::Commit;

/// Where a pool's memory comes from: the system, the heap, or a source that fails on purpose.
pub mod source {
    #[cfg(any(test, feature = "testing"))]
    pub use crate::frames::source::FailingPages;
    pub use crate::frames::source::{HeapPages, PageSource, Reservation, SourceError, SystemPages};
}
