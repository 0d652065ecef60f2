//! Freeing all at once from several threads: what the exit of processes does to compressed swap.
//!
//! After "mm/zsmalloc: reduce lock contention in zs_free()" (2026): each process has 256 MiB
//! swapped out, then all unmap them at once. Here each worker inserts its pages' objects into one
//! pool, at the same time as the others and in turns of 32, as swap-out does, so that objects of
//! different workers lie in one zspage; it compares every byte; and then all free all of theirs.
//! Base is the hierarchical design, the kernel's of that time, which gives every emptied zspage
//! back at once under the class's lock; class-index is the design of the series. Two more variants
//! separate the effect of the locks from that of releasing memory in batches.

use std::fmt;

use zfold_pool::{Allocator, Locking, PoolOptions, Release};

use crate::experiment::content::{Content, Keeper, PAGE_BYTES};
use crate::experiment::harness::{Published, Samples, alternate, sized, together};
use crate::experiment::{Error, Progress, Settings};

/// Name of the experiment.
pub(crate) const NAME: &str = "free";

/// Objects that a worker inserts before it lets others go on: pages that the kernel swaps out in
/// one go.
const TURN: usize = 32;

const SPEED_UP: &str = "speed-up over hierarchical";

pub(crate) const PUBLISHED: [Published; 9] = [
    ("hierarchical", 1, "time", 59.0),
    ("class-index", 1, "time", 56.0),
    ("hierarchical", 2, "time", 94.6),
    ("class-index", 2, "time", 66.7),
    ("hierarchical", 4, "time", 202.9),
    ("class-index", 4, "time", 110.6),
    ("class-index", 1, SPEED_UP, 1.05),
    ("class-index", 2, SPEED_UP, 1.42),
    ("class-index", 4, SPEED_UP, 1.83),
];

/// Designs in the order of the tables: name, design, and how it gives memory back if that is not
/// its own way.
const DESIGNS: [(&str, Locking, Option<Release>); 6] = [
    ("hierarchical", Locking::Hierarchical, None),
    ("hierarchical, in batches", Locking::Hierarchical, Some(Release::InBatches)),
    ("pool-lock", Locking::PoolLock, None),
    ("class-index, at once", Locking::ClassIndex, Some(Release::AtOnce)),
    ("class-index", Locking::ClassIndex, None),
    ("per-cpu", Locking::PerCpu, None),
];

/// A lock design and how many threads use it.
struct Variant {
    name: &'static str,
    locking: Locking,
    release: Option<Release>,
    workers: u32,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.workers == 1 { "" } else { "s" };
        write!(f, "{}, {} worker{s}", self.name, self.workers)
    }
}

/// Runs the experiment.
///
/// # Errors
/// [`Error`] when a pool cannot be made or refuses a call, or a byte comes back wrong.
pub(crate) fn run(
    settings: &Settings,
    progress: Progress<'_>,
    samples: &mut Samples,
) -> Result<(), Error> {
    let content = Content::all();
    let objects = sized(settings, (256 << 20) / PAGE_BYTES, (16 << 20) / PAGE_BYTES);
    let with = |workers: u32| {
        DESIGNS.map(|(name, locking, release)| Variant { name, locking, release, workers })
    };
    let variants: Vec<Variant> = worker_counts().into_iter().flat_map(with).collect();
    alternate(settings, progress, &variants, samples, |variant, _, samples| {
        let time = free_all(variant, &content, objects)?;
        samples.push(variant.name, variant.workers, "time", "ms", time * 1e3);
        Ok(())
    })?;
    add_speed_ups(samples, &variants);
    Ok(())
}

/// Returns 1, 2, 4 and the number of CPUs, ascending.
fn worker_counts() -> Vec<u32> {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    let mut counts = vec![1, 2, 4, cpus];
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Returns the seconds from when all workers begin to free until the last has freed its `objects`
/// objects.
fn free_all(variant: &Variant, content: &Content, objects: usize) -> Result<f64, Error> {
    let mut options = PoolOptions::new(Allocator::Zsmalloc);
    (options.locking, options.rules.release) = (Some(variant.locking), variant.release);
    let pool = &*zfold_pool::create(NAME, &options)?;
    let prepare = |worker: u32| {
        let mut keeper = Keeper::new(NAME, pool, objects);
        for slot in 0..objects {
            keeper.put(slot, content.object(worker as usize * objects + slot))?;
            if slot % TURN == TURN - 1 {
                std::thread::yield_now();
            }
        }
        keeper.check_all()?;
        Ok(keeper)
    };
    // The keepers are returned, so that dropping them takes none of the time.
    let free = |_, mut keeper| {
        (0..objects).try_for_each(|slot| Keeper::take(&mut keeper, slot))?;
        Ok(keeper)
    };
    let (_, time) = together(variant.workers, prepare, free)?;
    let left = pool.stats().objects;
    if left > 0 {
        return Err(Error::Other(format!("{NAME}: {left} objects are left in {variant}")));
    }
    Ok(time.as_secs_f64())
}

/// Adds the ratio of the base's time in the same repeat to each time.
fn add_speed_ups(samples: &mut Samples, variants: &[Variant]) {
    for variant in variants {
        let (name, workers) = (variant.name, variant.workers);
        let base = samples.repeats(DESIGNS[0].0, workers, "time").iter();
        let ratios: Vec<f64> = base
            .zip(samples.repeats(name, workers, "time"))
            .map(|(base, time)| base / time)
            .collect();
        for ratio in ratios {
            samples.push(name, workers, SPEED_UP, "x", ratio);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::{outcome, value};

    #[test]
    fn every_design_has_a_time_and_a_speed_up() {
        let outcome = outcome(NAME);
        assert_eq!(outcome.figures.len(), 2 * DESIGNS.len() * worker_counts().len());
        assert_eq!(value(&outcome, "hierarchical", SPEED_UP), 1.0);
        assert!(outcome.figures.iter().all(|figure| figure.value > 0.0));
    }
}
