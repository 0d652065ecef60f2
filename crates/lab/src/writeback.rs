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
use crate::experiment::{Error, Outcome, Progress, Settings};

/// Name of the experiment.
pub const NAME: &str = "writeback";

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

struct Variant {
    allocator: Allocator,
    chooser: Chooser,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.chooser {
            Chooser::Pool => "by the pool",
            Chooser::Owner => "by the owner",
            Chooser::OwnerCompacting => "by the owner, compacting",
        };
        write!(f, "{}, {by}", self.allocator)
    }
}

/// In the order of the tables.
const VARIANTS: [Variant; 7] = {
    use Allocator::{Z3fold, Zbud, Zsmalloc};
    use Chooser::{Owner, OwnerCompacting, Pool};
    const fn variant(allocator: Allocator, chooser: Chooser) -> Variant {
        Variant { allocator, chooser }
    }
    [
        variant(Zsmalloc, Pool),
        variant(Zsmalloc, Owner),
        variant(Zsmalloc, OwnerCompacting),
        variant(Z3fold, Pool),
        variant(Z3fold, Owner),
        variant(Zbud, Pool),
        variant(Zbud, Owner),
    ]
};

/// Runs the experiment.
///
/// # Errors
/// [`Error`] when a pool cannot be made or refuses a call, or a byte comes back wrong.
pub fn run(settings: &Settings, progress: Progress<'_>) -> Result<Outcome, Error> {
    let (content, trace) = (Content::all(), Trace::builtin());
    let count = sized(settings, trace.events().len(), trace.events().len());
    let events = &trace.events()[..count.min(trace.events().len())];
    let samples = alternate(settings, progress, &VARIANTS, |variant, _, samples| {
        let start = Instant::now();
        let counts = replay(variant, &content, events, LIMIT_BYTES)?;
        report(samples, &variant.to_string(), &counts);
        samples.push(&variant.to_string(), 1, "real", "s", start.elapsed().as_secs_f64());
        Ok(())
    })?;
    let remarks = remarks(events.len());
    Ok(samples.outcome(
        NAME,
        "writeback from a full pool, by who chooses what leaves",
        &[],
        remarks,
    ))
}

fn report(samples: &mut Samples, name: &str, counts: &Counts) {
    let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    for (metric, unit, value) in [
        ("written back", "pages", counts.written as f64),
        ("written back for a page of pool", "pages", counts.written_a_page()),
        ("read again of those", "%", share(counts.read_again, counts.written)),
        ("loads served by the pool", "%", share(counts.hits, counts.loads)),
        ("transfers to and from the device", "pages", counts.transfers() as f64),
        ("moved by compaction", "objects", counts.moved as f64),
        ("largest pool", "bytes", counts.pool_bytes_peak as f64),
    ] {
        samples.push(name, 1, metric, unit, value);
    }
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

impl Counts {
    /// Pages of the program that left for each page of the pool.
    fn written_a_page(&self) -> f64 {
        self.written as f64 / self.freed.max(1) as f64
    }

    fn transfers(&self) -> u64 {
        self.written + (self.loads - self.hits)
    }
}

fn replay(
    variant: &Variant,
    content: &Content,
    events: &[Event],
    limit_bytes: u64,
) -> Result<Counts, Error> {
    let options = PoolOptions::new(variant.allocator)
        .with_locking(Some(Locking::PoolLock))
        .with_reclaim(variant.chooser == Chooser::Pool);
    let pool = &*zfold_pool::create(NAME, &options)?;
    let mut zswap = Zswap::new(pool, content, variant.chooser, limit_bytes);
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
        let written = self.pages.insert(slot, Place::Device { read: false });
        let Some(Place::Pool { handle, object, used }) = written else {
            unreachable!("only pages in the pool are in the order or have a handle");
        };
        verify(NAME, object, &self.pool.read(handle)?, || format!("slot {slot}"))?;
        self.order.remove(&used);
        self.slots.remove(&handle);
        self.pool.free(handle)?;
        self.counts.written += 1;
        Ok(())
    }

    fn pool_bytes(&self) -> u64 {
        self.pool.stats().pool_bytes()
    }
}

fn remarks(events: usize) -> Vec<String> {
    vec![
        format!(
            "{events} events of the built-in trace, a compiler's run in 70 MiB, are replayed on \
             one thread under a limit of {} MiB for the pool's pages. A full pool is brought down \
             to {ACCEPT_PERCENT} % of it before the next store.",
            LIMIT_BYTES >> 20
        ),
        "By the pool: what zswap did with zbud and z3fold up to Linux 6.4, and with zsmalloc from \
         6.2 to 6.4. By the owner: since 6.5. Compacting: the pool is compacted after each 32 \
         pages that left, which the kernel leaves to its shrinker."
            .to_owned(),
        "Nothing is written to a device: what would be is compared, freed and counted. So times \
         are those of the pool and of the comparison."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::{check_outcome, tiny, value};

    fn counts(allocator: Allocator, chooser: Chooser, limit_bytes: u64) -> Counts {
        let trace = Trace::builtin();
        let variant = Variant { allocator, chooser };
        replay(&variant, &Content::all(), &trace.events()[..40_000], limit_bytes).unwrap()
    }

    #[test]
    fn every_variant_has_its_figures() {
        let outcome = run(&tiny(), &|_, _| ()).unwrap();
        check_outcome(&outcome, NAME, &[]);
        assert_eq!(outcome.figures.len(), VARIANTS.len() * 8);
        assert_eq!(value(&outcome, "zbud, by the pool", "written back"), 0.0, "the limit is far");
    }

    #[test]
    fn a_full_pool_stays_near_its_limit_and_what_left_is_read_from_the_device() {
        let limit = 4 << 20;
        for Variant { allocator, chooser } in VARIANTS {
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
