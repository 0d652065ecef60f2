//! Compaction: many callers or one at a time, how long one call takes, and how many objects it
//! copies.
//!
//! After "zsmalloc: allow only one active pool compaction context" (2023) and, for the copies, the
//! kernel's change of the compaction algorithm and of the fullness groups in the same year:
//! - `pressure`: threads insert and free, and under memory pressure they and others call
//!   `compact`, as direct reclaim does. What the pool's locks count, and what it costs.
//! - `one_call`: a half of a pool is freed at random, then one call compacts it beside a thread
//!   that goes on working.
//! - `copies`: a synthetic test whose figure is a count and does not depend on the machine.

mod copies;
mod one_call;
mod pressure;

use super::content::{Content, Keeper};
use super::{Error, Outcome, Progress, Settings};
use crate::latency::Latency;
use crate::rng::SplitMix64;

/// Name of the experiment.
pub const NAME: &str = "compaction";

/// Shares of the time that the parts take, roughly, for progress.
const SHARES: [f64; 3] = [0.75, 0.2, 0.05];

/// Runs the experiment.
///
/// # Errors
/// [`Error`] when a pool cannot be made or refuses a call, or a byte comes back wrong.
pub fn run(settings: &Settings, progress: Progress<'_>) -> Result<Outcome, Error> {
    let content = &Content::all();
    let part = |place: usize| {
        let (before, own) = (SHARES[..place].iter().sum::<f64>(), SHARES[place]);
        move |what: &str, share: f64| progress(what, before + own * share)
    };
    let pressure = pressure::run(settings, content, &part(0))?;
    let one_call = one_call::run(settings, content, &part(1))?;
    let copies = copies::run(settings, content, &part(2))?;
    let figures = [
        pressure.figures(NAME, &pressure::PUBLISHED),
        one_call.figures(NAME, &[]),
        copies.figures(NAME, &copies::PUBLISHED),
    ];
    let remarks =
        [pressure::remarks(settings), one_call::remarks(settings), copies::remarks(settings)];
    Ok(Outcome {
        experiment: NAME,
        title: "compaction of a zsmalloc pool: how many at a time, how long, how many copies"
            .to_owned(),
        figures: figures.concat(),
        histograms: Vec::new(),
        remarks: remarks.concat(),
    })
}

/// A thread that works on objects of its own while others compact: it takes random slots, puts an
/// object into one that is empty, and reads, compares and frees that of one that is not.
struct Foreground<'a> {
    keeper: Keeper<'a>,
    slots: usize,
    content: &'a Content,
    rng: SplitMix64,
}

impl<'a> Foreground<'a> {
    /// Returns it with every other slot filled.
    fn new(
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
    fn step(&mut self, first: usize, count: usize, times: &mut Latency) -> Result<(), Error> {
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
fn p999_us(times: &Latency) -> f64 {
    times.summary().p999 as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::super::harness::Published;
    use super::super::harness::tests::{check_outcome, tiny};
    use super::*;

    #[test]
    fn all_parts_have_their_figures() {
        let told = std::sync::Mutex::new(Vec::new());
        let tell = |_: &str, share: f64| told.lock().unwrap().push(share);
        let outcome = run(&tiny(), &tell).unwrap();
        let published: Vec<Published> =
            pressure::PUBLISHED.into_iter().chain(copies::PUBLISHED).collect();
        check_outcome(&outcome, NAME, &published);
        let told = told.into_inner().unwrap();
        assert!(told.is_sorted() && told[0] == 0.0 && told[told.len() - 1] < 1.0, "{told:?}");
    }

    #[test]
    fn foreground_notices_a_wrong_byte() {
        let options = zfold_pool::PoolOptions::new(zfold_pool::Allocator::Zsmalloc);
        let pool = &*zfold_pool::create(NAME, &options).unwrap();
        let (content, mut times) = (Content::all(), Latency::new());
        let mut foreground = Foreground::new(pool, &content, 8, 1).unwrap();
        for _ in 0..100 {
            foreground.step(0, 4, &mut times).unwrap();
        }
        assert!(times.count() > 100);
        let wrong = foreground.keeper.overwrite_all(b"wrong");
        assert!(wrong > 0);
        let all = (0..100).try_for_each(|_| foreground.step(0, 4, &mut times));
        assert!(matches!(all, Err(Error::WrongBytes { experiment: NAME, .. })));
    }
}
