//! The state that all heaps of a pool share: the tables of cells and zspages, and the depot that
//! these and the pages come from.
//!
//! - D1: the depot's lock is the last one that a thread takes; a thread that holds it takes no
//!   other.
//! - D2: memory goes back to the system in [`Tables::release`], with no lock but what the caller
//!   holds: pages and table chunks that are on their way cannot be taken. Waiting work is bounded:
//!   the arena's warm pages (1/64 of those in use, 256 KiB to 4 MiB; 16 MiB during a compaction),
//!   and the chunks of tables that emptied since.
//! - D3: `held` mirrors the depot's figure as of the last change, and `due` whether a release is
//!   worth it; both are read without the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::memory::arena::Arena;
use crate::memory::list::NIL;
use crate::memory::slab::{Record, Records, Slab};
use crate::memory::source::{Reservation, SourceError};
use crate::options::zsmalloc::Commit;
use crate::pool::{AllocError, PoolStats};
use crate::sync::order::Rank;
use crate::sync::spin::{Dead, SpinGuard, SpinLock};
use crate::units::PageCount;
use crate::zsmalloc::cell::{Cell, ZSPAGES_MAX};
use crate::zsmalloc::geometry::{ClassSpec, Geometry};
use crate::zsmalloc::zspage::{Zspage, Zspages};

/// Bytes of the smallest object: an arena holds no more objects than it has multiples of it.
const OBJECT_BYTES_MIN: usize = 32;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) geometry: Geometry,
    pub(crate) cells: Arc<Records<Cell>>,
    pub(crate) zspages: Zspages,
    commit: Commit,
    depot: Padded<SpinLock<Depot>>,
    held: Padded<AtomicU64>,
    due: Padded<AtomicBool>,
}

/// A value on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

/// Where pages, cells and zspage records come from.
#[derive(Debug)]
pub(crate) struct Depot {
    pub(crate) arena: Arena,
    pub(crate) cells: Slab<Cell>,
    pub(crate) zspages: Slab<Zspage>,
}

impl Depot {
    /// Bytes of pages, idle pages and tables.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.arena.held_bytes() + self.cells.bytes() + self.zspages.bytes()
    }

    /// Bytes besides pages.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        self.arena.metadata_bytes() + self.cells.bytes() + self.zspages.bytes()
    }

    fn release_due(&self) -> bool {
        self.arena.release_due() || self.cells.release_due() || self.zspages.release_due()
    }
}

impl Tables {
    /// Bytes of address space for the cells of an arena of `arena_bytes`.
    pub(crate) fn cells_range_bytes(arena_bytes: usize) -> usize {
        Slab::<Cell>::range_bytes((arena_bytes / OBJECT_BYTES_MIN).min(NIL as usize))
    }

    /// Bytes of address space for the zspages of an arena of `frames` frames.
    pub(crate) fn zspages_range_bytes(frames: usize) -> usize {
        Slab::<Zspage>::range_bytes(frames.min(ZSPAGES_MAX))
    }

    pub(crate) fn new(
        geometry: Geometry,
        arena: Arena,
        cells: Arc<dyn Reservation>,
        zspages: Arc<dyn Reservation>,
        commit: Commit,
    ) -> Self {
        let (frames, page_size) = (arena.frames(), arena.page_size());
        let depot = Depot { arena, cells: Slab::new(cells), zspages: Slab::new(zspages) };
        Self {
            geometry,
            cells: Arc::clone(depot.cells.records()),
            zspages: Zspages { records: Arc::clone(depot.zspages.records()), frames, page_size },
            held: Padded(AtomicU64::new(depot.held_bytes())),
            depot: Padded(SpinLock::ranked(depot, Rank::Depot)),
            commit,
            due: Padded(AtomicBool::new(false)),
        }
    }

    /// Bytes that the depot holds, as of its last change.
    #[inline]
    pub(crate) fn held_bytes(&self) -> u64 {
        // Relaxed: a figure for limits; it orders nothing.
        self.held.0.load(Ordering::Relaxed)
    }

    /// The depot's lock, for statistics.
    pub(crate) fn depot_lock(&self) -> &SpinLock<Depot> {
        &self.depot.0
    }

    /// Locks the depot, calls `work`, and keeps D3.
    fn with_depot<R>(&self, work: impl FnOnce(&mut Depot) -> R) -> Result<R, Dead> {
        let mut depot = self.depot.0.lock()?;
        let result = work(&mut depot);
        self.publish(&mut depot);
        Ok(result)
    }

    fn publish(&self, depot: &mut SpinGuard<'_, Depot>) {
        let (held, due) = (depot.held_bytes(), depot.release_due());
        // Relaxed: figures that order nothing; written only if they changed.
        if self.held.0.load(Ordering::Relaxed) != held {
            self.held.0.store(held, Ordering::Relaxed);
        }
        if self.due.0.load(Ordering::Relaxed) != due {
            self.due.0.store(due, Ordering::Relaxed);
        }
    }

    /// Moves up to `count` free cells, at least one, to `cells`.
    ///
    /// # Errors
    /// When not even one can be had.
    #[cold]
    pub(crate) fn take_cells(&self, count: usize, cells: &mut Vec<u32>) -> Result<(), AllocError> {
        self.with_depot(|depot| {
            for taken in 0..count {
                match depot.cells.take() {
                    Ok(cell) => cells.push(cell),
                    Err(error) if taken == 0 => return Err(error.into()),
                    Err(_) => break,
                }
            }
            Ok(())
        })?
    }

    /// Takes back free cells.
    #[cold]
    pub(crate) fn put_cells(&self, cells: impl Iterator<Item = u32>) {
        // A dead pool frees nothing any longer.
        let _ = self.with_depot(|depot| cells.for_each(|cell| depot.cells.put(cell)));
    }

    /// Makes an unlisted zspage of a class, with at least one object available and no owner yet.
    ///
    /// # Errors
    /// When memory or a table is used up; nothing changes then.
    #[cold]
    pub(crate) fn grow(&self, class: usize) -> Result<u32, AllocError> {
        let spec = self.geometry.classes()[class];
        let index = self.with_depot(|depot| {
            let run = depot.arena.take(spec.pages)?;
            let index = depot.zspages.take();
            let index = index.inspect_err(|_| depot.arena.put(run, spec.pages))?;
            self.zspages.records.at(index).init(run, class);
            let extended = self.zspages.extend(index, &spec, self.commit, &mut depot.arena);
            if let Err(error) = extended {
                let run = self.zspages.records.at(index).run();
                depot.zspages.put(index);
                depot.arena.put(run, spec.pages);
                return Err(error);
            }
            Ok::<u32, SourceError>(index)
        })?;
        Ok(index?)
    }

    /// Makes an object of a zspage that is not full available; returns the pages that it took.
    ///
    /// # Errors
    /// When the source has no memory; nothing changes then.
    #[cold]
    pub(crate) fn extend(&self, index: u32, spec: &ClassSpec) -> Result<u32, AllocError> {
        let extended = self
            .with_depot(|depot| self.zspages.extend(index, spec, self.commit, &mut depot.arena))?;
        Ok(extended?)
    }

    /// Takes back an empty zspage that is on no list and that nothing names any longer.
    #[cold]
    pub(crate) fn shrink(&self, index: u32) {
        let record = self.zspages.records.at(index);
        let pages = self.geometry.classes()[record.class()].pages;
        // A dead pool frees nothing any longer.
        let _ = self.with_depot(|depot| {
            depot.arena.put(record.run(), pages);
            depot.zspages.put(index);
        });
    }

    /// Returns whether [`Tables::release`] is worth a call.
    #[inline]
    pub(crate) fn release_due(&self) -> bool {
        // Relaxed: a hint; the release looks again under the lock.
        self.due.0.load(Ordering::Relaxed)
    }

    /// Returns idle memory to the system, all but the pages that `keep` says.
    #[cold]
    pub(crate) fn release(&self, keep: impl Fn(&Arena) -> PageCount) {
        let begun = self.with_depot(|depot| {
            let keep = keep(&depot.arena);
            let pages = depot.arena.begin_release(keep);
            (pages, depot.cells.begin_release(), depot.zspages.begin_release())
        });
        let Ok((pages, cells, zspages)) = begun else { return };
        pages.release();
        cells.release();
        zspages.release();
        // A dead pool takes nothing back.
        let _ = self.with_depot(|depot| {
            depot.arena.end_release(pages);
            depot.cells.end_release(cells);
            depot.zspages.end_release(zspages);
        });
    }

    /// Begins a compaction: what it frees goes back to the system in few large releases, because
    /// each disturbs the threads that go on working.
    pub(crate) fn begin_burst(&self) {
        // A dead pool compacts nothing.
        let _ = self.with_depot(|depot| depot.arena.begin_burst());
    }

    /// Releases what a compaction has freed so far, if it is much.
    pub(crate) fn release_burst(&self) {
        if self.with_depot(|depot| depot.arena.burst_due()) == Ok(true) {
            self.release(Arena::burst_keep);
        }
    }

    /// Ends a compaction: returns all idle memory to the system, and what lists of idle memory
    /// have too much.
    pub(crate) fn end_burst(&self) {
        let _ = self.with_depot(|depot| depot.arena.end_burst());
        self.release(|_| PageCount::ZERO);
        let _ = self.with_depot(|depot| {
            depot.arena.trim();
            depot.cells.trim();
            depot.zspages.trim();
        });
    }

    /// Returns the counters that the depot knows.
    pub(crate) fn stats(&self) -> PoolStats {
        self.depot.0.with_even_dead(|depot| PoolStats {
            metadata_bytes: depot.metadata_bytes(),
            ..PoolStats::of_pages(&depot.arena)
        })
    }

    /// Asserts the depot's invariants; returns its used pages.
    pub(crate) fn check(&self) -> PageCount {
        let depot = self.depot.0.lock().expect("a live pool");
        depot.arena.check();
        depot.cells.check();
        depot.zspages.check();
        depot.arena.used()
    }
}

/// Returns whether a record is in use; for iterators over tables.
pub(crate) fn is_live<T: Record>(records: &Records<T>, index: u32) -> bool {
    records.get(index).is_some_and(Record::is_live)
}
