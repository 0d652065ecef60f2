//! One compaction of a pool of which a random half was freed: alone on the machine, for its time;
//! and beside a thread that goes on working on objects of its own, for what that notices.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use zfold_compare::latency::Latency;
use zfold_compare::rng::Xorshift64;
use zfold_pool::{Allocator, Contexts, Locking, Pool, PoolOptions};

use super::foreground::{Foreground, NAME, p999_us};
use crate::experiment::content::{Content, Keeper, PAGE_BYTES};
use crate::experiment::harness::{Samples, alternate, sized};
use crate::experiment::{Error, Progress, Settings};

/// Slots of the thread that goes on working.
const SLOTS: usize = 4 << 10;
/// How long it works before the compaction, for comparison.
const BEFORE: Duration = Duration::from_millis(50);

/// The one that compacts and the one that goes on working.
const THREADS: u32 = 2;

const DURING: &str = "foreground p99.9 during one compaction";
const BEFORE_IT: &str = "foreground p99.9 before it";

/// What the other thread goes through.
const PHASE_BEFORE: u8 = 0;
const PHASE_DURING: u8 = 1;
const PHASE_AFTER: u8 = 2;

struct Variant {
    locking: Locking,
    contexts: Contexts,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.locking, self.contexts)
    }
}

/// A pool of which a random half was freed.
struct HalfFreed<'a> {
    pool: &'a dyn Pool,
    keeper: Keeper<'a>,
}

pub(super) fn run(
    settings: &Settings,
    content: &Content,
    progress: Progress<'_>,
) -> Result<Samples, Error> {
    let designs = [Locking::ClassIndex, Locking::PerCpu];
    let with = |locking| {
        [Contexts::Single, Contexts::Parallel].map(|contexts| Variant { locking, contexts })
    };
    let variants: Vec<Variant> = designs.into_iter().flat_map(with).collect();
    alternate(settings, progress, &variants, |variant, repeat, samples| {
        let mut options = PoolOptions::new(Allocator::Zsmalloc);
        options.locking = Some(variant.locking);
        options.rules.contexts = variant.contexts;
        let seed = settings.seed.wrapping_add(repeat);
        let (name, objects) = (&variant.to_string(), objects(settings));
        let alone = zfold_pool::create(NAME, &options)?;
        let (time, freed) = HalfFreed::new(&*alone, content, objects, seed)?.compact()?;
        samples.push(name, 1, "compaction time", "ms", time.as_secs_f64() * 1e3);
        samples.push(name, 1, "pages freed", "pages", freed as f64);
        drop(alone);
        let pool = zfold_pool::create(NAME, &options)?;
        let half_freed = HalfFreed::new(&*pool, content, objects, seed)?;
        let (without, during) = half_freed.compact_beside(content, seed)?;
        samples.push(name, THREADS, DURING, "us", p999_us(&during));
        samples.push(name, THREADS, BEFORE_IT, "us", p999_us(&without));
        Ok(())
    })
}

fn objects(settings: &Settings) -> usize {
    sized(settings, (256 << 20) / PAGE_BYTES, (16 << 20) / PAGE_BYTES)
}

impl<'a> HalfFreed<'a> {
    fn new(
        pool: &'a dyn Pool,
        content: &'a Content,
        objects: usize,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut keeper = Keeper::new(NAME, pool, objects);
        (0..objects).try_for_each(|slot| keeper.put(slot, content.object(slot)))?;
        let order = Xorshift64::new(seed).permutation(objects);
        order[..objects / 2].iter().try_for_each(|&slot| keeper.take(slot))?;
        Ok(Self { pool, keeper })
    }

    /// Compacts; returns how long that took and what it freed.
    fn compact(self) -> Result<(Duration, u64), Error> {
        let start = Instant::now();
        let freed = self.pool.compact(u64::MAX);
        let time = start.elapsed();
        self.keeper.check_all()?;
        Ok((time, freed))
    }

    /// Compacts beside another thread; returns how long its calls took before and meanwhile.
    fn compact_beside(self, content: &Content, seed: u64) -> Result<(Latency, Latency), Error> {
        let foreground = Foreground::new(self.pool, content, SLOTS, seed)?;
        let phase = &AtomicU8::new(PHASE_BEFORE);
        let beside = std::thread::scope(|scope| {
            let beside = scope.spawn(move || work_beside(foreground, phase));
            std::thread::sleep(BEFORE);
            // Relaxed: a phase that may be seen one call later.
            phase.store(PHASE_DURING, Ordering::Relaxed);
            self.pool.compact(u64::MAX);
            phase.store(PHASE_AFTER, Ordering::Relaxed);
            beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        self.keeper.check_all()?;
        beside
    }
}

/// Works until the compaction is over, and takes at least one step meanwhile. Returns how long its
/// calls took before and during the compaction.
fn work_beside(
    mut foreground: Foreground<'_>,
    phase: &AtomicU8,
) -> Result<(Latency, Latency), Error> {
    let (mut before, mut during) = (Latency::new(), Latency::new());
    loop {
        let times = match phase.load(Ordering::Relaxed) {
            PHASE_AFTER if during.count() > 0 => break,
            PHASE_BEFORE => &mut before,
            _ => &mut during,
        };
        foreground.step(0, foreground.content.len(), times)?;
    }
    foreground.keeper.check_all()?;
    Ok((before, during))
}

pub(super) fn remarks(settings: &Settings) -> Vec<String> {
    vec![format!(
        "One compaction: {} objects ({} MiB of pages compressed by LZ4), of which a random half \
         was freed, alone on the machine for its time; for the foreground's p99.9, another thread \
         works on {SLOTS} slots of its own from {} ms before to the end.",
        objects(settings),
        (objects(settings) * PAGE_BYTES) >> 20,
        BEFORE.as_millis(),
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compaction_frees_pages_while_the_other_thread_works() {
        let content = Content::all();
        let pool = zfold_pool::create(NAME, &PoolOptions::new(Allocator::Zsmalloc)).unwrap();
        let half_freed = HalfFreed::new(&*pool, &content, 8000, 1).unwrap();
        let (without, during) = half_freed.compact_beside(&content, 1).unwrap();
        assert!(without.count() > 0 && during.count() > 0);
        let (time, freed) = {
            let alone = zfold_pool::create(NAME, &PoolOptions::new(Allocator::Zsmalloc)).unwrap();
            HalfFreed::new(&*alone, &content, 8000, 1).unwrap().compact().unwrap()
        };
        assert!(time > Duration::ZERO && freed > 100);
        assert!(pool.stats().objects >= 4000, "the other half is kept");
    }
}
