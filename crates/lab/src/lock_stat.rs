//! The lock statistics of every lock design of every allocator, in the columns of the kernel's
//! `/proc/lock_stat`, and the cost of watching locks.
//!
//! Two threads insert, read and free objects of their own in one pool, in a fixed mix: a random
//! slot that is empty gets an object; the object of one that is not is read, compared and freed.

use std::fmt;

use zfold_compare::rng::SplitMix64;
use zfold_pool::{Allocator, LockStat, Locking, PoolOptions};

use crate::experiment::content::{Content, Keeper};
use crate::experiment::harness::{Samples, alternate, sized, together};
use crate::experiment::{Error, Progress, Settings};

/// Name of the experiment.
pub(crate) const NAME: &str = "lockstat";

/// Threads at work.
const WORKERS: u32 = 2;
/// Slots of a thread; half of them hold an object, on average.
const SLOTS: usize = 8 << 10;
/// Objects longer than this are left out: not every allocator takes one as long as a page.
const OBJECT_BYTES_MAX: usize = 3900;

/// An allocator and one of its lock designs.
struct Variant {
    allocator: Allocator,
    locking: Locking,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.allocator, self.locking)
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
    let content = Content::of_lens(0..=OBJECT_BYTES_MAX);
    let steps = sized(settings, 256 << 10, 64 << 10);
    let designs = |allocator| {
        Locking::of(allocator).iter().map(move |&locking| Variant { allocator, locking })
    };
    let variants: Vec<Variant> = Allocator::KERNEL.into_iter().flat_map(designs).collect();
    alternate(settings, progress, &variants, samples, |variant, repeat, samples| {
        let name = &variant.to_string();
        let seed = settings.seed.wrapping_add(repeat);
        let (rate, _) = mix(variant, &content, steps, seed, false)?;
        samples.push(name, WORKERS, "operations/s, not watched", "1/s", rate);
        let (rate, locks) = mix(variant, &content, steps, seed, true)?;
        samples.push(name, WORKERS, "operations/s, watched", "1/s", rate);
        samples.locks(name, WORKERS, &locks);
        Ok(())
    })
}

/// Returns the operations per second of all threads, and what the pool's locks counted from when
/// the threads began.
fn mix(
    variant: &Variant,
    content: &Content,
    steps: usize,
    seed: u64,
    watch: bool,
) -> Result<(f64, Vec<LockStat>), Error> {
    let mut options = PoolOptions::new(variant.allocator);
    options.locking = Some(variant.locking);
    let pool = &*zfold_pool::create(NAME, &options)?;
    pool.watch_locks(watch);
    let prepare = |worker: u32| {
        let rng = SplitMix64::new(seed.wrapping_add(u64::from(worker) << 32));
        Ok((Keeper::new(NAME, pool, SLOTS), rng))
    };
    let work = |_, (mut keeper, mut rng): (Keeper<'_>, SplitMix64)| {
        let mut operations = 0;
        for _ in 0..steps {
            let slot = rng.below(SLOTS as u64) as usize;
            if keeper.holds(slot) {
                keeper.check(slot)?;
                keeper.take(slot)?;
                operations += 2;
            } else {
                keeper.put(slot, content.object(rng.below(content.len() as u64) as usize))?;
                operations += 1;
            }
        }
        Ok(operations)
    };
    let (operations, time) = together(WORKERS, prepare, work)?;
    let rate = operations.iter().sum::<u64>() as f64 / time.as_secs_f64();
    Ok((rate, pool.lock_stats()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::{outcome, value};

    #[test]
    fn every_design_of_every_allocator_has_its_rows() {
        let outcome = outcome(NAME);
        assert_eq!(outcome.figures.len(), 7 * 14);
        for variant in ["zbud pool-lock", "z3fold per-cpu", "zsmalloc hierarchical"] {
            let value = |metric| value(&outcome, variant, metric);
            assert!(value("operations/s, watched") > 0.0);
            assert!(value("operations/s, not watched") > 0.0);
            assert!(value("acquisitions") >= 1.0);
            assert!(value("holdtime-max") >= value("holdtime-avg"));
            assert!(value("holdtime-total") > 0.0);
        }
    }
}
