//! The work that goes on while a pool is compacted.

use zfold_compare::latency::Latency;
use zfold_compare::rng::SplitMix64;

use crate::experiment::Error;
use crate::experiment::content::{Content, Keeper};

/// Name of the experiment.
pub const NAME: &str = "compaction";

/// A thread that works on objects of its own while others compact: it takes random slots, puts an
/// object into one that is empty, and reads, compares and frees that of one that is not.
pub(super) struct Foreground<'a> {
    pub(super) keeper: Keeper<'a>,
    slots: usize,
    pub(super) content: &'a Content,
    rng: SplitMix64,
}

impl<'a> Foreground<'a> {
    /// Returns it with every other slot filled.
    pub(super) fn new(
        pool: &'a dyn zfold_pool::Pool,
        content: &'a Content,
        slots: usize,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut keeper = Keeper::new(NAME, pool, slots);
        let mut rng = SplitMix64::new(seed);
        for slot in (0..slots).step_by(2) {
            keeper.put(slot, content.object(rng.below(content.len() as u64) as usize))?;
        }
        Ok(Self { keeper, slots, content, rng })
    }

    /// Works on one slot; an object that is put is one of `count` from the `first` on. Adds how
    /// long each call of the pool took.
    pub(super) fn step(
        &mut self,
        first: usize,
        count: usize,
        times: &mut Latency,
    ) -> Result<(), Error> {
        let slot = self.rng.below(self.slots as u64) as usize;
        if self.keeper.holds(slot) {
            timed(times, || self.keeper.check(slot))?;
            timed(times, || self.keeper.take(slot))
        } else {
            let object = self.content.object(first + self.rng.below(count as u64) as usize);
            timed(times, || self.keeper.put(slot, object))
        }
    }
}

fn timed(times: &mut Latency, call: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let start = std::time::Instant::now();
    let result = call();
    times.record(start.elapsed());
    result
}

/// Returns the 99.9th percentile in microseconds.
pub(super) fn p999_us(times: &Latency) -> f64 {
    times.summary().p999 as f64 / 1e3
}
