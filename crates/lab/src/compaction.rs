//! Compaction: many callers or one at a time, and how long one call takes.
//!
//! After "zsmalloc: allow only one active pool compaction context" (2023). Under memory pressure
//! threads insert and free the objects of one program's pages, then of the next, so that size
//! classes empty while others grow. Whenever the pool holds more than its live objects, each of
//! them compacts every [`DIRECT`] steps, and eight more threads that do nothing else compact, too,
//! as direct reclaim does. Then one call compacts a pool of which a random half was freed, alone on
//! the machine: what dealing the classes to all CPUs gains.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use zfold_compare::latency::Latency;
use zfold_compare::rng::{SplitMix64, Xorshift64};
use zfold_pool::{Allocator, Contexts, Locking, Pool, PoolOptions};

use crate::experiment::content::{Content, Keeper, PAGE_BYTES};
use crate::experiment::harness::{Published, Samples, alternate, cost_of, sized, together};
use crate::experiment::{Error, Progress, Settings};

/// Name of the experiment.
pub(crate) const NAME: &str = "compaction";

/// Threads that insert and free.
const FOREGROUND: u32 = 2;
/// Threads that do nothing but compact.
const RECLAIMERS: u32 = 8;
const WORKERS: u32 = FOREGROUND + RECLAIMERS;
/// Slots of a foreground thread, half of them filled.
const SLOTS: usize = 32 << 10;
/// Steps of a foreground thread after which it compacts if there is pressure.
const DIRECT: usize = 256;
/// Pause of a reclaimer when there is no pressure.
const PAUSE: Duration = Duration::from_micros(100);
/// How often a foreground thread goes on to the next program's pages.
const PROGRAMS: usize = 20;

const BASE: &str = "pool-lock, concurrent";
const PATCHED: &str = "pool-lock, single";

pub(crate) const PUBLISHED: [Published; 30] = [
    (BASE, WORKERS, "con-bounces", 2_035_730.0),
    (PATCHED, WORKERS, "con-bounces", 1_540_066.0),
    (BASE, WORKERS, "contentions", 2_343_871.0),
    (PATCHED, WORKERS, "contentions", 1_774_348.0),
    (BASE, WORKERS, "waittime-min", 0.10),
    (PATCHED, WORKERS, "waittime-min", 0.10),
    (BASE, WORKERS, "waittime-max", 4_004_216.24),
    (PATCHED, WORKERS, "waittime-max", 2745.22),
    (BASE, WORKERS, "waittime-total", 101_334_168.29),
    (PATCHED, WORKERS, "waittime-total", 67_865_414.91),
    (BASE, WORKERS, "waittime-avg", 43.23),
    (PATCHED, WORKERS, "waittime-avg", 38.25),
    (BASE, WORKERS, "acq-bounces", 2_895_765.0),
    (PATCHED, WORKERS, "acq-bounces", 2_186_745.0),
    (BASE, WORKERS, "acquisitions", 6_247_686.0),
    (PATCHED, WORKERS, "acquisitions", 5_136_943.0),
    (BASE, WORKERS, "holdtime-min", 0.07),
    (PATCHED, WORKERS, "holdtime-min", 0.07),
    (BASE, WORKERS, "holdtime-max", 2_605_507.97),
    (PATCHED, WORKERS, "holdtime-max", 482_439.16),
    (BASE, WORKERS, "holdtime-total", 9_998_599.59),
    (PATCHED, WORKERS, "holdtime-total", 5_107_151.01),
    (BASE, WORKERS, "holdtime-avg", 1.60),
    (PATCHED, WORKERS, "holdtime-avg", 0.99),
    (BASE, WORKERS, "elapsed", 133.82),
    (PATCHED, WORKERS, "elapsed", 123.63),
    (BASE, WORKERS, "user", 2775.15),
    (PATCHED, WORKERS, "user", 2608.25),
    (BASE, WORKERS, "sys", 1709.13),
    (PATCHED, WORKERS, "sys", 1439.03),
];

/// A lock design, and how many compactions may run at a time.
struct Variant(Locking, Contexts);

impl Variant {
    fn pool(&self) -> Result<Box<dyn Pool>, Error> {
        let mut options = PoolOptions::new(Allocator::Zsmalloc);
        (options.locking, options.rules.contexts) = (Some(self.0), self.1);
        Ok(zfold_pool::create(NAME, &options)?)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.0, self.1)
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
    let content = &Content::all();
    let steps = sized(settings, 256 << 10, 16 << 10);
    let variants = [
        Variant(Locking::PoolLock, Contexts::Concurrent),
        Variant(Locking::PoolLock, Contexts::Single),
        Variant(Locking::PoolLock, Contexts::Parallel),
        Variant(Locking::PerCpu, Contexts::Parallel),
    ];
    let tell = |what: &str, share: f64| progress(what, share * 0.8);
    alternate(settings, &tell, &variants, samples, |variant, repeat, samples| {
        let pool = &*variant.pool()?;
        let pressure = Pressure::new(pool, content, steps, settings.seed.wrapping_add(repeat));
        pool.watch_locks(true);
        let ((times, elapsed), cost) = cost_of(|| pressure.run())?;
        // Of the pool's (or the CPUs') locks; not of the depot's, which the kernel has no part of.
        let mut locks = pool.lock_stats();
        locks.retain(|lock| lock.name != "depot");
        let name = &variant.to_string();
        samples.locks(name, WORKERS, &locks);
        for (metric, unit, value) in [
            ("elapsed", "s", elapsed.as_secs_f64()),
            ("user", "s", cost.user),
            ("sys", "s", cost.sys),
            ("pages compacted", "pages", pool.stats().pages_compacted_total as f64),
            ("foreground p99.9", "us", times.summary().p999 as f64 / 1e3),
        ] {
            samples.push(name, WORKERS, metric, unit, value);
        }
        Ok(())
    })?;
    let objects = sized(settings, (256 << 20) / PAGE_BYTES, (16 << 20) / PAGE_BYTES);
    let variants = [
        Variant(Locking::ClassIndex, Contexts::Single),
        Variant(Locking::ClassIndex, Contexts::Parallel),
        Variant(Locking::PerCpu, Contexts::Single),
        Variant(Locking::PerCpu, Contexts::Parallel),
    ];
    let tell = |what: &str, share: f64| progress(what, 0.8 + share * 0.2);
    alternate(settings, &tell, &variants, samples, |variant, repeat, samples| {
        let seed = settings.seed.wrapping_add(repeat);
        let (time, freed) = compact_half(&*variant.pool()?, content, objects, seed)?;
        let name = &variant.to_string();
        samples.push(name, 1, "compaction time", "ms", time.as_secs_f64() * 1e3);
        samples.push(name, 1, "pages freed", "pages", freed as f64);
        Ok(())
    })
}

/// Frees a random half of `objects` objects and compacts; returns how long that took and how many
/// pages it freed.
fn compact_half(
    pool: &dyn Pool,
    content: &Content,
    objects: usize,
    seed: u64,
) -> Result<(Duration, u64), Error> {
    let mut keeper = Keeper::new(NAME, pool, objects);
    (0..objects).try_for_each(|slot| keeper.put(slot, content.object(slot)))?;
    let order = Xorshift64::new(seed).permutation(objects);
    order[..objects / 2].iter().try_for_each(|&slot| keeper.take(slot))?;
    let start = Instant::now();
    let freed = pool.compact(u64::MAX);
    let time = start.elapsed();
    keeper.check_all()?;
    Ok((time, freed))
}

/// A thread that works on objects of its own while others compact: it takes random slots, puts an
/// object into one that is empty, and reads, compares and frees that of one that is not.
struct Foreground<'a> {
    keeper: Keeper<'a>,
    content: &'a Content,
    rng: SplitMix64,
    /// How long each call of the pool took.
    times: Latency,
}

impl<'a> Foreground<'a> {
    /// Returns it with every other slot filled.
    fn new(pool: &'a dyn Pool, content: &'a Content, seed: u64) -> Result<Self, Error> {
        let mut keeper = Keeper::new(NAME, pool, SLOTS);
        let mut rng = SplitMix64::new(seed);
        for slot in (0..SLOTS).step_by(2) {
            keeper.put(slot, content.object(rng.below(content.len() as u64) as usize))?;
        }
        Ok(Self { keeper, content, rng, times: Latency::new() })
    }

    /// Works on one slot; an object that is put is one of `count` from the `first` on.
    fn step(&mut self, first: usize, count: usize) -> Result<(), Error> {
        let slot = self.rng.below(SLOTS as u64) as usize;
        let start = Instant::now();
        if self.keeper.holds(slot) {
            self.keeper.check(slot)?;
            self.times.record(start.elapsed());
            let start = Instant::now();
            self.keeper.take(slot)?;
            self.times.record(start.elapsed());
        } else {
            let object = self.content.object(first + self.rng.below(count as u64) as usize);
            self.keeper.put(slot, object)?;
            self.times.record(start.elapsed());
        }
        Ok(())
    }
}

/// A run under way.
struct Pressure<'a> {
    pool: &'a dyn Pool,
    content: &'a Content,
    steps: usize,
    seed: u64,
    target_bytes: u64,
    /// Foreground threads that are not done.
    running: AtomicU32,
    /// They are all done.
    stop: AtomicBool,
}

impl<'a> Pressure<'a> {
    fn new(pool: &'a dyn Pool, content: &'a Content, steps: usize, seed: u64) -> Self {
        let live_bytes = FOREGROUND as usize * SLOTS / 2 * content.object_len_mean();
        let (running, stop) = (AtomicU32::new(FOREGROUND), AtomicBool::new(false));
        Self { pool, content, steps, seed, target_bytes: live_bytes as u64, running, stop }
    }

    /// Returns how long the calls of the foreground took, and how long all of its work.
    fn run(&self) -> Result<(Latency, Duration), Error> {
        let prepare = |worker: u32| {
            let seed = self.seed.wrapping_add(u64::from(worker) << 32);
            let works = worker < FOREGROUND;
            works.then(|| Foreground::new(self.pool, self.content, seed)).transpose()
        };
        let work = |_, foreground: Option<Foreground<'_>>| match foreground {
            Some(foreground) => {
                let _running = Running(self);
                self.work(foreground).map(Some)
            }
            None => {
                self.reclaim();
                Ok(None)
            }
        };
        let (times, elapsed) = together(WORKERS, prepare, work)?;
        let mut all = Latency::new();
        times.iter().flatten().for_each(|times| all.merge(times));
        Ok((all, elapsed))
    }

    fn work(&self, mut foreground: Foreground<'_>) -> Result<Latency, Error> {
        for step in 0..self.steps {
            // A fifth of the pages is of one program.
            let count = self.content.len() / 5;
            let first = step * PROGRAMS / self.steps * count;
            foreground.step(first, count)?;
            if step % DIRECT == DIRECT - 1 && self.is_under_pressure() {
                self.pool.compact(u64::MAX);
            }
        }
        foreground.keeper.check_all()?;
        Ok(foreground.times)
    }

    fn reclaim(&self) {
        // Relaxed: a request that may be seen one round later.
        while !self.stop.load(Ordering::Relaxed) {
            if self.is_under_pressure() {
                self.pool.compact_until(u64::MAX, &self.stop);
                std::thread::yield_now();
            } else {
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn is_under_pressure(&self) -> bool {
        self.pool.held_bytes() > self.target_bytes
    }
}

/// A foreground thread at work; the end of the last stops the reclaimers, also by an error or a
/// panic.
struct Running<'a>(&'a Pressure<'a>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Relaxed: the joining of the threads orders what they did.
        if self.0.running.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.stop.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::{outcome, value};

    #[test]
    fn both_parts_have_their_figures_and_compaction_frees_pages() {
        let outcome = outcome(NAME);
        assert!(value(&outcome, PATCHED, "elapsed") > 0.0);
        assert!(value(&outcome, "per-cpu, parallel", "compaction time") > 0.0);
        let pool = Variant(Locking::ClassIndex, Contexts::Parallel).pool().unwrap();
        let (time, freed) = compact_half(&*pool, &Content::all(), 8000, 1).unwrap();
        assert!(time > Duration::ZERO && freed > 100);
    }

    #[test]
    fn pressure_leads_to_compaction_and_all_threads_end() {
        let pool = &*Variant(Locking::PoolLock, Contexts::Single).pool().unwrap();
        let content = Content::all();
        let pressure = Pressure::new(pool, &content, 100_000, 1);
        let (times, elapsed) = pressure.run().unwrap();
        assert!(times.count() > 200_000 && elapsed > Duration::ZERO);
        assert!(pool.stats().pages_compacted_total > 0);
    }

    #[test]
    fn foreground_notices_a_wrong_byte() {
        let pool = &*Variant(Locking::PoolLock, Contexts::Single).pool().unwrap();
        let content = Content::all();
        let mut foreground = Foreground::new(pool, &content, 1).unwrap();
        (0..100).try_for_each(|_| foreground.step(0, 4)).unwrap();
        assert!(foreground.times.count() > 100);
        assert!(foreground.keeper.replace_all(b"wrong") > 0);
        let all = (0..100).try_for_each(|_| foreground.step(0, 4));
        assert!(matches!(all, Err(Error::WrongBytes { experiment: NAME, .. })));
    }
}
