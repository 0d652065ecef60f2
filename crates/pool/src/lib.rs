//! The page pools of Linux's compressed memory, zbud, z3fold and zsmalloc, in user space.
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

pub mod conformance;

pub use contract::{AllocError, HandleError, Pool, PoolStats, ReadGuard, ReclaimError, Refused};
pub use handle::Handle;
pub use lock_stat::LockStat;
pub use locking::{Contexts, Locking, Upkeep};
pub use options::{Allocator, ConfigError, PoolOptions, create};
pub use units::{PageCount, PageSize};
pub use zsmalloc::compact::Compaction;
pub use zsmalloc::fullness::Grouping;
pub use zsmalloc::geometry::{Chooser, ClassSpec, Geometry};
pub use zsmalloc::zspage::Commit;

/// Where a pool's memory comes from: the system, the heap, or a source that fails on purpose.
pub mod source {
    pub use crate::frames::source::{
        FailingPages, HeapPages, PageSource, Reservation, SourceError, SystemPages,
    };
}
