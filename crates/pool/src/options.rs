//! Options: which allocator, of which geometry, on which memory; and how a pool is made of them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::contract::Pool;
use crate::cpu;
use crate::frames::arena::{Arena, MAX_RUN_PAGES, UsedPages};
use crate::frames::source::{PageSource, SourceError, SystemPages};
use crate::locking::{Contexts, Locking, Release, Upkeep};
use crate::sharded::{Sharded, core_indices};
use crate::shell::Locked;
use crate::units::PageSize;
use crate::z3fold::Z3fold;
use crate::zbud::Zbud;
use crate::zsmalloc;
use crate::zsmalloc::compact::Compaction;
use crate::zsmalloc::design::class_index::ClassIndex;
use crate::zsmalloc::design::hierarchical::Hierarchical;
use crate::zsmalloc::design::per_cpu::PerCpu;
use crate::zsmalloc::design::pool_lock::PoolLock;
use crate::zsmalloc::fullness::Grouping;
use crate::zsmalloc::geometry::Chooser;
use crate::zsmalloc::zspage::Commit;

/// Smallest arena that is worth having, in bytes.
const ARENA_BYTES_MIN: usize = 1 << 20;

/// Most shards of a per-CPU design.
pub(crate) const CPUS_MAX: usize = 256;

/// The allocators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Allocator {
    /// Two objects a page.
    Zbud,
    /// Three objects a page.
    Z3fold,
    /// Objects of one size class packed across page borders.
    Zsmalloc,
}

impl Allocator {
    /// All allocators.
    pub const ALL: [Self; 3] = [Self::Zbud, Self::Z3fold, Self::Zsmalloc];

    /// Returns the name that `Display` prints and `FromStr` reads.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Zbud => "zbud",
            Self::Z3fold => "z3fold",
            Self::Zsmalloc => "zsmalloc",
        }
    }
}

impl fmt::Display for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Allocator {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        let found = Self::ALL.into_iter().find(|allocator| allocator.name() == name);
        found.ok_or_else(|| ConfigError::UnknownAllocator(name.to_owned()))
    }
}

/// What a pool is made of: public fields with defaults. Start from [`PoolOptions::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolOptions {
    /// The allocator.
    pub allocator: Allocator,
    /// Size of the pool's pages.
    pub page_size: PageSize,
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
    /// Which locks guard the pool. `None`: the best design that the other options allow, which is
    /// `per-cpu` for zsmalloc without reclaim and `pool-lock` for all others.
    pub locking: Option<Locking>,
    /// How many compactions may run at a time. Default parallel.
    pub contexts: Contexts,
    /// zsmalloc: when emptied zspages go back to the system. `None`: at once, under the class's
    /// lock, with `hierarchical` (the kernel's way); in batches and outside all locks otherwise.
    pub release: Option<Release>,
    /// z3fold, per-cpu: who optimises layouts and releases pages. Default inline.
    pub upkeep: Upkeep,
    /// per-cpu: number of shards, 1 to 256; a CPU beyond it shares one. `None`: as many as the
    /// process may use CPUs.
    pub cpus: Option<usize>,
    /// Whether pages are kept in the order of their last use, for [`Pool::reclaim`]. Costs 12
    /// bytes a page and some time for every write.
    pub reclaim: bool,
    /// Address space to reserve for pages, in bytes: the pool's largest size. Less is reserved
    /// if the system does not grant it (`ulimit -v`). Costs no memory. Default 1 TiB.
    pub arena_bytes: usize,
    /// Where memory comes from.
    pub source: Arc<dyn PageSource>,
}

impl PoolOptions {
    /// Returns the defaults for `allocator`: 4 KiB pages, chain 8, new chooser, twelve groups,
    /// new compaction in parallel, pages committed lazily, the best lock design, no reclaim,
    /// system memory.
    #[must_use]
    pub fn new(allocator: Allocator) -> Self {
        Self {
            allocator,
            page_size: PageSize::default(),
            chain: 8,
            chooser: Chooser::default(),
            grouping: Grouping::default(),
            compaction: Compaction::default(),
            commit: Commit::default(),
            locking: None,
            contexts: Contexts::default(),
            release: None,
            upkeep: Upkeep::default(),
            cpus: None,
            reclaim: false,
            arena_bytes: 1 << 40,
            source: Arc::new(SystemPages),
        }
    }

    crate::builders! {
        with_page_size => page_size: PageSize,
        with_chain => chain: u32,
        with_chooser => chooser: Chooser,
        with_grouping => grouping: Grouping,
        with_compaction => compaction: Compaction,
        with_commit => commit: Commit,
        with_locking => locking: impl Into<Option<Locking>>,
        with_contexts => contexts: Contexts,
        with_release => release: impl Into<Option<Release>>,
        with_upkeep => upkeep: Upkeep,
        with_cpus => cpus: impl Into<Option<usize>>,
        with_reclaim => reclaim: bool,
        with_arena_bytes => arena_bytes: usize,
        with_source => source: Arc<dyn PageSource>,
    }

    /// Returns the lock design that a pool of these options has.
    #[must_use]
    pub fn locking(&self) -> Locking {
        self.locking.unwrap_or(match self.allocator {
            Allocator::Zsmalloc if !self.reclaim => Locking::PerCpu,
            _ => Locking::PoolLock,
        })
    }
}

/// Why a pool was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// No allocator of this name.
    UnknownAllocator(String),
    /// No chooser of this name.
    UnknownChooser(String),
    /// No lock design of this name.
    UnknownLocking(String),
    /// No compaction contexts of this name.
    UnknownContexts(String),
    /// The allocator has no such lock design.
    Locking(Allocator, Locking),
    /// Reclaim keeps an age order of the whole pool, which only one lock of the pool can guard.
    ReclaimLocking(Locking),
    /// A pool has 1 to 256 shards.
    Cpus(usize),
    /// A zspage has 4 to 16 pages at most.
    Chain(u32),
    /// The arena is smaller than 1 MiB.
    ArenaTooSmall(usize),
    /// Not even the smallest arena could be reserved.
    Source(SourceError),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownAllocator(name) => {
                let choices = Allocator::ALL.map(Allocator::name).join(", ");
                write!(f, "unknown allocator '{name}' (choices: {choices})")
            }
            Self::UnknownChooser(name) => {
                let choices = Chooser::ALL.map(Chooser::name).join(", ");
                write!(f, "unknown chooser '{name}' (choices: {choices})")
            }
            Self::UnknownLocking(name) => {
                let choices = Locking::ALL.map(Locking::name).join(", ");
                write!(f, "unknown lock design '{name}' (choices: {choices})")
            }
            Self::UnknownContexts(name) => {
                let choices = Contexts::ALL.map(Contexts::name).join(", ");
                write!(f, "unknown compaction contexts '{name}' (choices: {choices})")
            }
            Self::Locking(allocator, locking) => {
                let designs: Vec<_> = Locking::of(*allocator).iter().map(|l| l.name()).collect();
                write!(
                    f,
                    "{allocator} has no lock design {locking} (it has {})",
                    designs.join(", ")
                )
            }
            Self::ReclaimLocking(locking) => {
                write!(f, "reclaim needs the lock design pool-lock, not {locking}")
            }
            Self::Cpus(cpus) => write!(f, "{cpus} shards are not in 1 to {CPUS_MAX}"),
            Self::Chain(chain) => write!(f, "a chain of {chain} pages is not in 4 to 16"),
            Self::ArenaTooSmall(bytes) => {
                write!(f, "an arena of {bytes} bytes is too small (at least 1 MiB)")
            }
            Self::Source(source) => write!(f, "cannot reserve an arena: {source}"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Creates a pool.
///
/// # Errors
/// [`ConfigError`] if an option is out of range or no address space could be reserved.
///
/// # Cost
/// Address space of `arena_bytes` and a part of it for tables; memory only as objects come.
pub fn create(name: &str, options: &PoolOptions) -> Result<Box<dyn Pool>, ConfigError> {
    if !(4..=MAX_RUN_PAGES).contains(&options.chain) {
        return Err(ConfigError::Chain(options.chain));
    }
    let locking = options.locking();
    if !Locking::of(options.allocator).contains(&locking) {
        return Err(ConfigError::Locking(options.allocator, locking));
    }
    if options.reclaim && locking != Locking::PoolLock {
        return Err(ConfigError::ReclaimLocking(locking));
    }
    if let Some(cpus) = options.cpus.filter(|cpus| !(1..=CPUS_MAX).contains(cpus)) {
        return Err(ConfigError::Cpus(cpus));
    }
    let mut arena_bytes = options.arena_bytes & !(options.page_size.bytes() - 1);
    if arena_bytes < ARENA_BYTES_MIN {
        return Err(ConfigError::ArenaTooSmall(options.arena_bytes));
    }
    loop {
        match build(name, options, arena_bytes) {
            Ok(pool) => return Ok(pool),
            Err(error) if arena_bytes / 2 < ARENA_BYTES_MIN => {
                return Err(ConfigError::Source(error));
            }
            Err(_) => arena_bytes /= 2,
        }
    }
}

/// Creates a pool over an arena of exactly `arena_bytes`.
fn build(
    name: &str,
    options: &PoolOptions,
    arena_bytes: usize,
) -> Result<Box<dyn Pool>, SourceError> {
    if options.allocator == Allocator::Z3fold && options.locking() == Locking::PerCpu {
        return build_sharded(name, options, arena_bytes);
    }
    let reserve = |bytes| options.source.reserve(bytes);
    let arena = Arena::new(reserve(arena_bytes)?, options.page_size);
    let frames = arena_bytes / options.page_size.bytes();
    let (reclaim, contexts) = (options.reclaim, options.contexts);
    Ok(match options.allocator {
        Allocator::Zbud => {
            Box::new(Locked::new(name, Zbud::new(arena, reclaim), reclaim, contexts))
        }
        Allocator::Z3fold => {
            let records = reserve(Z3fold::records_range_bytes(frames))?;
            let core = Z3fold::new(arena, records, reclaim);
            Box::new(Locked::new(name, core, reclaim, contexts))
        }
        Allocator::Zsmalloc => {
            let cells = reserve(zsmalloc::cells_range_bytes(arena_bytes))?;
            let zspages = reserve(zsmalloc::zspages_range_bytes(frames))?;
            match options.locking() {
                Locking::Hierarchical => Box::new(zsmalloc::Zsmalloc::<Hierarchical>::new(
                    name, arena, cells, zspages, options,
                )),
                Locking::PoolLock => Box::new(zsmalloc::Zsmalloc::<PoolLock>::new(
                    name, arena, cells, zspages, options,
                )),
                Locking::ClassIndex => Box::new(zsmalloc::Zsmalloc::<ClassIndex>::new(
                    name, arena, cells, zspages, options,
                )),
                Locking::PerCpu => Box::new(zsmalloc::Zsmalloc::<PerCpu>::new(
                    name, arena, cells, zspages, options,
                )),
            }
        }
    })
}

/// Creates a pool of one z3fold for every CPU, each over its part of `arena_bytes`; there are
/// fewer of them if the parts would be too small.
fn build_sharded(
    name: &str,
    options: &PoolOptions,
    arena_bytes: usize,
) -> Result<Box<dyn Pool>, SourceError> {
    let cpus = options.cpus.unwrap_or_else(cpu::count).min(CPUS_MAX);
    let shards = cpus.min(arena_bytes / ARENA_BYTES_MIN);
    let frames = arena_bytes / shards / options.page_size.bytes();
    let used = Arc::new(UsedPages::default());
    let core = |_| {
        let range = options.source.reserve(frames * options.page_size.bytes())?;
        let arena = Arena::new(range, options.page_size).counted_in(Arc::clone(&used));
        // Three objects a frame, as long as there are indices for them.
        let records = Z3fold::records_range_bytes(frames.min(core_indices(shards) / 3));
        Ok(Z3fold::new(arena, options.source.reserve(records)?, false))
    };
    let cores = (0..shards).map(core).collect::<Result<_, SourceError>>()?;
    let pool = Sharded::new(name, cores, used, options.contexts, options.upkeep);
    Ok(Box::new(pool))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_wrong_ones_answered_with_the_choices() {
        for allocator in Allocator::ALL {
            assert_eq!(allocator.name().parse(), Ok(allocator));
        }
        assert_eq!(
            "slab".parse::<Allocator>().unwrap_err().to_string(),
            "unknown allocator 'slab' (choices: zbud, z3fold, zsmalloc)"
        );
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let options = PoolOptions::new(Allocator::Zsmalloc);
        for chain in [0, 3, 17] {
            let wrong = PoolOptions { chain, ..options.clone() };
            assert_eq!(create("test", &wrong).unwrap_err(), ConfigError::Chain(chain));
        }
        let small = PoolOptions { arena_bytes: 4096, ..options };
        assert_eq!(create("test", &small).unwrap_err(), ConfigError::ArenaTooSmall(4096));
    }

    #[test]
    fn an_arena_that_cannot_be_reserved_is_made_smaller() {
        let mut options = PoolOptions::new(Allocator::Zsmalloc);
        options.arena_bytes = 1 << 60;
        let pool = create("test", &options).unwrap();
        assert!(pool.insert(b"fits").is_ok());
    }
}
