//! Compaction under memory pressure, from many callers.
//!
//! Two threads insert and free the objects of one program's pages, then of the next, so that size
//! classes empty while others grow. Whenever the pool holds more than its target, each of them
//! compacts every [`DIRECT`] steps, and eight more threads that do nothing else compact, too.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use zfold_compare::latency::Latency;
use zfold_pool::{Allocator, Contexts, Locking, Pool, PoolOptions};

use super::foreground::{Foreground, NAME, p999_us};
use crate::experiment::content::Content;
use crate::experiment::harness::{
    COST_REMARK, Published, Samples, alternate, cost_of, sized, together,
};
use crate::experiment::locks::{rows, sum};
use crate::experiment::{Error, Progress, Settings};

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
/// There is pressure when the pool holds more than this share of the live objects' bytes, in
/// percent.
const TARGET_PERCENT: usize = 100;
/// How often a foreground thread goes on to the next program's pages.
const PROGRAMS: usize = 20;

const BASE: &str = "pool-lock, concurrent";
const PATCHED: &str = "pool-lock, single";
const WITHOUT: &str = "foreground p99.9 without compaction";

pub(super) const PUBLISHED: [Published; 30] = [
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

/// A lock design, and how many compactions may run at a time; `None`: there are none.
struct Variant {
    locking: Locking,
    contexts: Option<Contexts>,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contexts = self.contexts.map_or("no compaction", Contexts::name);
        write!(f, "{}, {contexts}", self.locking)
    }
}

pub(super) fn run(
    settings: &Settings,
    content: &Content,
    progress: Progress<'_>,
) -> Result<Samples, Error> {
    let variant = |locking, contexts| Variant { locking, contexts };
    let variants = [
        variant(Locking::PoolLock, Some(Contexts::Concurrent)),
        variant(Locking::PoolLock, Some(Contexts::Single)),
        variant(Locking::PoolLock, Some(Contexts::Parallel)),
        variant(Locking::PerCpu, Some(Contexts::Parallel)),
        variant(Locking::PoolLock, None),
        variant(Locking::PerCpu, None),
    ];
    let steps = steps(settings);
    alternate(settings, progress, &variants, |variant, repeat, samples| {
        let mut options = PoolOptions::new(Allocator::Zsmalloc);
        options.locking = Some(variant.locking);
        options.rules.contexts = variant.contexts.unwrap_or_default();
        let pool = &*zfold_pool::create(NAME, &options)?;
        let seed = settings.seed.wrapping_add(repeat);
        let pressure = Pressure::new(pool, content, steps, seed);
        let name = &variant.to_string();
        if variant.contexts.is_none() {
            let (times, _) = pressure.run(FOREGROUND)?;
            samples.push(name, FOREGROUND, WITHOUT, "us", p999_us(&times));
            return Ok(());
        }
        pool.watch_locks(true);
        let ((times, elapsed), cost) = cost_of(|| pressure.run(WORKERS))?;
        // Of the pool's (or the CPUs') locks; not of the depot's, which the kernel has no part of.
        let mut locks = pool.lock_stats();
        locks.retain(|lock| lock.name != "depot");
        for (row, unit, value) in rows(&sum(&locks)) {
            samples.push(name, WORKERS, row, unit, value);
        }
        let compacted = pool.stats().pages_compacted_total as f64;
        for (metric, unit, value) in [
            ("elapsed", "s", elapsed.as_secs_f64()),
            ("user", "s", cost.user),
            ("sys", "s", cost.sys),
            ("pages compacted", "pages", compacted),
            ("foreground p99.9", "us", p999_us(&times)),
        ] {
            samples.push(name, WORKERS, metric, unit, value);
        }
        Ok(())
    })
}

/// Steps of each foreground thread.
fn steps(settings: &Settings) -> usize {
    sized(settings, 256 << 10, 16 << 10)
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
        Self {
            pool,
            content,
            steps,
            seed,
            target_bytes: (live_bytes * TARGET_PERCENT / 100) as u64,
            running: AtomicU32::new(FOREGROUND),
            stop: AtomicBool::new(false),
        }
    }

    /// Runs the foreground and as many reclaimers as there are more `workers`. Returns how long
    /// the calls of the foreground took, and how long all of its work.
    fn run(&self, workers: u32) -> Result<(Latency, Duration), Error> {
        let prepare = |worker: u32| {
            let seed = self.seed.wrapping_add(u64::from(worker) << 32);
            let works = worker < FOREGROUND;
            works.then(|| Foreground::new(self.pool, self.content, SLOTS, seed)).transpose()
        };
        let direct = workers > FOREGROUND;
        let work = |_, foreground: Option<Foreground<'_>>| match foreground {
            Some(foreground) => {
                let _running = Running(self);
                self.work(foreground, direct).map(Some)
            }
            None => {
                self.reclaim();
                Ok(None)
            }
        };
        let (times, elapsed) = together(workers, prepare, work)?;
        let mut all = Latency::new();
        times.iter().flatten().for_each(|times| all.merge(times));
        Ok((all, elapsed))
    }

    fn work(&self, mut foreground: Foreground<'_>, direct: bool) -> Result<Latency, Error> {
        let mut times = Latency::new();
        for step in 0..self.steps {
            // A fifth of the pages is of one program.
            let count = self.content.len() / 5;
            let first = step * PROGRAMS / self.steps * count;
            foreground.step(first, count, &mut times)?;
            if direct && step % DIRECT == DIRECT - 1 && self.is_under_pressure() {
                self.pool.compact(u64::MAX);
            }
        }
        foreground.keeper.check_all()?;
        Ok(times)
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

pub(super) fn remarks(settings: &Settings) -> Vec<String> {
    vec![
        format!(
            "Under pressure: {FOREGROUND} threads take {} steps each on {SLOTS} slots (insert, or \
             read, compare and free), objects of five programs in turn. When the pool holds more \
             than {TARGET_PERCENT} % of its live bytes, each compacts every {DIRECT} steps and \
             {RECLAIMERS} other threads do so again and again, and look every {} us otherwise.",
            steps(settings),
            PAUSE.as_micros(),
        ),
        "Locks are watched, and their rows are of the pool's lock, or sums over the CPUs' locks. \
         Published are lock statistics and times of make -j73 on 72 CPUs that swaps: the document \
         calls it terribly noisy."
            .to_owned(),
        "foreground p99.9 is of single inserts, reads with comparison, and frees; the compactions \
         that the foreground itself calls are in elapsed only. More threads than CPUs share them \
         in turns, and what a thread waits for its turn is in these times."
            .to_owned(),
        COST_REMARK.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_leads_to_compaction_and_an_error_ends_all_threads() {
        let content = Content::all();
        let options = PoolOptions::new(Allocator::Zsmalloc);
        let pool = &*zfold_pool::create(NAME, &options).unwrap();
        let pressure = Pressure::new(pool, &content, 100_000, 1);
        let (times, elapsed) = pressure.run(WORKERS).unwrap();
        assert!(times.count() > 200_000 && elapsed > Duration::ZERO);
        assert!(pool.stats().pages_compacted_total > 0);
    }
}
