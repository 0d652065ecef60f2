//! Lists of z3fold pages with room, one set for the pool or one for each CPU: random reads and
//! writes of many jobs.
//!
//! After "z3fold: use per-cpu unbuddied lists" (2017): fio's randrw with 32 jobs on zram, half
//! reads, half writes. Here each job stores and loads pages of real memory under keys of its own
//! and compares every byte that it loads. The document's change has two parts: lists of each CPU,
//! and worker threads that take the upkeep of pages off the way of `free`; `per-cpu` is the
//! first alone, `per-cpu, workers` both.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use zfold_compare::rng::SplitMix64;
use zfold_pool::{Allocator, Locking, PoolOptions, Upkeep};
use zfold_store::{CodecKind, Store, StoreOptions};

use crate::experiment::content::{Content, PAGE_BYTES, verify};
use crate::experiment::harness::{Published, Samples, alternate, sized, together};
use crate::experiment::{Error, Progress, Settings};

/// Name of the experiment.
pub(crate) const NAME: &str = "per-cpu-lists";

/// Jobs at work.
const JOBS: [u32; 3] = [1, 2, 32];

/// Lengths of the objects that are stored. z3fold takes none as long as a page; with those shorter
/// than an eighth of a page it would keep three objects in almost every page, whatever the design.
const OBJECT_BYTES: RangeInclusive<usize> = 512..=3900;

pub(crate) const PUBLISHED: [Published; 10] = [
    ("pool-lock", 32, "read aggrb", 265_942.0),
    ("per-cpu, workers", 32, "read aggrb", 1568.3 * 1024.0),
    ("pool-lock", 32, "read minb", 8310.0),
    ("per-cpu, workers", 32, "read minb", 50_182.0),
    ("pool-lock", 32, "write aggrb", 268_060.0),
    ("per-cpu, workers", 32, "write aggrb", 1580.8 * 1024.0),
    ("pool-lock", 32, "write minb", 8376.0),
    ("per-cpu, workers", 32, "write minb", 50_582.0),
    ("pool-lock", 32, "compression ratio", 2.65),
    ("per-cpu, workers", 32, "compression ratio", 2.57),
];

/// A lock design, which threads do the upkeep, and how many jobs there are.
struct Variant {
    locking: Locking,
    upkeep: Upkeep,
    jobs: u32,
}

impl Variant {
    fn name(&self) -> String {
        match self.upkeep {
            Upkeep::Workers => format!("{}, workers", self.locking),
            _ => self.locking.to_string(),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.jobs == 1 { "" } else { "s" };
        write!(f, "{}, {} job{s}", self.name(), self.jobs)
    }
}

/// Runs the experiment.
///
/// # Errors
/// [`Error`] when a pool or store cannot be made or refuses a call, or a byte comes back wrong.
pub(crate) fn run(
    settings: &Settings,
    progress: Progress<'_>,
    samples: &mut Samples,
) -> Result<(), Error> {
    let content = Content::of_lens(OBJECT_BYTES);
    let pages = sized(settings, 32 << 10, 4 << 10);
    let operations = sized(settings, 256 << 10, 32 << 10);
    let designs = [
        (Locking::PoolLock, Upkeep::Inline),
        (Locking::PerCpu, Upkeep::Inline),
        (Locking::PerCpu, Upkeep::Workers),
    ];
    let with = |jobs| designs.map(|(locking, upkeep)| Variant { locking, upkeep, jobs });
    let variants: Vec<Variant> = JOBS.into_iter().flat_map(with).collect();
    alternate(settings, progress, &variants, samples, |variant, repeat, samples| {
        let seed = settings.seed.wrapping_add(repeat);
        let work = Work { content: &content, pages, operations, seed };
        let (jobs, ratio) = work.run(variant)?;
        let name = variant.name();
        let mut push = |metric, unit, value| samples.push(&name, variant.jobs, metric, unit, value);
        let elapsed = jobs.iter().map(|job| job.time).max().unwrap_or_default();
        let aggregate = |bytes: fn(&Job) -> u64| rate(jobs.iter().map(bytes).sum(), elapsed);
        let least = |bytes: fn(&Job) -> u64| {
            jobs.iter().map(|job| rate(bytes(job), job.time)).fold(f64::INFINITY, f64::min)
        };
        push("read aggrb", "KB/s", aggregate(|job| job.read));
        push("read minb", "KB/s", least(|job| job.read));
        push("write aggrb", "KB/s", aggregate(|job| job.written));
        push("write minb", "KB/s", least(|job| job.written));
        push("compression ratio", "x", ratio);
        Ok(())
    })
}

/// Returns KB/s, which fio counts by 1024 bytes.
fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1024.0 / time.as_secs_f64()
}

/// The work of one job.
struct Job {
    read: u64,
    written: u64,
    time: Duration,
}

/// The work of all jobs together.
struct Work<'a> {
    content: &'a Content,
    pages: usize,
    operations: usize,
    seed: u64,
}

impl Work<'_> {
    /// Returns what each job did, and the pages held over the pool's pages in the end.
    fn run(&self, variant: &Variant) -> Result<(Vec<Job>, f64), Error> {
        let mut options = PoolOptions::new(Allocator::Z3fold);
        options.locking = Some(variant.locking);
        options.rules.upkeep = variant.upkeep;
        let pool = zfold_pool::create(NAME, &options)?;
        let jobs = variant.jobs as usize;
        let pages = (self.pages / jobs).max(2);
        let operations = (self.operations / jobs).max(64);
        let options = StoreOptions::new((jobs * pages) as u64, CodecKind::Lz4.into());
        let store = &Store::new(pool, &options)?;
        let prepare = |job: u32| {
            let seed = self.seed.wrapping_add(u64::from(job) << 32);
            let own = Own::new(store, self.content, job as usize * pages, seed);
            own.fill(pages)
        };
        let work = |_, mut own: Own<'_>| own.read_and_write(operations);
        let (jobs, _) = together(variant.jobs, prepare, work)?;
        let stats = store.stats();
        let ratio = stats.stored_pages as f64 / stats.pool.pages.0.max(1) as f64;
        Ok((jobs, ratio))
    }
}

/// The pages of one job.
struct Own<'a> {
    store: &'a Store,
    content: &'a Content,
    first_key: usize,
    /// Which page of the content each key holds.
    held: Vec<u32>,
    rng: SplitMix64,
    page: Vec<u8>,
}

impl<'a> Own<'a> {
    fn new(store: &'a Store, content: &'a Content, first_key: usize, seed: u64) -> Self {
        let (held, rng) = (Vec::new(), SplitMix64::new(seed));
        Self { store, content, first_key, held, rng, page: vec![0; PAGE_BYTES] }
    }

    fn fill(mut self, pages: usize) -> Result<Self, Error> {
        self.held = vec![0; pages];
        (0..pages).try_for_each(|place| self.write(place))?;
        Ok(self)
    }

    fn write(&mut self, place: usize) -> Result<(), Error> {
        let index = self.rng.below(self.content.len() as u64) as u32;
        self.store.store((self.first_key + place) as u64, self.content.page(index as usize))?;
        self.held[place] = index;
        Ok(())
    }

    fn read(&mut self, place: usize) -> Result<(), Error> {
        let key = self.first_key + place;
        if !self.store.load(key as u64, &mut self.page)? {
            return Err(Error::Other(format!("{NAME}: page {key} was stored, but is not found")));
        }
        let stored = self.content.page(self.held[place] as usize);
        verify(NAME, stored, &self.page, || format!("page {key}"))
    }

    /// Reads and writes random pages, each as likely as the other.
    fn read_and_write(&mut self, operations: usize) -> Result<Job, Error> {
        let (start, mut reads) = (Instant::now(), 0);
        for _ in 0..operations {
            let place = self.rng.below(self.held.len() as u64) as usize;
            if self.rng.below(2) == 0 {
                self.read(place)?;
                reads += 1;
            } else {
                self.write(place)?;
            }
        }
        let bytes = |count: usize| (count * PAGE_BYTES) as u64;
        let (read, written) = (bytes(reads), bytes(operations - reads));
        Ok(Job { read, written, time: start.elapsed() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::outcome;

    #[test]
    fn every_design_has_its_bandwidths_and_ratio() {
        let outcome = outcome(NAME);
        assert_eq!(outcome.figures.len(), 3 * 3 * 5);
        assert!(outcome.figures.iter().all(|figure| figure.value > 0.0));
        let ratios = outcome.figures.iter().filter(|figure| figure.metric == "compression ratio");
        assert!(ratios.clone().all(|figure| figure.value > 1.0 && figure.value <= 3.0));
        assert_eq!(ratios.count(), 9);
    }

    #[test]
    fn a_page_that_another_took_the_place_of_is_noticed() {
        let content = Content::of_lens(OBJECT_BYTES);
        let pool = zfold_pool::create(NAME, &PoolOptions::new(Allocator::Z3fold)).unwrap();
        let options = StoreOptions::new(4, CodecKind::Lz4.into());
        let store = Store::new(pool, &options).unwrap();
        let mut own = Own::new(&store, &content, 0, 1).fill(4).unwrap();
        own.read(3).unwrap();
        own.held[3] += 1;
        assert!(matches!(own.read(3), Err(Error::WrongBytes { experiment: NAME, .. })));
        assert!(store.invalidate(2));
        assert!(matches!(own.read(2), Err(Error::Other(_))));
    }
}
