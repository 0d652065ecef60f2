//! The pool of zsmalloc, which is the same for all lock designs.
//!
//! A call has three parts: the design finds or gives a place, under whatever locks it has; the
//! payload is copied without any; `publish` writes the header and lets the cell name the place.
//! From the first to the last, a cell that is coming keeps all other threads off the bytes, as a
//! pin or a hold does later (cell/H1).
//!
//! `stats`, `check` and the beginning and end of a compaction lock all heaps in the order of their
//! indices, and settle their remote-free lists. No lock is held where a reader, a hook or the
//! system has its turn (locking/L2). A compaction by many threads is begun only where enough
//! can be freed.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::handle::Handle;
use crate::memory::arena::Arena;
use crate::memory::source::Reservation;
use crate::options::zsmalloc::{Compaction, Grouping};
use crate::options::{Contexts, PoolOptions};
use crate::pool::{
    AllocError, HandleError, PinOwner, Pool, PoolStats, ReadGuard, ReclaimError, Refused, check_len,
};
use crate::reclaim::{Victim, reclaim_until};
use crate::sync::cpu;
use crate::sync::gate::Gate;
use crate::sync::spin::{Dead, SpinGuard};
use crate::sync::stat::LockStat;
use crate::units::PageCount;
use crate::zsmalloc::cell::Place;
use crate::zsmalloc::check::check;
use crate::zsmalloc::class::SizeClass;
use crate::zsmalloc::geometry::Geometry;
use crate::zsmalloc::heap::{Heap, Taken};
use crate::zsmalloc::locking::{Design, Shared};
use crate::zsmalloc::sweep::Sweep;
use crate::zsmalloc::tables::Tables;

/// A pool of lock design `D`.
#[derive(Debug)]
pub(crate) struct Zsmalloc<D> {
    name: String,
    shared: Shared,
    design: D,
    reclaim: bool,
    algorithm: Compaction,
    contexts: Contexts,
    gate: Gate,
}

impl<D: Design> Zsmalloc<D> {
    pub(crate) fn new(
        name: &str,
        arena: Arena,
        cells: Arc<dyn Reservation>,
        zspages: Arc<dyn Reservation>,
        options: &PoolOptions,
    ) -> Self {
        let geometry = Geometry::new(arena.page_size(), options.rules.chain, options.rules.chooser);
        let tables = Tables::new(geometry, arena, cells, zspages, options.rules.commit);
        let cpus = options.cpus.unwrap_or_else(cpu::count);
        let shared = Shared::new::<D>(tables, cpus, options);
        Self {
            name: name.to_owned(),
            design: D::new(shared.slots.len()),
            reclaim: options.reclaim,
            algorithm: options.rules.compaction,
            contexts: options.rules.contexts,
            gate: Gate::new(options.rules.contexts.is_single()),
            shared,
        }
    }

    #[inline]
    fn take(&self, len: usize) -> Result<Taken, AllocError> {
        check_len(len, self.len_max())?;
        let class = self.shared.tables.geometry.index_of(len);
        self.design.alloc(&self.shared, class, len)
    }

    /// Returns the bytes of an object at a place, which the caller has pinned or held or which
    /// it has just taken.
    #[inline]
    fn bytes(&self, place: Place, len: usize) -> NonNull<[u8]> {
        let tables = &self.shared.tables;
        let spec = &tables.geometry.classes()[place.class];
        let at = tables.zspages.payload(place.zspage, spec, place.object);
        tables.zspages.frames.payload(at, len)
    }

    /// Makes a taken object, whose payload is written, known to its handle.
    #[inline]
    fn publish(&self, taken: &Taken) -> Handle {
        let Taken { handle, place, .. } = *taken;
        let tables = &self.shared.tables;
        let spec = &tables.geometry.classes()[place.class];
        tables.zspages.write_header(place.zspage, spec, place.object, handle);
        tables.cells.at(handle.index()).publish(place);
        handle
    }

    /// Locks all heaps, in order, with nothing left in their remote-free lists.
    fn lock_all(&self) -> Result<Vec<SpinGuard<'_, Heap>>, Dead> {
        let heaps = self.shared.slots.iter().map(|slot| slot.heap.lock());
        let mut heaps = heaps.collect::<Result<Vec<_>, Dead>>()?;
        // Settling one heap may hand objects on to another.
        while self.shared.slots.iter().any(|slot| !slot.remote_frees.0.is_empty()) {
            heaps.iter_mut().for_each(|heap| self.shared.settle(heap));
        }
        Ok(heaps)
    }

    /// Returns the counts of every class, summed over the heaps.
    fn totals(&self, heaps: &[SpinGuard<'_, Heap>]) -> Vec<SizeClass> {
        let classes = self.shared.tables.geometry.classes();
        let new_class = |&spec| SizeClass::new(spec, Grouping::default());
        let mut totals: Vec<_> = classes.iter().map(new_class).collect();
        for (class, counts) in heaps.iter().flat_map(|heap| heap.classes()) {
            totals[class].add_counts(counts);
        }
        totals
    }

    /// Returns whether there is enough to compact for threads to pay.
    fn worth_helpers(&self) -> bool {
        const WORTH_PAGES: u64 = 64;
        cpu::count() > 1 && self.stats().freeable_pages.0 >= WORTH_PAGES
    }

    fn stats_of(&self, heaps: &[SpinGuard<'_, Heap>]) -> PoolStats {
        let totals = self.totals(heaps);
        let payload: i64 = heaps.iter().map(|heap| heap.payload_bytes).sum();
        let depot = self.shared.tables.stats();
        PoolStats {
            objects: totals.iter().map(|class| class.in_use).sum(),
            payload_bytes: u64::try_from(payload).unwrap_or(0),
            metadata_bytes: depot.metadata_bytes + self.shared.heap_bytes(),
            freeable_pages: PageCount(totals.iter().map(SizeClass::freeable_pages).sum()),
            pages_compacted_total: heaps.iter().map(|heap| heap.pages_compacted_total).sum(),
            objects_moved_total: heaps.iter().map(|heap| heap.moved_total).sum(),
            ..depot
        }
    }
}

impl<D: Design> PinOwner for Zsmalloc<D> {
    #[inline]
    fn unpin(&self, handle: Handle) {
        self.shared.tables.cells.at(handle.index()).unpin();
    }
}

impl<D: Design> Pool for Zsmalloc<D> {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_max(&self) -> usize {
        self.shared.tables.zspages.page_size.bytes()
    }

    fn huge_len(&self) -> usize {
        self.shared.tables.geometry.huge_class_size() as usize
    }

    fn insert(&self, bytes: &[u8]) -> Result<Handle, AllocError> {
        let taken = self.take(bytes.len())?;
        let target = self.bytes(taken.place, taken.len).cast::<u8>();
        // SAFETY: the object has that many bytes; its cell is coming, so this thread alone
        // touches them (cell/H1), and `bytes`, a live borrow, cannot overlap them.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(self.publish(&taken))
    }

    fn read(&self, handle: Handle) -> Result<ReadGuard<'_>, HandleError> {
        let place = self.design.pin(&self.shared, handle)?;
        let cell = self.shared.cell(handle)?;
        let bytes = self.bytes(place, cell.len());
        // SAFETY: the bytes are those of a live object, initialised (frames start as zeros), and
        // pinned, so no thread writes or moves them until the guard is dropped (pool/P3, cell/H1).
        // The arena lives as long as `self`, which the guard borrows.
        let bytes = unsafe { bytes.as_ref() };
        Ok(ReadGuard::new(bytes, self, handle))
    }

    fn free(&self, handle: Handle) -> Result<(), HandleError> {
        let emptied = self.design.free(&self.shared, handle)?;
        self.shared.shrink(emptied);
        Ok(())
    }

    fn compact_until(&self, pages: u64, stop: &AtomicBool) -> u64 {
        let Some(_entered) = self.gate.enter() else { return 0 };
        let sweep = Sweep::new(&self.shared, &self.design, self.algorithm, pages, stop);
        let helpers = match self.contexts {
            Contexts::Parallel if sweep.goes_on() && self.worth_helpers() => cpu::count() - 1,
            _ => 0,
        };
        self.shared.tables.begin_burst();
        sweep.run(helpers);
        if let Ok(mut heaps) = self.lock_all() {
            heaps.iter_mut().for_each(|heap| heap.trim(&self.shared.tables));
        }
        self.shared.tables.end_burst();
        sweep.into_freed()
    }

    fn reclaim(
        &self,
        pages: PageCount,
        evict: &mut dyn FnMut(Handle) -> Result<(), Refused>,
    ) -> Result<PageCount, ReclaimError> {
        if !self.reclaim {
            return Err(ReclaimError::Disabled);
        }
        let tables = &self.shared.tables;
        let begin = || Ok(self.shared.slots[0].heap.lock()?.begin_reclaim(tables));
        let end = |victim: &Victim| {
            let Ok(mut heap) = self.shared.slots[0].heap.lock() else { return 0 };
            let emptied = heap.end_reclaim(tables, victim);
            drop(heap);
            self.shared.shrink(emptied);
            emptied.map_or(0, |emptied| emptied.pages.into())
        };
        reclaim_until(pages, evict, begin, end)
    }

    fn watch_locks(&self, on: bool) {
        self.design.watch(on);
        self.shared.slots.iter().for_each(|slot| slot.heap.watch(on));
        self.shared.tables.depot_lock().watch(on);
    }

    fn lock_stats(&self) -> Vec<LockStat> {
        let mut stats = Vec::new();
        self.design.stats(&mut stats);
        let heaps = self.shared.slots.iter().enumerate();
        stats.extend(heaps.map(|(index, slot)| slot.heap.stat(D::LOCK, index)));
        stats.push(self.shared.tables.depot_lock().stat("depot", 0));
        stats
    }

    fn held_bytes(&self) -> u64 {
        self.shared.tables.held_bytes() + self.shared.heap_bytes()
    }

    fn stats(&self) -> PoolStats {
        match self.lock_all() {
            Ok(heaps) => self.stats_of(&heaps),
            // For a dead pool, only the pages are known for sure.
            Err(Dead) => self.shared.tables.stats(),
        }
    }

    fn check(&self) {
        let Ok(heaps) = self.lock_all() else { panic!("pool {} is dead", self.name) };
        check(&self.shared, &heaps);
    }
}
