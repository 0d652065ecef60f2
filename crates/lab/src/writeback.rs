//! Compares who chooses the objects that leave a full pool: the pool by the age of its pages, or
//! the owner by the age of its entries.
//!
//! Up to Linux 6.4 zswap asked its pool to empty a page: zbud, z3fold and zsmalloc kept their pages
//! in the order of their last write, and everything in the oldest one was written to the swap
//! device. Since 6.5 zswap keeps its entries in the order of their last use and writes them out one
//! by one, whatever that frees. The recorded traffic of a compiler is replayed both ways, under a
//! limit that it passes. Nothing is written to a device: what would be is compared, freed and
//! counted.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Instant;

use zfold_compare::trace::{Event, Trace};
use zfold_pool::{AllocError, Allocator, Handle, Locking, PageCount, Pool, PoolOptions, Refused};

use crate::experiment::content::{Content, verify};
use crate::experiment::harness::{Samples, alternate, sized};
use crate::experiment::{Error, Progress, Settings};

/// Name of the experiment.
pub(crate) const NAME: &str = "writeback";

/// Most bytes of pages that hold objects, as zswap counts its pool.
const LIMIT_BYTES: u64 = 16 << 20;
/// The size to which a full pool is brought down, in percent of the limit: the kernel's
/// `accept_threshold_percent`.
const ACCEPT_PERCENT: u64 = 90;
/// Entries that leave between two compactions.
const BATCH: u32 = 32;

/// The side that chooses, and its other duties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chooser {
    Pool,
    Owner,
    OwnerCompacting,
}

/// In the order of the tables.
const VARIANTS: [Variant; 7] = [
    Variant(Allocator::Zsmalloc, Chooser::Pool),
    Variant(Allocator::Zsmalloc, Chooser::Owner),
    Variant(Allocator::Zsmalloc, Chooser::OwnerCompacting),
    Variant(Allocator::Z3fold, Chooser::Pool),
    Variant(Allocator::Z3fold, Chooser::Owner),
    Variant(Allocator::Zbud, Chooser::Pool),
    Variant(Allocator::Zbud, Chooser::Owner),
];

struct Variant(Allocator, Chooser);

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.1 {
            Chooser::Pool => "by the pool",
            Chooser::Owner => "by the owner",
            Chooser::OwnerCompacting => "by the owner, compacting",
        };
        write!(f, "{}, {by}", self.0)
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
    let (content, trace) = (Content::all(), Trace::builtin());
    let all = trace.events();
    let events = &all[..sized(settings, all.len(), all.len()).min(all.len())];
    alternate(settings, progress, &VARIANTS, samples, |variant, _, samples| {
        let start = Instant::now();
        let counts = replay(variant, &content, events, LIMIT_BYTES)?;
        let real = start.elapsed().as_secs_f64();
        let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        let written_a_page = counts.written as f64 / counts.freed.max(1) as f64;
        let transfers = counts.written + (counts.loads - counts.hits);
        for (metric, unit, value) in [
            ("written back", "pages", counts.written as f64),
            ("written back for a page of pool", "pages", written_a_page),
            ("read again of those", "%", share(counts.read_again, counts.written)),
            ("loads served by the pool", "%", share(counts.hits, counts.loads)),
            ("transfers to and from the device", "pages", transfers as f64),
            ("moved by compaction", "objects", counts.moved as f64),
            ("largest pool", "bytes", counts.pool_bytes_peak as f64),
            ("real", "s", real),
        ] {
            samples.push(&variant.to_string(), 1, metric, unit, value);
        }
        Ok(())
    })
}

/// The counts of a replay, in pages of the program unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    written: u64,
    /// Pages that were written and loaded before they were dropped.
    read_again: u64,
    /// Pages of the pool that writeback freed.
    freed: u64,
    loads: u64,
    hits: u64,
    moved: u64,
    pool_bytes_peak: u64,
}

fn replay(
    variant: &Variant,
    content: &Content,
    events: &[Event],
    limit_bytes: u64,
) -> Result<Counts, Error> {
    let Variant(allocator, chooser) = *variant;
    let options = PoolOptions::new(allocator)
        .with_locking(Some(Locking::PoolLock))
        .with_reclaim(chooser == Chooser::Pool);
    let pool = &*zfold_pool::create(NAME, &options)?;
    let mut zswap = Zswap::new(pool, content, chooser, limit_bytes);
    for event in events {
        zswap.apply(*event)?;
    }
    let stats = pool.stats();
    zswap.counts.moved = stats.objects_moved_total;
    Ok(zswap.counts)
}

/// Where a page of the program is.
#[derive(Debug)]
enum Place<'a> {
    Pool {
        handle: Handle,
        object: &'a [u8],
        /// When it was last used.
        used: u64,
    },
    Device {
        read: bool,
    },
    /// One repeated word: no object, and never written out.
    SameFilled,
}

/// A model of zswap over a pool.
struct Zswap<'a> {
    pool: &'a dyn Pool,
    content: &'a Content,
    chooser: Chooser,
    limit_bytes: u64,
    pages: HashMap<u32, Place<'a>>,
    /// Slots by handle: the kernel's objects began with their swap slot.
    slots: HashMap<Handle, u32>,
    /// Slots by when they were last used.
    order: BTreeMap<u64, u32>,
    now: u64,
    counts: Counts,
}

impl<'a> Zswap<'a> {
    fn new(pool: &'a dyn Pool, content: &'a Content, chooser: Chooser, limit_bytes: u64) -> Self {
        Self {
            pool,
            content,
            chooser,
            limit_bytes,
            pages: HashMap::new(),
            slots: HashMap::new(),
            order: BTreeMap::new(),
            now: 0,
            counts: Counts::default(),
        }
    }

    fn apply(&mut self, event: Event) -> Result<(), Error> {
        self.now += 1;
        match event {
            Event::Store { slot, size } => {
                self.drop_page(slot)?;
                self.store(slot, usize::from(size))
            }
            Event::Load { slot } => self.load(slot),
            Event::Invalidate { slot } | Event::Rejected { slot } => self.drop_page(slot),
        }
    }

    fn store(&mut self, slot: u32, len: usize) -> Result<(), Error> {
        if len == 0 {
            self.pages.insert(slot, Place::SameFilled);
            return Ok(());
        }
        if self.pool_bytes() >= self.limit_bytes {
            self.shrink()?;
        }
        let object = self.content.object_of_len(len, self.now as usize);
        let handle = match self.pool.insert(object) {
            // zbud has no place for a page that hardly compresses: the kernel writes it out now.
            Err(AllocError::TooLong { .. }) => {
                self.counts.written += 1;
                self.pages.insert(slot, Place::Device { read: false });
                return Ok(());
            }
            inserted => inserted?,
        };
        self.pages.insert(slot, Place::Pool { handle, object, used: self.now });
        self.slots.insert(handle, slot);
        self.order.insert(self.now, slot);
        self.counts.pool_bytes_peak = self.counts.pool_bytes_peak.max(self.pool_bytes());
        Ok(())
    }

    fn load(&mut self, slot: u32) -> Result<(), Error> {
        match self.pages.get_mut(&slot) {
            Some(Place::Pool { handle, object, used }) => {
                let found = self.pool.read(*handle)?;
                verify(NAME, object, &found, || format!("slot {slot}"))?;
                self.order.remove(used);
                *used = self.now;
                self.order.insert(self.now, slot);
                self.counts.hits += 1;
            }
            Some(Place::Device { read }) => {
                self.counts.read_again += u64::from(!*read);
                *read = true;
            }
            Some(Place::SameFilled) => self.counts.hits += 1,
            // Stored before the trace began.
            None => return Ok(()),
        }
        self.counts.loads += 1;
        Ok(())
    }

    fn drop_page(&mut self, slot: u32) -> Result<(), Error> {
        if let Some(Place::Pool { handle, used, .. }) = self.pages.remove(&slot) {
            self.order.remove(&used);
            self.slots.remove(&handle);
            self.pool.free(handle)?;
        }
        Ok(())
    }

    /// Writes pages out until the pool is below its threshold.
    fn shrink(&mut self) -> Result<(), Error> {
        let before = self.pool.stats().pages;
        let accepted = self.limit_bytes / 100 * ACCEPT_PERCENT;
        let mut left = 0;
        while self.pool_bytes() > accepted {
            match self.chooser {
                Chooser::Pool => self.empty_oldest_page()?,
                Chooser::Owner | Chooser::OwnerCompacting => {
                    let oldest = self.order.first_key_value();
                    let (_, &slot) = oldest.expect("a pool above its limit holds objects");
                    self.write_back(slot)?;
                }
            }
            left += 1;
            if self.chooser == Chooser::OwnerCompacting && left % BATCH == 0 {
                self.pool.compact(u64::MAX);
            }
        }
        self.counts.freed += before.0.saturating_sub(self.pool.stats().pages.0);
        Ok(())
    }

    fn empty_oldest_page(&mut self) -> Result<(), Error> {
        let (pool, mut failure) = (self.pool, None);
        let reclaimed = pool.reclaim(PageCount(1), &mut |handle| {
            let slot = self.slots[&handle];
            self.write_back(slot).map_err(|error| {
                failure = Some(error);
                Refused
            })
        });
        match (failure, reclaimed) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(Error::Other(format!("{NAME}: {error}"))),
            (None, Ok(_)) => Ok(()),
        }
    }

    /// Writes a page that is in the pool to the device.
    fn write_back(&mut self, slot: u32) -> Result<(), Error> {
        let Some(Place::Pool { handle, object, .. }) = self.pages.get(&slot) else {
            unreachable!("only pages in the pool are in the order or have a handle");
        };
        verify(NAME, object, &self.pool.read(*handle)?, || format!("slot {slot}"))?;
        self.drop_page(slot)?;
        self.pages.insert(slot, Place::Device { read: false });
        self.counts.written += 1;
        Ok(())
    }

    fn pool_bytes(&self) -> u64 {
        self.pool.stats().pool_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::{outcome, value};

    fn counts(allocator: Allocator, chooser: Chooser, limit_bytes: u64) -> Counts {
        let trace = Trace::builtin();
        replay(
            &Variant(allocator, chooser),
            &Content::all(),
            &trace.events()[..40_000],
            limit_bytes,
        )
        .unwrap()
    }

    #[test]
    fn every_variant_has_its_figures() {
        let outcome = outcome(NAME);
        assert_eq!(outcome.figures.len(), VARIANTS.len() * 8);
        assert_eq!(value(&outcome, "zbud, by the pool", "written back"), 0.0, "the limit is far");
    }

    #[test]
    fn a_full_pool_stays_near_its_limit_and_what_left_is_read_from_the_device() {
        let limit = 4 << 20;
        for Variant(allocator, chooser) in VARIANTS {
            let counts = counts(allocator, chooser, limit);
            assert!(counts.written > 0 && counts.freed > 0, "{allocator} {chooser:?} {counts:?}");
            assert!(counts.hits < counts.loads, "{allocator} {chooser:?} {counts:?}");
            // A store may take a zspage of eight pages.
            let most = limit + (8 << 12);
            assert!(counts.pool_bytes_peak <= most, "{allocator} {chooser:?} {counts:?}");
        }
    }

    #[test]
    fn the_owner_writes_the_page_that_was_used_longest_ago() {
        let content = Content::all();
        let pool = zfold_pool::create("test", &PoolOptions::new(Allocator::Zsmalloc)).unwrap();
        let mut zswap = Zswap::new(&*pool, &content, Chooser::Owner, u64::MAX);
        for slot in 0..3 {
            zswap.apply(Event::Store { slot, size: 2000 }).unwrap();
        }
        zswap.apply(Event::Load { slot: 0 }).unwrap();
        zswap.limit_bytes = 4096;
        zswap.shrink().unwrap();
        let on_device = |slot| matches!(zswap.pages[&slot], Place::Device { .. });
        assert!(on_device(1) && zswap.order.values().last() != Some(&1));
        assert!(!on_device(0) || (on_device(2) && zswap.order.is_empty()));
    }
}
