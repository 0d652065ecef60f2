//! Pages through one store: fill, load, free a half, compact, refill, load, empty.
//!
//! A page that comes back wrong, is lost, or is there though it should be gone ends the comparison.

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

/// Pages of the small run that goes ahead of the measurement.
const WARM_UP_PAGES: usize = 32;

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
    kept: Vec<bool>,
    stores: Latency,
    loads: Latency,
    /// Where pages are loaded to.
    page: Vec<u8>,
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
    lap: &Lap<'_>,
) -> Result<Measured, Fault> {
    let order = Order::new(pages.len(), plan.seed);
    let mut churn = Churn::begin(plan, pages, allocator, codec, lap)?;
    let base = churn.warm_up(&order)?;

    churn.store_all(&order.keys, &order.filled)?;
    let mut sizes = churn.filled_sizes(&base)?;
    if let (0, 0, Some(limit_bytes)) = (sizes.objects, sizes.same_filled, plan.limit_bytes) {
        return Err(Fault::LimitTooLow { limit_bytes });
    }
    churn.load_all(&order.loads, &order.filled)?;
    churn.free_all(&order.freed);
    sizes.pool_bytes_half_freed = churn.pool_bytes();
    churn.store.compact();
    sizes.pool_bytes_half_compacted = churn.pool_bytes();
    churn.store_all(&order.refills, &order.refilled)?;
    sizes.pool_bytes_refilled = churn.pool_bytes();
    churn.load_all(&order.loads, &order.refilled)?;
    churn.free_all(&order.keys);
    sizes.rss_bytes_emptied = churn.resident_since(&base)?;
    churn.finish(sizes)
}

impl<'a> Churn<'a> {
    /// Returns a new and empty store for `pages`.
    fn begin(
        plan: &Plan,
        pages: &'a [&'a [u8]],
        allocator: Allocator,
        codec: CodecSpec,
        lap: &'a Lap<'a>,
    ) -> Result<Self, Fault> {
        let pool = plan.pool(allocator)?;
        let mut options = StoreOptions::new(pages.len() as u64, codec);
        options.incompressible = plan.incompressible;
        options.key_header = plan.has_key_header(allocator);
        options.limit_bytes = plan.limit_bytes;
        let store = Store::new(pool, &options).map_err(Fault::Open)?;
        // Ones and true, so that the memory is touched now.
        let (kept, page) = (vec![true; pages.len()], vec![1; plan.page_size.bytes()]);
        Ok(Self { pages, store, kept, stores: Latency::new(), loads: Latency::new(), page, lap })
    }

    /// Stores, loads and drops a few pages, and returns what is in memory after that: code and
    /// codec contexts, but no page.
    fn warm_up(&mut self, order: &Order) -> Result<Base, Fault> {
        let keys = &order.keys[..order.keys.len().min(WARM_UP_PAGES)];
        self.store_all(keys, &order.filled)?;
        self.load_all(keys, &order.filled)?;
        self.free_all(keys);
        self.store.compact();
        self.stores.clear();
        self.loads.clear();
        let codec_bytes = self.store.stats().metadata_bytes;
        Ok(Base { codec_bytes, resident_bytes: resident_bytes().map_err(Fault::Resident)? })
    }

    /// Stores under each of `keys` the page that `contents` names; rejected ones are noted.
    fn store_all(&mut self, keys: &[usize], contents: &[usize]) -> Result<(), Fault> {
        for (index, &key) in keys.iter().enumerate() {
            let page = self.pages[contents[key]];
            let start = Instant::now();
            let stored = self.store.store(key as u64, page);
            self.stores.record(start.elapsed());
            self.kept[key] = match stored {
                Ok(_) => true,
                Err(StoreError::Full | StoreError::Incompressible) => false,
                Err(source) => return Err(Fault::Store { page: key as u64, source }),
            };
            self.lap.tick(index);
        }
        Ok(())
    }

    /// Loads each of `keys` and compares every byte with the page that `contents` names.
    fn load_all(&mut self, keys: &[usize], contents: &[usize]) -> Result<(), Fault> {
        for (index, &key) in keys.iter().enumerate() {
            let page = key as u64;
            let start = Instant::now();
            let loaded = self.store.load(page, &mut self.page);
            self.loads.record(start.elapsed());
            let found = loaded.map_err(|source| Fault::Load { page, source })?;
            match (found, self.kept[key]) {
                (true, true) if self.page != self.pages[contents[key]] => {
                    return Err(Fault::WrongBytes { page });
                }
                (true, false) => return Err(Fault::Unexpected { page }),
                (false, true) => return Err(Fault::Lost { page }),
                _ => self.lap.tick(index),
            }
        }
        Ok(())
    }

    /// Drops the pages of `keys`, kept or not.
    fn free_all(&mut self, keys: &[usize]) {
        for &key in keys {
            self.store.invalidate(key as u64);
            self.kept[key] = false;
        }
    }

    /// Returns the figures of the filled point.
    fn filled_sizes(&self, base: &Base) -> Result<Sizes, Fault> {
        let rss_bytes = self.resident_since(base)?;
        let stats = self.store.stats();
        let kept = self.kept.iter().filter(|kept| **kept).count();
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
    fn finish(self, mut sizes: Sizes) -> Result<Measured, Fault> {
        let pool = self.store.stats().pool;
        sizes.pool_bytes_peak = pool.pages_peak.bytes(pool.page_size);
        sizes.pool_bytes_emptied = pool.pool_bytes();
        if pool.pool_bytes() > 0 {
            return Err(Fault::NotReturned { bytes: pool.pool_bytes() });
        }
        Ok(Measured { sizes, store_ns: self.stores.summary(), load_ns: self.loads.summary() })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

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
    fn with_filled_store(test: impl FnOnce(Churn<'_>)) {
        let meter = Meter { progress: &|_| (), total: 1, done: Cell::new(0) };
        let lap = Lap { meter: &meter, what: "test" };
        let (plan, bytes) = (Plan::default(), text());
        let pages: Vec<&[u8]> = bytes.chunks(4096).collect();
        let codec = CodecKind::Lz4.into();
        let churn = Churn::begin(&plan, &pages, Allocator::Zsmalloc, codec, &lap);
        let mut churn = churn.expect("a store");
        churn.store_all(&KEYS, &KEYS).expect("room");
        churn.load_all(&KEYS, &KEYS).expect("the pages that were stored");
        test(churn);
    }

    #[test]
    fn pages_that_are_wrong_lost_or_too_many_are_noticed() {
        with_filled_store(|mut churn| {
            let mut others = KEYS;
            others[3] = 4;
            assert!(churn.store.invalidate(4));
            churn.kept[5] = false;
            let mut fault = |keys: &[usize], pages| churn.load_all(keys, pages).expect_err("it is");
            assert!(matches!(fault(&[3], &others), Fault::WrongBytes { page: 3 }));
            assert!(matches!(fault(&[3, 4], &KEYS), Fault::Lost { page: 4 }));
            assert!(matches!(fault(&[5], &KEYS), Fault::Unexpected { page: 5 }));
        });
    }

    #[test]
    fn memory_that_stays_is_noticed() {
        with_filled_store(|mut churn| {
            churn.free_all(&[0, 1, 2, 3]);
            let fault = churn.finish(Sizes::default()).expect_err("memory held");
            assert!(matches!(fault, Fault::NotReturned { bytes: 1.. }), "{fault}");
        });
    }
}
