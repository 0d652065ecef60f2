//! zsmalloc: objects of one size class packed into zspages, runs of pages that objects may
//! straddle; compaction moves objects under their handles.
//!
//! Geometry, fullness groups and both compaction algorithms are those of Linux's zsmalloc (see
//! the modules); the density is the kernel's on the same data.
//!
//! From the bottom up:
//! - `geometry`: size classes
//! - `fullness`: groups of zspages by how full they are
//! - `zspage`: objects and the free list inside a zspage
//! - `cell`: the word behind a handle, which is also the object's lock
//! - `tables`: cells, records and the depot, which all heaps share
//! - `class`, `heap`: the single-threaded core: zspages in lists, taking and giving objects
//! - `handover`: freed objects on their way to the heap that owns them
//! - `compact`: moving objects together, in steps
//! - `design`: lock designs: which heaps there are and what a call locks
//! - here: the pool, which is the same for all designs
//!
//! Metadata: a cell of 16 bytes and a header of 8 an object, a record of 32 a zspage.

pub(crate) mod cell;
pub(crate) mod class;
pub(crate) mod compact;
pub(crate) mod design;
pub(crate) mod fullness;
pub(crate) mod geometry;
pub(crate) mod handover;
pub(crate) mod heap;
pub(crate) mod tables;
pub(crate) mod zspage;

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use crate::contract::{
    AllocError, HandleError, PinOwner, Pool, PoolStats, ReadGuard, ReclaimError, Refused,
};
use crate::core::Victim;
use crate::cpu;
use crate::frames::arena::Arena;
use crate::frames::source::Reservation;
use crate::gate::Gate;
use crate::handle::Handle;
use crate::list::NIL;
use crate::lock::{Dead, SpinGuard};
use crate::lock_stat::LockStat;
use crate::locking::Contexts;
use crate::options::PoolOptions;
use crate::shell::{check_len, reclaim_until};
use crate::slab::Slab;
use crate::units::PageCount;
use crate::zsmalloc::cell::{Cell, Place, ZSPAGES_MAX};
use crate::zsmalloc::class::SizeClass;
use crate::zsmalloc::compact::{Compaction, Run};
use crate::zsmalloc::design::{Design, Shared};
use crate::zsmalloc::geometry::Geometry;
use crate::zsmalloc::heap::{Heap, Taken};
use crate::zsmalloc::tables::Tables;
use crate::zsmalloc::zspage::{UNLISTED, Zspage};

/// Bytes of the smallest object: an arena holds no more objects than it has multiples of it.
const OBJECT_BYTES_MIN: usize = 32;

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

/// Bytes of address space for the cells of an arena of `arena_bytes`.
pub(crate) fn cells_range_bytes(arena_bytes: usize) -> usize {
    Slab::<Cell>::range_bytes((arena_bytes / OBJECT_BYTES_MIN).min(NIL as usize))
}

/// Bytes of address space for the zspages of an arena of `frames` frames.
pub(crate) fn zspages_range_bytes(frames: usize) -> usize {
    Slab::<Zspage>::range_bytes(frames.min(ZSPAGES_MAX))
}

impl<D: Design> Zsmalloc<D> {
    pub(crate) fn new(
        name: &str,
        arena: Arena,
        cells: Arc<dyn Reservation>,
        zspages: Arc<dyn Reservation>,
        options: &PoolOptions,
    ) -> Self {
        let geometry = Geometry::new(arena.page_size(), options.chain, options.chooser);
        let tables = Tables::new(geometry, arena, cells, zspages, options.commit);
        let cpus = options.cpus.unwrap_or_else(cpu::count);
        let shared = Shared::new::<D>(tables, cpus, options);
        Self {
            name: name.to_owned(),
            design: D::new(shared.slots.len()),
            reclaim: options.reclaim,
            algorithm: options.compaction,
            contexts: options.contexts,
            gate: Gate::new(options.contexts),
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

    /// Length of the object of a cell that the caller has pinned or held.
    #[inline]
    fn len_of(&self, cell: &Cell, place: Place) -> usize {
        self.shared.tables.geometry.classes()[place.class].payload_max() - cell.slack()
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

    /// Locks all heaps, in order, with nothing left in their hand-overs.
    fn lock_all(&self) -> Result<Vec<SpinGuard<'_, Heap>>, Dead> {
        let heaps = self.shared.slots.iter().map(|slot| slot.heap.lock());
        let mut heaps = heaps.collect::<Result<Vec<_>, Dead>>()?;
        // Settling one heap may hand objects on to another.
        while self.shared.slots.iter().any(|slot| !slot.handover.0.is_empty()) {
            heaps.iter_mut().for_each(|heap| self.shared.settle(heap));
        }
        Ok(heaps)
    }

    /// Returns the counts of every class, summed over the heaps.
    fn totals(&self, heaps: &[SpinGuard<'_, Heap>]) -> Vec<SizeClass> {
        let classes = self.shared.tables.geometry.classes();
        let new_class = |&spec| SizeClass::new(spec, fullness::Grouping::default());
        let mut totals: Vec<_> = classes.iter().map(new_class).collect();
        for (class, counts) in heaps.iter().flat_map(|heap| heap.classes()) {
            totals[class].add_counts(counts);
        }
        totals
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

/// Compaction of a whole pool: classes in turn, the largest objects first.
#[derive(Debug)]
struct Sweep<'a> {
    stop: &'a AtomicBool,
    budget: i64,
    /// Pages freed so far, less those that targets needed.
    freed: AtomicI64,
    /// Classes that nobody has begun yet.
    classes_left: AtomicUsize,
}

impl Sweep<'_> {
    fn goes_on(&self) -> bool {
        // Relaxed: a request and a sum, seen a step later at worst.
        !self.stop.load(Ordering::Relaxed) && self.freed.load(Ordering::Relaxed) < self.budget
    }

    /// Returns a class that is this caller's alone.
    fn next_class(&self) -> Option<usize> {
        let take = |left: usize| left.checked_sub(1);
        let before = self.classes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        before.ok().map(|left| left - 1)
    }
}

impl<D: Design> Zsmalloc<D> {
    /// Compacts classes until none is left, on the calling thread.
    fn sweep(&self, sweep: &Sweep<'_>) -> Result<(), Dead> {
        while sweep.goes_on()
            && let Some(class) = sweep.next_class()
        {
            let heaps = self.design.heaps_of(&self.shared, class);
            if self.surplus(heaps.clone(), class)? == 0 {
                continue;
            }
            for heap in heaps.clone() {
                self.compact_class(sweep, heap, class)?;
            }
            if heaps.len() > 1
                && sweep.goes_on()
                && self.surplus(heaps, class)? > 0
                && let Some(heap) = self.design.gather(&self.shared, class)
            {
                self.compact_class(sweep, heap, class)?;
            }
        }
        Ok(())
    }

    /// Returns the zspages that compaction could free in a class of some heaps.
    fn surplus(&self, heaps: std::ops::Range<usize>, class: usize) -> Result<u64, Dead> {
        let spec = self.shared.tables.geometry.classes()[class];
        let mut sum = SizeClass::new(spec, fullness::Grouping::default());
        for heap in heaps {
            sum.add_counts(self.shared.lock(heap)?.class(class));
        }
        Ok(sum.surplus_zspages())
    }

    /// Compacts one class of one heap, step by step (see [`compact`]).
    fn compact_class(&self, sweep: &Sweep<'_>, heap: usize, class: usize) -> Result<(), Dead> {
        let tables = &self.shared.tables;
        let mut run = Run::new(class, self.algorithm);
        loop {
            let mut locked = self.design.lock_for_moves(&self.shared, heap)?;
            let step = if sweep.goes_on() { run.plan(&mut locked.heap, tables) } else { None };
            let Some(step) = step else {
                let emptied = run.end(&mut locked.heap, tables);
                drop(locked);
                let pages = emptied.map_or(0, |emptied| i64::from(emptied.pages));
                sweep.freed.fetch_add(pages, Ordering::Relaxed);
                self.shared.shrink(emptied);
                return Ok(());
            };
            if D::LOCKED_COPY {
                step.run(tables);
            } else {
                drop(locked);
                step.run(tables);
                locked = self.design.lock_for_moves(&self.shared, heap)?;
            }
            let emptied = run.finish(&step, &mut locked.heap, tables);
            drop(locked);
            let pages = emptied.map_or(0, |emptied| i64::from(emptied.pages));
            sweep.freed.fetch_add(pages - i64::from(step.pages), Ordering::Relaxed);
            if emptied.is_some() {
                self.shared.shrink(emptied);
                self.shared.tables.release_burst();
            }
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

    fn alloc(&self, len: usize) -> Result<Handle, AllocError> {
        Ok(self.publish(&self.take(len)?))
    }

    fn insert(&self, bytes: &[u8]) -> Result<Handle, AllocError> {
        let taken = self.take(bytes.len())?;
        let target = self.bytes(taken.place, taken.len).cast::<u8>();
        // SAFETY: the object has that many bytes; its cell is coming, so this thread alone
        // touches them (H1), and `bytes`, a live borrow, cannot overlap them.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(self.publish(&taken))
    }

    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), HandleError> {
        let place = self.design.hold(&self.shared, handle)?;
        let cell = self.shared.cell(handle)?;
        let max = self.len_of(cell, place);
        if bytes.len() > max {
            cell.publish(place);
            return Err(HandleError::TooLong { len: bytes.len(), max });
        }
        let target = self.bytes(place, max).cast::<u8>();
        // SAFETY: the object has at least that many bytes; this thread holds its cell (H1), and
        // `bytes`, a live borrow, cannot overlap them.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        cell.publish(place);
        Ok(())
    }

    fn read(&self, handle: Handle) -> Result<ReadGuard<'_>, HandleError> {
        let place = self.design.pin(&self.shared, handle)?;
        let cell = self.shared.cell(handle)?;
        let bytes = self.bytes(place, self.len_of(cell, place));
        // SAFETY: the bytes are those of a live object, initialised (frames start as zeros), and
        // pinned, so nobody writes or moves them until the guard is dropped (P3, H1). The arena
        // lives as long as `self`, which the guard borrows.
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
        let classes = self.shared.tables.geometry.classes().len();
        let sweep = Sweep {
            stop,
            budget: i64::try_from(pages).unwrap_or(i64::MAX),
            freed: AtomicI64::new(0),
            classes_left: AtomicUsize::new(classes),
        };
        let helpers = match self.contexts {
            Contexts::Parallel if sweep.goes_on() && self.worth_helpers() => cpu::count() - 1,
            _ => 0,
        };
        self.shared.tables.begin_burst();
        // A dead pool compacts nothing any more; what was freed before that counts.
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                let helper = std::thread::Builder::new().name("zfold-compact".to_owned());
                // Without a helper, the caller does its share.
                let _ = helper.spawn_scoped(scope, || self.sweep(&sweep));
            }
            let _ = self.sweep(&sweep);
        });
        if let Ok(mut heaps) = self.lock_all() {
            heaps.iter_mut().for_each(|heap| heap.trim(&self.shared.tables));
        }
        self.shared.tables.end_burst();
        sweep.freed.into_inner().try_into().unwrap_or(0)
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
            // Of a dead pool only the pages are known for sure.
            Err(Dead) => self.shared.tables.stats(),
        }
    }

    fn check(&self) {
        let Ok(heaps) = self.lock_all() else { panic!("pool {} is dead", self.name) };
        self.check_invariants(&heaps);
    }
}

impl<D: Design> Zsmalloc<D> {
    /// Returns whether there is so much to compact that threads pay.
    fn worth_helpers(&self) -> bool {
        const WORTH_PAGES: u64 = 64;
        cpu::count() > 1 && self.stats().freeable_pages.0 >= WORTH_PAGES
    }

    /// Asserts Y1 to Y5. Other calls may be under way, but none that has a heap locked; what
    /// they have taken, hold or move is accounted for.
    fn check_invariants(&self, heaps: &[SpinGuard<'_, Heap>]) {
        let tables = &self.shared.tables;
        let named = self.check_cells();
        let listed: usize = heaps.iter().map(|heap| heap.check(tables).len()).sum();
        let mut sums: HashMap<(usize, usize), (u64, u64, u64)> = HashMap::new();
        let (mut unlisted, mut zspages) = (0, 0);
        for (index, record) in self.owned_zspages(heaps) {
            let spec = &tables.geometry.classes()[record.class()];
            tables.zspages.check_free(index, spec);
            let cells = named.get(&index).copied().unwrap_or(0);
            // An object on the move has two places and one cell.
            let fits = record.in_use() == cells || record.is_isolated();
            assert!(fits, "Y1: zspage {index}: {} taken, {cells} cells", record.in_use());
            assert!(record.in_use() > 0 || record.is_isolated(), "Y2: zspage {index} is empty");
            let committed = u64::from(record.run().committed);
            let sum = sums.entry((record.owner.get().into(), record.class())).or_default();
            *sum = (sum.0 + 1, sum.1 + u64::from(record.in_use()), sum.2 + committed);
            let is_unlisted = record.group.get() == UNLISTED;
            unlisted += usize::from(is_unlisted);
            assert!(!is_unlisted || spec.is_huge() || record.is_isolated(), "Y2: zspage {index}");
            zspages += 1;
        }
        assert_eq!(listed + unlisted, zspages, "Y2: listed zspages");
        for (id, heap) in heaps.iter().enumerate() {
            for (at, class) in heap.classes() {
                let sum = sums.get(&(id, at)).copied().unwrap_or_default();
                let counts = (class.zspages, class.in_use, class.pages);
                assert_eq!(counts, sum, "Y4: class {at} of heap {id}");
            }
        }
        let pages: u64 = sums.values().map(|sum| sum.2).sum();
        assert!(pages <= tables.check().0, "Y4: pages");
    }

    /// Returns the zspages that heaps own: all but those that are being made or released now.
    fn owned_zspages(&self, heaps: &[SpinGuard<'_, Heap>]) -> Vec<(u32, &Zspage)> {
        let records = &self.shared.tables.zspages.records;
        let in_use = records.indices().map(|index| (index, records.at(index)));
        let (owned, others): (Vec<_>, Vec<_>) =
            in_use.partition(|(_, record)| record.in_use() > 0 || record.is_isolated());
        let counted: u64 = heaps.iter().flat_map(|heap| heap.classes()).map(|c| c.1.zspages).sum();
        assert_eq!(owned.len() as u64, counted, "Y4: zspages; {} without objects", others.len());
        owned
    }

    /// Asserts Y1 for live cells; returns how many cells name each zspage.
    fn check_cells(&self) -> HashMap<u32, u32> {
        let tables = &self.shared.tables;
        let mut named = HashMap::new();
        for index in tables.cells.indices() {
            let cell = tables.cells.at(index);
            let Place { class, zspage, object } = cell.place();
            *named.entry(zspage).or_insert(0) += 1;
            let record = tables.zspages.records.at(zspage);
            assert_eq!(record.class(), class, "Y1: class of cell {index}");
            if let Some(serial) = cell.live_serial()
                && cell.place() == (Place { class, zspage, object })
            {
                let spec = &tables.geometry.classes()[class];
                let header = tables.zspages.handle_hint(zspage, spec, object);
                let handle = Handle::new(index, serial);
                let gone = cell.live_serial() != Some(serial);
                assert!(header == Some(handle) || gone, "Y1: {header:?} for {handle:?}");
            }
        }
        named
    }
}
