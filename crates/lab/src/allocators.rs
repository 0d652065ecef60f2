//! zbud, z3fold and zsmalloc under the swap traffic of a compiler: processor time, times of stores
//! and loads, and the pool's largest size.
//!
//! After "Analyzing zpool allocators / Removing zbud and z3fold" (2024): a kernel build in too
//! little memory, once on each allocator. Here the recorded traffic of one compiler is replayed
//! with its order and sizes, one event after the other and without codec. Pages beyond the limit
//! are refused, not written out.

use std::time::Instant;

use zfold_compare::latency::{Latency, Summary};
use zfold_compare::trace::{Event, Trace};
use zfold_pool::{AllocError, Allocator, Pool, PoolOptions};

use crate::experiment::content::{Content, Keeper, PAGE_BYTES, verify};
use crate::experiment::harness::{Published, Samples, alternate, cost_of, sized};
use crate::experiment::{Error, Progress, Settings};

/// Name of the experiment.
pub(crate) const NAME: &str = "allocators";

/// Most bytes of a pool: all pages of the trace fit.
const LIMIT_BYTES: u64 = 256 << 20;

/// In the order of the document.
const ALLOCATORS: [Allocator; 3] = [Allocator::Zsmalloc, Allocator::Zbud, Allocator::Z3fold];

pub(crate) const PUBLISHED: [Published; 12] = [
    ("zsmalloc", 1, "real", 111.304),
    ("zbud", 1, "real", 108.738),
    ("z3fold", 1, "real", 114.642),
    ("zsmalloc", 1, "user", 2850.116),
    ("zbud", 1, "user", 2842.952),
    ("z3fold", 1, "user", 2868.208),
    ("zsmalloc", 1, "sys", 6936.414),
    ("zbud", 1, "sys", 6688.184),
    ("z3fold", 1, "sys", 7243.930),
    ("zsmalloc", 1, "maximum pool size", 1_137_659_904.0),
    ("zbud", 1, "maximum pool size", 1_535_741_952.0),
    ("z3fold", 1, "maximum pool size", 1_151_303_680.0),
];

/// Runs the experiment.
///
/// # Errors
/// [`Error`] when a pool cannot be made or refuses a call, or a byte comes back wrong.
pub(crate) fn run(
    settings: &Settings,
    progress: Progress<'_>,
    samples: &mut Samples,
) -> Result<(), Error> {
    let (content, trace) = (Content::all(), Trace::builtin());
    let passes = sized(settings, 8, 1);
    alternate(settings, progress, &ALLOCATORS, samples, |&allocator, _, samples| {
        let name = allocator.name();
        let replay = || replay(allocator, &trace, &content, passes, LIMIT_BYTES);
        let (replayed, cost) = cost_of(replay)?;
        samples.cost(name, 1, cost);
        let peak = replayed.pool_bytes_peak as f64;
        samples.push(name, 1, "maximum pool size", "bytes", peak);
        samples.push(name, 1, "refused stores", "pages", replayed.refused as f64);
        for (what, times) in [("load", &replayed.loads), ("store", &replayed.stores)] {
            let Summary { p50, p90, p99, p999, .. } = times.summary();
            for (quantile, ns) in [("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p999)] {
                samples.push(name, 1, &format!("{what} {quantile}"), "us", ns as f64 / 1e3);
            }
            samples.times(format!("{allocator} {what}_ns"), times);
        }
        Ok(())
    })
}

/// What came of the trace in one allocator.
#[derive(Debug, Default)]
struct Replayed {
    stores: Latency,
    loads: Latency,
    /// In each pass.
    refused: u64,
    pool_bytes_peak: u64,
}

/// Replays the trace `passes` times, each in a new pool.
fn replay(
    allocator: Allocator,
    trace: &Trace,
    content: &Content,
    passes: usize,
    limit_bytes: u64,
) -> Result<Replayed, Error> {
    let mut all = Replayed::default();
    for _ in 0..passes {
        let pool = &*zfold_pool::create(NAME, &PoolOptions::new(allocator))?;
        let mut keeper = Keeper::new(NAME, pool, trace.slots());
        all.refused = 0;
        for (number, event) in trace.events().iter().enumerate() {
            let slot = event.slot();
            match *event {
                Event::Store { size: 0, .. } | Event::Invalidate { .. } => keeper.take(slot)?,
                Event::Store { size, .. } => {
                    keeper.take(slot)?;
                    let object = content.object_of_len(size.into(), number);
                    all.store(&mut keeper, pool, slot, object, limit_bytes)?;
                }
                Event::Load { .. } => all.load(&keeper, slot)?,
                Event::Rejected { .. } => {
                    all.refused += 1;
                    keeper.take(slot)?;
                }
            }
        }
        (0..trace.slots()).try_for_each(|slot| keeper.take(slot))?;
        let stats = pool.stats();
        if stats.pool_bytes() > 0 {
            let line = format!("{NAME}: {allocator} holds memory though everything was freed");
            return Err(Error::Other(line));
        }
        all.pool_bytes_peak = all.pool_bytes_peak.max(stats.pages_peak.bytes(stats.page_size));
    }
    Ok(all)
}

impl Replayed {
    /// Stores an object, unless it is too long for the pool or brings that above the limit.
    fn store<'a>(
        &mut self,
        keeper: &mut Keeper<'a>,
        pool: &dyn Pool,
        slot: usize,
        object: &'a [u8],
        limit_bytes: u64,
    ) -> Result<(), Error> {
        let start = Instant::now();
        match keeper.put(slot, object) {
            Err(Error::Alloc(AllocError::TooLong { .. })) => self.refused += 1,
            stored => {
                stored?;
                self.stores.record(start.elapsed());
                if pool.held_bytes() > limit_bytes {
                    self.refused += 1;
                    keeper.take(slot)?;
                    // The object's memory must not stay idle above the limit.
                    pool.compact(0);
                }
            }
        }
        Ok(())
    }

    /// Copies an object out of the pool, and compares it.
    fn load(&mut self, keeper: &Keeper<'_>, slot: usize) -> Result<(), Error> {
        let mut copy = [0; PAGE_BYTES];
        let start = Instant::now();
        let Some((found, object)) = keeper.read(slot)? else { return Ok(()) };
        let copy = &mut copy[..found.len()];
        copy.copy_from_slice(&found);
        drop(found);
        self.loads.record(start.elapsed());
        verify(NAME, object, copy, || format!("slot {slot}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::{outcome, value};

    #[test]
    fn every_allocator_has_its_figures_and_histograms() {
        let outcome = outcome(NAME);
        assert_eq!(outcome.figures.len(), 3 * 13);
        let names: Vec<&str> = outcome.histograms.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names[..2], ["zsmalloc load_ns", "zsmalloc store_ns"]);
        assert!(outcome.histograms.iter().all(|(_, times)| times.count() > 40_000));
        let peak = |allocator| value(&outcome, allocator, "maximum pool size");
        assert!(peak("zsmalloc") < peak("z3fold") && peak("z3fold") < peak("zbud"));
        assert_eq!(value(&outcome, "zbud", "refused stores"), 0.0);
        assert!(value(&outcome, "z3fold", "real") > 0.0);
        assert!(value(&outcome, "z3fold", "load p50") > 0.0);
        assert!(value(&outcome, "zbud", "store p99.9") >= value(&outcome, "zbud", "store p99"));
    }

    #[test]
    fn stores_beyond_the_limit_are_refused_and_counted() {
        let limit_bytes = 8 << 20;
        let (content, trace) = (Content::all(), Trace::builtin());
        let replayed = replay(Allocator::Zsmalloc, &trace, &content, 1, limit_bytes).unwrap();
        assert!(replayed.refused > 1000, "{}", replayed.refused);
        assert!(replayed.pool_bytes_peak <= limit_bytes, "{}", replayed.pool_bytes_peak);
    }
}
