//! One compaction of a pool of which a random half was freed, beside a thread that goes on working
//! on objects of its own.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use zfold_pool::{Allocator, Contexts, Locking, PageCount, Pool, PoolOptions};

use super::{Foreground, NAME, p999_us};
use crate::experiment::content::{Content, Keeper, PAGE_BYTES};
use crate::experiment::harness::{Samples, alternate, sized};
use crate::experiment::{Error, Progress, Settings};
use crate::latency::Latency;
use crate::rng::Xorshift64;

/// Slots of the thread that goes on working.
const SLOTS: usize = 4 << 10;
/// How long it works before the compaction, for comparison.
const BEFORE: Duration = Duration::from_millis(50);

/// The one that compacts and the one that goes on working.
const THREADS: u32 = 2;

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

/// What one compaction did.
struct Found {
    time: Duration,
    freed: PageCount,
    /// Times of the other thread's calls without and with the compaction.
    without: Latency,
    during: Latency,
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
        options.contexts = variant.contexts;
        let pool = &*zfold_pool::create(NAME, &options)?;
        let seed = settings.seed.wrapping_add(repeat);
        let found = compact_once(pool, content, objects(settings), seed)?;
        let name = &variant.to_string();
        let milliseconds = found.time.as_secs_f64() * 1e3;
        samples.push(name, THREADS, "compaction time", "ms", milliseconds);
        samples.push(name, THREADS, "pages freed", "pages", found.freed.0 as f64);
        let (during, without) = (p999_us(&found.during), p999_us(&found.without));
        samples.push(name, THREADS, "foreground p99.9 during one compaction", "us", during);
        samples.push(name, THREADS, "foreground p99.9 before it", "us", without);
        Ok(())
    })
}

fn objects(settings: &Settings) -> usize {
    sized(settings, (256 << 20) / PAGE_BYTES, (16 << 20) / PAGE_BYTES)
}

fn compact_once(
    pool: &dyn Pool,
    content: &Content,
    objects: usize,
    seed: u64,
) -> Result<Found, Error> {
    let mut keeper = Keeper::new(NAME, pool, objects);
    (0..objects).try_for_each(|slot| keeper.put(slot, content.object(slot)))?;
    let foreground = Foreground::new(pool, content, SLOTS, seed)?;
    let order = Xorshift64::new(seed).permutation(objects);
    order[..objects / 2].iter().try_for_each(|&slot| keeper.take(slot))?;

    let phase = &AtomicU8::new(PHASE_BEFORE);
    let (freed, time, beside) = std::thread::scope(|scope| {
        let beside = scope.spawn(move || work_beside(foreground, phase));
        std::thread::sleep(BEFORE);
        // Relaxed: a phase that may be seen one call later.
        phase.store(PHASE_DURING, Ordering::Relaxed);
        let start = Instant::now();
        let freed = pool.compact(PageCount::MAX);
        let time = start.elapsed();
        phase.store(PHASE_AFTER, Ordering::Relaxed);
        (freed, time, beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    keeper.check_all()?;
    let (without, during) = beside?;
    Ok(Found { time, freed, without, during })
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
         was freed; another thread works on {SLOTS} slots of its own from {} ms before to the end.",
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
        let found = compact_once(&*pool, &content, 8000, 1).unwrap();
        // How many is up to the other thread, whose new objects fill gaps before the compaction.
        assert!(found.time > Duration::ZERO && found.freed > PageCount::ZERO);
        assert!(found.without.count() > 0 && found.during.count() > 0);
        assert!(pool.stats().objects >= 4000, "the other half is kept");
    }
}
