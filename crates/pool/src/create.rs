//! Creates pools from options: they are checked, memory is reserved, the allocator is put together
//! with its lock design.

use std::sync::Arc;

use crate::buddy::locking::per_cpu::Sharded;
use crate::buddy::locking::pool_lock::Locked;
use crate::buddy::z3fold::Z3fold;
use crate::buddy::zbud::Zbud;
use crate::fit::{self, Fit};
use crate::handle::Split;
use crate::memory::arena::{Arena, MAX_RUN_PAGES, UsedPages};
use crate::memory::source::SourceError;
use crate::options::error::ConfigError;
use crate::options::{Allocator, CPUS_MAX, Locking, PoolOptions};
use crate::pool::Pool;
use crate::sync::cpu;
use crate::zsmalloc::locking::class_index::ClassIndex;
use crate::zsmalloc::locking::hierarchical::Hierarchical;
use crate::zsmalloc::locking::per_cpu::PerCpu;
use crate::zsmalloc::locking::pool_lock::PoolLock;
use crate::zsmalloc::pool::Zsmalloc;
use crate::zsmalloc::tables::Tables;

/// Smallest arena that is worth having, in bytes.
const ARENA_BYTES_MIN: usize = 1 << 20;

/// Creates a pool.
///
/// # Errors
/// [`ConfigError`] if an option is out of range or no address space could be reserved.
///
/// # Cost
/// Address space of `arena_bytes` and a part of it for tables; memory only as objects come.
pub fn create(name: &str, options: &PoolOptions) -> Result<Box<dyn Pool>, ConfigError> {
    if !(4..=MAX_RUN_PAGES).contains(&options.rules.chain) {
        return Err(ConfigError::Chain(options.rules.chain));
    }
    let locking = options.locking();
    if !Locking::of(options.allocator).contains(&locking) {
        return Err(ConfigError::Locking(options.allocator, locking));
    }
    if options.reclaim && !options.allocator.has_reclaim() {
        return Err(ConfigError::Reclaim(options.allocator));
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
    let reserve = |bytes| options.source.reserve(bytes);
    let arena = || Ok(Arena::new(reserve(arena_bytes)?, options.page_size));
    let frames = arena_bytes / options.page_size.bytes();
    let (reclaim, contexts) = (options.reclaim, options.rules.contexts);
    Ok(match options.allocator {
        Allocator::Zbud => {
            Box::new(Locked::new(name, Zbud::new(arena()?, reclaim), reclaim, contexts))
        }
        Allocator::Z3fold if options.locking() == Locking::PerCpu => {
            build_sharded(name, options, arena_bytes)?
        }
        Allocator::Z3fold => {
            let records = reserve(Z3fold::records_range_bytes(frames))?;
            let core = Z3fold::new(arena()?, records, reclaim);
            Box::new(Locked::new(name, core, reclaim, contexts))
        }
        Allocator::Zsmalloc => {
            let arena = arena()?;
            let cells = reserve(Tables::cells_range_bytes(arena_bytes))?;
            let zspages = reserve(Tables::zspages_range_bytes(frames))?;
            match options.locking() {
                Locking::Hierarchical => {
                    Box::new(Zsmalloc::<Hierarchical>::new(name, arena, cells, zspages, options))
                }
                Locking::PoolLock => {
                    Box::new(Zsmalloc::<PoolLock>::new(name, arena, cells, zspages, options))
                }
                Locking::ClassIndex => {
                    Box::new(Zsmalloc::<ClassIndex>::new(name, arena, cells, zspages, options))
                }
                Locking::PerCpu => {
                    Box::new(Zsmalloc::<PerCpu>::new(name, arena, cells, zspages, options))
                }
            }
        }
        Allocator::Fit => build_fit(name, options, arena_bytes)?,
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
        let records = Z3fold::records_range_bytes(frames.min(Split::among(shards).indices() / 3));
        Ok(Z3fold::new(arena, options.source.reserve(records)?, false))
    };
    let cores = (0..shards).map(core).collect::<Result<_, SourceError>>()?;
    let pool = Sharded::new(name, cores, used, options.rules.contexts, options.rules.upkeep);
    Ok(Box::new(pool))
}

/// Creates a pool of fit, whose shards have a part of `arena_bytes` each; there are fewer of them
/// if the parts would be too small.
fn build_fit(
    name: &str,
    options: &PoolOptions,
    arena_bytes: usize,
) -> Result<Box<dyn Pool>, SourceError> {
    let shards = match options.locking() {
        Locking::PerCpu => options.cpus.unwrap_or_else(cpu::count).min(fit::SHARDS_MAX),
        _ => 1,
    };
    let shards = shards.min(arena_bytes / ARENA_BYTES_MIN);
    let bytes = (arena_bytes / shards) & !(options.page_size.bytes() - 1);
    let part = |_| {
        let arena = Arena::new(options.source.reserve(bytes)?, options.page_size);
        let cells = fit::cells_range_bytes(bytes, Split::among(shards).indices());
        Ok((arena, options.source.reserve(cells)?))
    };
    let parts = (0..shards).map(part).collect::<Result<_, SourceError>>()?;
    Ok(Box::new(Fit::new(name, parts, options.locking(), options.rules.contexts)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::KernelRules;

    #[test]
    fn options_out_of_range_are_refused() {
        let options = PoolOptions::new(Allocator::Zsmalloc);
        for chain in [0, 3, 17] {
            let rules = KernelRules { chain, ..options.rules };
            let wrong = options.clone().with_rules(rules);
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

    #[test]
    fn an_allocator_is_read_by_its_name() {
        for allocator in Allocator::ALL {
            assert_eq!(allocator.to_string().parse(), Ok(allocator));
        }
        let wrong = "slab".parse::<Allocator>().unwrap_err().to_string();
        assert_eq!(wrong, "unknown allocator 'slab' (choices: zbud, z3fold, zsmalloc, fit)");
    }
}
