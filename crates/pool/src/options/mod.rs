//! The options of a pool: the allocator, its lock design, how upkeep and compaction run. Plain
//! data; [`crate::create`] makes a pool of it.

pub(crate) mod error;
pub(crate) mod zsmalloc;

use std::sync::Arc;

use crate::memory::source::{PageSource, SystemPages};
use crate::options::zsmalloc::{Chooser, Commit, Compaction, Grouping};
use crate::units::PageSize;

/// Most shards of a per-CPU design.
pub(crate) const CPUS_MAX: usize = 256;

/// The allocators. The default is that of stores, caches, regions and runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Allocator {
    /// Two objects a page.
    Zbud,
    /// Three objects a page.
    Z3fold,
    /// Objects of one size class packed across page borders.
    Zsmalloc,
    /// Objects of any length, each in the hole that fits it best: the densest. Not the kernel's.
    #[default]
    Fit,
}

impl Allocator {
    /// All allocators.
    pub const ALL: [Self; 4] = [Self::Zbud, Self::Z3fold, Self::Zsmalloc, Self::Fit];

    /// Those that Linux has, or had.
    pub const KERNEL: [Self; 3] = [Self::Zbud, Self::Z3fold, Self::Zsmalloc];

    /// Returns the name that `Display` prints and `FromStr` reads.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Zbud => "zbud",
            Self::Z3fold => "z3fold",
            Self::Zsmalloc => "zsmalloc",
            Self::Fit => "fit",
        }
    }

    /// Returns whether a pool can be made with reclaim: whether the allocator keeps its pages in
    /// the order of their last use.
    #[must_use]
    pub fn has_reclaim(self) -> bool {
        self != Self::Fit
    }
}

/// Which locks guard a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Locking {
    /// zsmalloc: a reader-writer lock against migration for the pool, a spin lock for each size
    /// class (Linux before 6.2 and from 6.12 on).
    Hierarchical,
    /// One spin lock for everything (zsmalloc of Linux 6.2 to 6.11, zbud, z3fold before 4.14).
    /// fit: one for places; reads and writes take none.
    PoolLock,
    /// zsmalloc: a spin lock for each size class; which one is read from the handle's cell, so
    /// that no lock of the pool is left (goes on from the kernel's zs_free series of 2026).
    ClassIndex,
    /// zsmalloc: every CPU has zspages of its own, objects freed by other CPUs are handed to the
    /// owner in batches, and a read writes to the handle's cell only. z3fold: every CPU has its own
    /// lists of pages with room (Linux since 4.14). fit: threads that contend for a lock move to
    /// separate heaps, at most as many as there are CPUs; reads and writes take none.
    PerCpu,
}

impl Locking {
    /// All designs.
    pub const ALL: [Self; 4] = [Self::Hierarchical, Self::PoolLock, Self::ClassIndex, Self::PerCpu];

    /// Returns the designs that `allocator` has.
    #[must_use]
    pub fn of(allocator: Allocator) -> &'static [Self] {
        match allocator {
            Allocator::Zbud => &[Self::PoolLock],
            Allocator::Z3fold | Allocator::Fit => &[Self::PoolLock, Self::PerCpu],
            Allocator::Zsmalloc => &Self::ALL,
        }
    }

    /// Returns the name that `Display` prints.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hierarchical => "hierarchical",
            Self::PoolLock => "pool-lock",
            Self::ClassIndex => "class-index",
            Self::PerCpu => "per-cpu",
        }
    }
}

/// How many compactions of one pool may run at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Contexts {
    /// Any number: every caller compacts (Linux before 6.4).
    Concurrent,
    /// One: a second caller returns at once with nothing freed (Linux since 6.4).
    Single,
    /// One caller, which deals the size classes to as many threads as there are CPUs; a second
    /// caller returns at once. Allocators without size classes compact as in `Single`.
    #[default]
    Parallel,
}

impl Contexts {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Concurrent, Self::Single, Self::Parallel];

    /// Returns whether a second caller turns back where there are no size classes to deal out.
    pub(crate) fn is_single(self) -> bool {
        self != Self::Concurrent
    }

    /// Returns the name that `Display` prints.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Concurrent => "concurrent",
            Self::Single => "single",
            Self::Parallel => "parallel",
        }
    }
}

/// zsmalloc: when the memory of emptied zspages goes back to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Release {
    /// As soon as a zspage is empty, each by itself, as in the kernel.
    AtOnce,
    /// Many together, once there is enough to make a call of the system worth it: 1/64 of the
    /// memory in use, 256 KiB to 4 MiB.
    InBatches,
}

/// z3fold, `per-cpu`: which threads optimise the layout of pages and release emptied ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Upkeep {
    /// The caller of `free`, at once.
    #[default]
    Inline,
    /// Two threads of the pool's own, one for the layout and one for the release.
    /// [`crate::Pool::stats`] and [`crate::Pool::compact`] first do the work that waits for the
    /// first thread, so their figures are those of optimised pages.
    Workers,
}

/// Rules by which kernels of Linux differ from each other, and from what serves best, which is the
/// default: `zfold compare` and the laboratory set them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRules {
    /// zsmalloc: most pages of a zspage, 4 to 16. Default 8, as in Linux.
    pub chain: u32,
    /// zsmalloc: how the pages of a zspage are chosen.
    pub chooser: Chooser,
    /// zsmalloc: how zspages are grouped by fullness.
    pub grouping: Grouping,
    /// zsmalloc: the compaction algorithm.
    pub compaction: Compaction,
    /// zsmalloc: when the pages of a zspage get their memory.
    pub commit: Commit,
    /// How many compactions may run at a time. Default parallel.
    pub contexts: Contexts,
    /// zsmalloc: when emptied zspages go back to the system. `None`: at once, under the class's
    /// lock, with `hierarchical` (the kernel's way); in batches and outside all locks otherwise.
    pub release: Option<Release>,
    /// z3fold, per-cpu: which threads optimise layouts and release pages. Default inline.
    pub upkeep: Upkeep,
}

impl Default for KernelRules {
    /// Chain 8, new chooser, twelve groups, new compaction in parallel, pages committed lazily.
    fn default() -> Self {
        Self {
            chain: 8,
            chooser: Chooser::default(),
            grouping: Grouping::default(),
            compaction: Compaction::default(),
            commit: Commit::default(),
            contexts: Contexts::default(),
            release: None,
            upkeep: Upkeep::default(),
        }
    }
}

/// The options of a pool: public fields with defaults. Start from [`PoolOptions::new`], or from
/// `default()`, which is what stores have: fit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolOptions {
    /// The allocator.
    pub allocator: Allocator,
    /// Size of the pool's pages.
    pub page_size: PageSize,
    /// Which locks guard the pool. `None`: the best design that the other options allow, which is
    /// `per-cpu` for fit and for zsmalloc without reclaim, and `pool-lock` for all others.
    pub locking: Option<Locking>,
    /// per-cpu: number of shards, 1 to 256; a CPU beyond it shares one. `None`: as many as the
    /// process may use CPUs.
    pub cpus: Option<usize>,
    /// Whether pages are kept in the order of their last use, for [`crate::Pool::reclaim`]. Costs
    /// 12 bytes a page and some time for every object. Not with fit.
    pub reclaim: bool,
    /// Address space to reserve for pages, in bytes: the pool's largest size. Less is reserved
    /// if the system does not grant it (`ulimit -v`). Costs no memory. Default 1 TiB.
    pub arena_bytes: usize,
    /// Where memory comes from.
    pub source: Arc<dyn PageSource>,
    /// Rules in which kernels differ.
    pub rules: KernelRules,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self::new(Allocator::default())
    }
}

impl PoolOptions {
    /// Returns the defaults for `allocator`: 4 KiB pages, the best lock design, no reclaim, system
    /// memory, the default rules.
    #[must_use]
    pub fn new(allocator: Allocator) -> Self {
        Self {
            allocator,
            page_size: PageSize::default(),
            locking: None,
            cpus: None,
            reclaim: false,
            arena_bytes: 1 << 40,
            source: Arc::new(SystemPages),
            rules: KernelRules::default(),
        }
    }

    crate::builders! {
        with_page_size => page_size: PageSize,
        with_locking => locking: impl Into<Option<Locking>>,
        with_cpus => cpus: impl Into<Option<usize>>,
        with_reclaim => reclaim: bool,
        with_arena_bytes => arena_bytes: usize,
        with_source => source: Arc<dyn PageSource>,
        with_rules => rules: KernelRules,
    }

    /// Returns the lock design that a pool of these options has.
    #[must_use]
    pub fn locking(&self) -> Locking {
        self.locking.unwrap_or(match self.allocator {
            Allocator::Fit => Locking::PerCpu,
            Allocator::Zsmalloc if !self.reclaim => Locking::PerCpu,
            _ => Locking::PoolLock,
        })
    }
}
