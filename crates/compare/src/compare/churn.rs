//! Pages through one store: fill, load, free a half, compact, refill, load, empty.
//!
//! The keys of a phase are dealt out to the workers, so that a key is one thread's in each phase,
//! and the end of a phase is the end of its threads. The store's answer for a key, `kept`, passes
//! from one phase to the next with it; its atomics order nothing. A page that comes back wrong, is
//! lost, or is there though it should be gone ends the comparison.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use zfold_pool::Allocator;
use zfold_store::{CodecSpec, Store, StoreError, StoreOptions};

use super::error::Fault;
use super::meter::Lap;
use super::order::Order;
use super::plan::Plan;
use super::record::{Measured, Sizes};
use crate::latency::Latency;
use crate::proc::resident_bytes;

/// Pages per thread of the small run that goes ahead of the measurement.
const WARM_UP_PAGES: usize = 32;

/// One worker's measurements and memory.
struct Worker {
    stores: Latency,
    loads: Latency,
    page: Vec<u8>,
}

/// The memory in use before the first page.
struct Base {
    codec_bytes: u64,
    resident_bytes: u64,
}

/// Pages on their way through a store.
struct Churn<'a> {
    pages: &'a [&'a [u8]],
    store: Store,
    /// By key, whether the store said that it has its page.
    kept: &'a [AtomicBool],
    lap: &'a Lap<'a>,
}

/// Returns how many stores and loads a run over `pages` pages takes.
pub(super) fn operations(pages: usize) -> u64 {
    (3 * pages + pages / 2) as u64
}

/// Runs `pages` through a store of this allocator and codec.
pub(super) fn churn(
    plan: &Plan,
    pages: &[&[u8]],
    allocator: Allocator,
    codec: CodecSpec,
    seed: u64,
    lap: &Lap<'_>,
) -> Result<Measured, Fault> {
    let order = Order::new(pages.len(), seed);
    let kept: Vec<AtomicBool> = pages.iter().map(|_| AtomicBool::new(false)).collect();
    let mut workers: Vec<Worker> = (0..plan.threads).map(|_| Worker::new(plan)).collect();
    let churn = Churn::begin(plan, pages, allocator, codec, &kept, lap)?;
    let base = churn.warm_up(&order, &mut workers)?;

    churn.store_all(&order.keys, &order.filled, &mut workers)?;
    let mut sizes = churn.filled_sizes(&base)?;
    if let (0, 0, Some(limit_bytes)) = (sizes.objects, sizes.same_filled, plan.limit_bytes) {
        return Err(Fault::LimitTooLow { limit_bytes });
    }
    churn.load_all(&order.loads, &order.filled, &mut workers)?;
    churn.free_all(&order.freed);
    sizes.pool_bytes_half_freed = churn.pool_bytes();
    churn.store.compact();
    sizes.pool_bytes_half_compacted = churn.pool_bytes();
    churn.store_all(&order.refills, &order.refilled, &mut workers)?;
    sizes.pool_bytes_refilled = churn.pool_bytes();
    churn.load_all(&order.loads, &order.refilled, &mut workers)?;
    churn.free_all(&order.keys);
    sizes.rss_bytes_emptied = churn.resident_since(&base)?;
    churn.finish(sizes, workers)
}

impl Worker {
    fn new(plan: &Plan) -> Self {
        // Ones, so that the memory is touched now.
        let page = vec![1; plan.page_size.bytes()];
        Self { stores: Latency::new(), loads: Latency::new(), page }
    }

    /// Drops the measurements.
    fn forget(&mut self) {
        self.stores.clear();
        self.loads.clear();
    }
}

impl<'a> Churn<'a> {
    /// Returns a new and empty store for `pages`.
    fn begin(
        plan: &Plan,
        pages: &'a [&'a [u8]],
        allocator: Allocator,
        codec: CodecSpec,
        kept: &'a [AtomicBool],
        lap: &'a Lap<'a>,
    ) -> Result<Self, Fault> {
        let pool = plan.pool(allocator)?;
        let mut options = StoreOptions::new(pages.len() as u64, codec);
        options.incompressible = plan.incompressible;
        options.key_header = plan.has_key_header(allocator);
        options.limit_bytes = plan.limit_bytes;
        let store = Store::new(pool, &options).map_err(Fault::Open)?;
        Ok(Self { pages, store, kept, lap })
    }

    /// Stores, loads and drops a few pages, and returns what is in memory after that: code,
    /// thread stacks and codec contexts, but no page.
    fn warm_up(&self, order: &Order, workers: &mut [Worker]) -> Result<Base, Fault> {
        let ahead = order.keys.len().min(WARM_UP_PAGES * workers.len());
        let keys = &order.keys[..ahead];
        self.store_all(keys, &order.filled, workers)?;
        self.load_all(keys, &order.filled, workers)?;
        self.free_all(keys);
        self.store.compact();
        workers.iter_mut().for_each(Worker::forget);
        let codec_bytes = self.store.stats().metadata_bytes;
        Ok(Base { codec_bytes, resident_bytes: resident_bytes().map_err(Fault::Resident)? })
    }

    /// Stores under each of `keys` the page that `contents` names; rejected ones are noted.
    fn store_all(
        &self,
        keys: &[usize],
        contents: &[usize],
        workers: &mut [Worker],
    ) -> Result<(), Fault> {
        in_parallel(keys, workers, |index, key, worker| {
            let page = self.pages[contents[key]];
            let start = Instant::now();
            let stored = self.store.store(key as u64, page);
            worker.stores.record(start.elapsed());
            let kept = match stored {
                Ok(_) => true,
                Err(StoreError::Full | StoreError::Incompressible) => false,
                Err(source) => return Err(Fault::Store { page: key as u64, source }),
            };
            // Relaxed: the end of the phase orders it before every look.
            self.kept[key].store(kept, Ordering::Relaxed);
            self.lap.tick(index);
            Ok(())
        })
    }

    /// Loads each of `keys` and compares every byte with the page that `contents` names.
    fn load_all(
        &self,
        keys: &[usize],
        contents: &[usize],
        workers: &mut [Worker],
    ) -> Result<(), Fault> {
        in_parallel(keys, workers, |index, key, worker| {
            let page = key as u64;
            let start = Instant::now();
            let loaded = self.store.load(page, &mut worker.page);
            worker.loads.record(start.elapsed());
            let found = loaded.map_err(|source| Fault::Load { page, source })?;
            match (found, self.kept[key].load(Ordering::Relaxed)) {
                (true, true) if worker.page != self.pages[contents[key]] => {
                    Err(Fault::WrongBytes { page })
                }
                (true, false) => Err(Fault::Unexpected { page }),
                (false, true) => Err(Fault::Lost { page }),
                _ => {
                    self.lap.tick(index);
                    Ok(())
                }
            }
        })
    }

    /// Drops the pages of `keys`, kept or not.
    fn free_all(&self, keys: &[usize]) {
        for &key in keys {
            self.store.invalidate(key as u64);
            self.kept[key].store(false, Ordering::Relaxed);
        }
    }

    /// Returns the figures of the filled point.
    fn filled_sizes(&self, base: &Base) -> Result<Sizes, Fault> {
        let rss_bytes = self.resident_since(base)?;
        let stats = self.store.stats();
        let kept = self.kept.iter().filter(|kept| kept.load(Ordering::Relaxed)).count();
        Ok(Sizes {
            same_filled: stats.same_filled_pages,
            raw: stats.stored_incompressible_pages,
            rejected: (self.pages.len() - kept) as u64,
            objects: stats.pool.objects,
            payload_bytes: stats.pool.payload_bytes,
            pool_bytes: stats.pool.pool_bytes(),
            metadata_bytes: stats.pool.metadata_bytes
                + stats.metadata_bytes.saturating_sub(base.codec_bytes),
            codec_bytes: base.codec_bytes,
            rss_bytes,
            ..Sizes::default()
        })
    }

    /// Returns by how much the resident memory has grown since `base`.
    fn resident_since(&self, base: &Base) -> Result<u64, Fault> {
        let resident = resident_bytes().map_err(Fault::Resident)?;
        Ok(resident.saturating_sub(base.resident_bytes))
    }

    fn pool_bytes(&self) -> u64 {
        self.store.stats().pool.pool_bytes()
    }

    /// Checks that the memory came back, and returns all figures.
    fn finish(self, mut sizes: Sizes, workers: Vec<Worker>) -> Result<Measured, Fault> {
        let pool = self.store.stats().pool;
        sizes.pool_bytes_peak = pool.pages_peak.bytes(pool.page_size);
        sizes.pool_bytes_emptied = pool.pool_bytes();
        if pool.pool_bytes() > 0 {
            return Err(Fault::NotReturned { bytes: pool.pool_bytes() });
        }
        let (mut stores, mut loads) = (Latency::new(), Latency::new());
        for worker in workers {
            stores.merge(&worker.stores);
            loads.merge(&worker.loads);
        }
        Ok(Measured { sizes, stores, loads })
    }
}

/// Keeps threads that wait for the same barrier alive together, so that no two of them can use
/// one codec context in turn. A thread that panics lets the others go, too.
struct Together<'a>(&'a Barrier);

impl<'a> Together<'a> {
    fn begin(barrier: &'a Barrier) -> Self {
        barrier.wait();
        Self(barrier)
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        self.0.wait();
    }
}

/// Does `work` for each of `keys`, split over the workers in equal parts; returns the first error.
///
/// `work` is given the place in the part, the key and its worker.
fn in_parallel(
    keys: &[usize],
    workers: &mut [Worker],
    work: impl Fn(usize, usize, &mut Worker) -> Result<(), Fault> + Sync,
) -> Result<(), Fault> {
    let part = &|keys: &[usize], worker: &mut Worker| {
        keys.iter().enumerate().try_for_each(|(index, &key)| work(index, key, worker))
    };
    if let [worker] = workers {
        return part(keys, worker);
    }
    let share = keys.len().div_ceil(workers.len()).max(1);
    let barrier = &Barrier::new(keys.chunks(share).len());
    std::thread::scope(|scope| {
        let spawn = |(keys, worker)| {
            scope.spawn(move || {
                let _together = Together::begin(barrier);
                part(keys, worker)
            })
        };
        let threads: Vec<_> = keys.chunks(share).zip(workers).map(spawn).collect();
        let join = |thread: ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().try_for_each(join)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use zfold_store::CodecKind;

    use super::super::meter::Meter;
    use super::*;
    use crate::rng::SplitMix64;

    const KEYS: [usize; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

    /// Ten pages of text.
    fn text() -> Vec<u8> {
        let mut rng = SplitMix64::new(1);
        (0..10 * 4096).map(|_| b'a' + rng.below(8) as u8).collect()
    }

    /// Calls `test` with a store that holds page `key` of [`text`] under each key.
    fn with_filled_store(test: impl FnOnce(Churn<'_>, &mut [Worker])) {
        let meter = Meter { progress: &|_| (), total: 1, done: AtomicU64::new(0) };
        let lap = Lap { meter: &meter, what: "test" };
        let (plan, bytes) = (Plan::default(), text());
        let pages: Vec<&[u8]> = bytes.chunks(4096).collect();
        let kept = KEYS.map(|_| AtomicBool::new(false));
        let codec = CodecKind::Lz4.into();
        let churn = Churn::begin(&plan, &pages, Allocator::Zsmalloc, codec, &kept, &lap);
        let churn = churn.expect("a store");
        let mut workers = vec![Worker::new(&plan), Worker::new(&plan)];
        churn.store_all(&KEYS, &KEYS, &mut workers).expect("room");
        churn.load_all(&KEYS, &KEYS, &mut workers).expect("the pages that were stored");
        test(churn, &mut workers);
    }

    #[test]
    fn wrong_bytes_are_noticed() {
        with_filled_store(|churn, workers| {
            let mut others = KEYS;
            others[3] = 4;
            let fault = churn.load_all(&[3], &others, workers).expect_err("other bytes");
            assert!(matches!(fault, Fault::WrongBytes { page: 3 }), "{fault}");
        });
    }

    #[test]
    fn lost_page_is_noticed() {
        with_filled_store(|churn, workers| {
            assert!(churn.store.invalidate(4));
            let fault = churn.load_all(&[3, 4], &KEYS, workers).expect_err("a lost page");
            assert!(matches!(fault, Fault::Lost { page: 4 }), "{fault}");
        });
    }

    #[test]
    fn page_that_should_be_gone_is_noticed() {
        with_filled_store(|churn, workers| {
            churn.kept[5].store(false, Ordering::Relaxed);
            let fault = churn.load_all(&[5], &KEYS, workers).expect_err("a page too many");
            assert!(matches!(fault, Fault::Unexpected { page: 5 }), "{fault}");
        });
    }

    #[test]
    fn memory_that_stays_is_noticed() {
        with_filled_store(|churn, _| {
            churn.free_all(&[0, 1, 2, 3]);
            let fault = churn.finish(Sizes::default(), Vec::new()).expect_err("memory held");
            assert!(matches!(fault, Fault::NotReturned { bytes: 1.. }), "{fault}");
        });
    }

    #[test]
    fn work_is_split_over_all_workers() {
        let mut workers: Vec<Worker> = (0..3).map(|_| Worker::new(&Plan::default())).collect();
        let keys: Vec<usize> = (0..8).collect();
        let time = std::time::Duration::from_nanos(7);
        let work = |_, key: usize, worker: &mut Worker| {
            worker.page[key] = 7;
            worker.stores.record(time);
            Ok(())
        };
        in_parallel(&keys, &mut workers, work).expect("no fault");
        let counts: Vec<u64> = workers.iter().map(|worker| worker.stores.count()).collect();
        assert_eq!(counts, [3, 3, 2]);
        assert!((0..8).all(|key| workers[key / 3].page[key] == 7));
    }
}
