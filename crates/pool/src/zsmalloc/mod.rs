//! zsmalloc: objects of one size class packed into zspages, runs of pages that objects may
//! straddle; compaction moves objects under their handles.
//!
//! Geometry, fullness groups and both compaction algorithms are those of Linux's zsmalloc (see
//! the modules); the density is the kernel's on the same data.
//!
//! - `geometry`: size classes
//! - `fullness`: groups of zspages by how full they are
//! - `zspage`: objects and the free list inside a zspage
//! - `class`: the lists of a class
//! - `cell`: the word behind a handle
//! - `compact`: compaction
//!
//! Invariants:
//! - Y1: a live cell names a zspage and an object whose header (or huge record) holds the handle
//!   made of the cell's index and serial.
//! - Y2: a zspage with objects and not under compaction or reclaim is on the list of its group,
//!   unless it is huge; an empty one does not exist.
//! - Y3: `in_use` of a zspage counts its live objects; its other available ones are free.
//! - Y4: a class's counts are the sums over its zspages; the zspages' committed pages are the
//!   arena's used pages.
//! - Y5: with reclaim enabled, zspages are in the order of their last write, all but those under
//!   reclaim (the kernel's LRU of 6.2 to 6.4).
//!
//! Metadata: a cell of 16 bytes and a header of 8 an object, a record of 32 a zspage.

pub(crate) mod cell;
pub(crate) mod class;
pub(crate) mod compact;
pub(crate) mod fullness;
pub(crate) mod geometry;
pub(crate) mod zspage;

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::age::AgeOrder;
use crate::contract::{AllocError, HandleError, PoolStats};
use crate::core::{CompactCursor, CompactStep, Core, Victim};
use crate::frames::arena::Arena;
use crate::frames::source::Reservation;
use crate::handle::{Handle, Serials};
use crate::list::NIL;
use crate::options::PoolOptions;
use crate::pins::Pins;
use crate::slab::Slab;
use crate::units::PageCount;
use cell::{Cell, ZSPAGES_MAX};
use class::SizeClass;
use compact::Compaction;
use geometry::Geometry;
use zspage::{Commit, State, UNLISTED, Zspage, Zspages};

/// Bytes of the smallest object: an arena holds no more objects than it has multiples of it.
const OBJECT_BYTES_MIN: usize = 32;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Zsmalloc {
    arena: Arena,
    geometry: Geometry,
    classes: Vec<SizeClass>,
    zspages: Zspages,
    cells: Slab<Cell>,
    age: AgeOrder,
    serials: Serials,
    compaction: Compaction,
    commit: Commit,
    payload_bytes: u64,
    moved_total: u64,
    pages_compacted_total: u64,
}

impl Zsmalloc {
    /// Bytes of address space for the cells of an arena of `arena_bytes`.
    pub(crate) fn cells_range_bytes(arena_bytes: usize) -> usize {
        Slab::<Cell>::range_bytes((arena_bytes / OBJECT_BYTES_MIN).min(NIL as usize))
    }

    /// Bytes of address space for the zspages of an arena of `frames` frames.
    pub(crate) fn zspages_range_bytes(frames: usize) -> usize {
        Slab::<Zspage>::range_bytes(frames.min(ZSPAGES_MAX))
    }

    pub(crate) fn new(
        arena: Arena,
        cells: Arc<dyn Reservation>,
        zspages: Arc<dyn Reservation>,
        options: &PoolOptions,
    ) -> Self {
        let page_size = arena.page_size();
        let geometry = Geometry::new(page_size, options.chain, options.chooser);
        let new_class = |&spec| SizeClass::new(spec, options.grouping);
        Self {
            classes: geometry.classes().iter().map(new_class).collect(),
            geometry,
            zspages: Zspages { records: Slab::new(zspages), frames: arena.frames(), page_size },
            arena,
            cells: Slab::new(cells),
            age: AgeOrder::new(options.reclaim),
            serials: Serials::new(),
            compaction: options.compaction,
            commit: options.commit,
            payload_bytes: 0,
            moved_total: 0,
            pages_compacted_total: 0,
        }
    }

    /// Returns the cell of a live object.
    #[inline]
    fn find(&self, handle: Handle) -> Result<Cell, HandleError> {
        let cell = self.cells.get(handle.index()).filter(|cell| cell.serial() == handle.serial());
        cell.copied().ok_or(HandleError::Stale)
    }

    /// Returns offset and length of an object's payload.
    #[inline]
    fn payload(&self, cell: &Cell) -> (usize, usize) {
        let spec = &self.classes[cell.class()].spec;
        let zspage = self.zspages.records.at(cell.zspage());
        (self.zspages.payload(zspage, spec, cell.object()), spec.payload_max() - cell.slack())
    }

    /// Adds an empty, listed zspage, with at least one object available, to a class.
    #[cold]
    fn grow(&mut self, class: usize) -> Result<u32, AllocError> {
        let spec = self.classes[class].spec;
        let run = self.arena.take(spec.pages)?;
        let record = Zspages::record(run, class as u8);
        let inserted = self.zspages.records.insert(record);
        let index = inserted.inspect_err(|_| self.arena.put(run, spec.pages))?;
        if let Err(error) = self.zspages.extend(index, &spec, self.commit, &mut self.arena) {
            self.zspages.records.remove(index);
            self.arena.put(run, spec.pages);
            return Err(error.into());
        }
        self.classes[class].zspages += 1;
        self.classes[class].pages += u64::from(self.zspages.records.at(index).run().committed);
        self.classes[class].list(&mut self.zspages, index);
        self.age.add(index, NIL);
        Ok(index)
    }

    /// Makes sure that a zspage that is not full has an object available.
    #[inline]
    fn make_available(&mut self, class: usize, index: u32) -> Result<(), AllocError> {
        if !self.zspages.records.at(index).has_available() {
            let spec = self.classes[class].spec;
            let more = self.zspages.extend(index, &spec, self.commit, &mut self.arena)?;
            self.classes[class].pages += u64::from(more);
        }
        Ok(())
    }

    /// Frees an empty, unlisted zspage; returns its pages.
    #[cold]
    fn release_zspage(&mut self, index: u32) -> u64 {
        let zspage = *self.zspages.records.at(index);
        let (class, run) = (&mut self.classes[usize::from(zspage.class)], zspage.run());
        class.zspages -= 1;
        class.pages -= u64::from(run.committed);
        if zspage.state != State::UnderReclaim {
            self.age.remove(index);
        }
        self.zspages.records.remove(index);
        self.arena.put(run, class.spec.pages);
        run.committed.into()
    }

    fn table_bytes(&self) -> u64 {
        let classes = self.classes.len() * size_of::<SizeClass>();
        self.cells.bytes() + self.zspages.records.bytes() + self.age.bytes() + classes as u64
    }
}

impl Core for Zsmalloc {
    fn len_max(&self) -> usize {
        self.zspages.page_size.bytes()
    }

    fn huge_len(&self) -> usize {
        self.geometry.huge_class_size() as usize
    }

    #[inline]
    fn alloc(&mut self, len: usize) -> Result<(Handle, NonNull<[u8]>), AllocError> {
        let class = self.geometry.index_of(len);
        let spec = self.classes[class].spec;
        // The place is filled in below, once it is known that nothing fails any more.
        let (serial, slack) = (self.serials.draw(), spec.payload_max() - len);
        let index = self.cells.insert(Cell::new(serial, slack, class, 0, 0))?;
        let handle = Handle::new(index, serial);
        let zspage = match self.classes[class].fullest_with_room() {
            Some(zspage) => self.make_available(class, zspage).map(|()| zspage),
            None => self.grow(class),
        };
        let zspage = zspage.inspect_err(|_| self.cells.remove(index))?;
        let object = self.zspages.take(zspage, &spec, handle);
        *self.cells.at_mut(index) = Cell::new(serial, slack, class, zspage, object);
        if !spec.is_huge() {
            self.classes[class].relist(&mut self.zspages, zspage);
        }
        self.classes[class].in_use += 1;
        self.payload_bytes += len as u64;
        let at = self.zspages.payload(self.zspages.records.at(zspage), &spec, object);
        Ok((handle, self.zspages.frames.payload(at, len)))
    }

    #[inline]
    fn free(&mut self, handle: Handle, _: &Pins) -> Result<(), HandleError> {
        let cell = self.find(handle)?;
        let (class, index) = (cell.class(), cell.zspage());
        let spec = self.classes[class].spec;
        let under_reclaim = self.zspages.records.at(index).state == State::UnderReclaim;
        self.zspages.give(index, &spec, cell.object());
        self.cells.remove(handle.index());
        self.classes[class].in_use -= 1;
        self.payload_bytes -= (spec.payload_max() - cell.slack()) as u64;
        if under_reclaim {
            return Ok(());
        }
        if self.zspages.records.at(index).in_use == 0 {
            self.classes[class].unlist(&mut self.zspages, index);
            self.release_zspage(index);
        } else {
            self.classes[class].relist(&mut self.zspages, index);
        }
        Ok(())
    }

    #[inline]
    fn locate(&self, handle: Handle) -> Result<NonNull<[u8]>, HandleError> {
        let (at, len) = self.payload(&self.find(handle)?);
        Ok(self.zspages.frames.payload(at, len))
    }

    #[inline]
    fn touch(&mut self, handle: Handle) {
        let Ok(cell) = self.find(handle) else { return };
        if self.zspages.records.at(cell.zspage()).state != State::UnderReclaim {
            self.age.touch(cell.zspage());
        }
    }

    fn compact_step(&mut self, cursor: &mut CompactCursor, pins: &Pins) -> CompactStep {
        self.compact_class_step(cursor, pins)
    }

    fn begin_reclaim(&mut self) -> Option<Victim> {
        let (index, _) = self.age.oldest()?;
        self.age.remove(index);
        let class = &mut self.classes[usize::from(self.zspages.records.at(index).class)];
        class.unlist(&mut self.zspages, index);
        let record = self.zspages.records.at_mut(index);
        record.state = State::UnderReclaim;
        let (record, spec) = (*record, class.spec);
        let handles = |object| self.zspages.handle_of(&record, &spec, object);
        Some(Victim { id: index, handles: (0..spec.objects).filter_map(handles).collect() })
    }

    fn end_reclaim(&mut self, victim: &Victim) -> u64 {
        let index = victim.id;
        if self.zspages.records.at(index).in_use == 0 {
            return self.release_zspage(index);
        }
        let record = self.zspages.records.at_mut(index);
        record.state = State::Used;
        let class = usize::from(record.class);
        self.classes[class].list(&mut self.zspages, index);
        self.age.add(index, NIL);
        0
    }

    fn arena(&mut self) -> &mut Arena {
        &mut self.arena
    }

    #[inline]
    fn held_bytes(&self) -> u64 {
        self.arena.held_bytes() + self.table_bytes()
    }

    fn stats(&self) -> PoolStats {
        let freeable = self.classes.iter().map(SizeClass::freeable_pages).sum();
        PoolStats {
            objects: self.classes.iter().map(|class| class.in_use).sum(),
            payload_bytes: self.payload_bytes,
            metadata_bytes: self.arena.metadata_bytes() + self.table_bytes(),
            freeable_pages: PageCount(freeable),
            pages_compacted_total: self.pages_compacted_total,
            objects_moved_total: self.moved_total,
            ..self.arena.stats()
        }
    }

    fn check(&self) {
        self.arena.check();
        self.cells.check();
        self.zspages.records.check();
        let mut sums: HashMap<usize, (u64, u64, u64)> = HashMap::new();
        let (mut pages, mut unlisted) = (0_u64, 0);
        for index in self.zspages.records.indices() {
            let record = self.zspages.records.at(index);
            let spec = &self.classes[usize::from(record.class)].spec;
            self.check_zspage(index, record);
            let sum = sums.entry(record.class.into()).or_default();
            let committed = u64::from(record.run().committed);
            *sum = (sum.0 + 1, sum.1 + u64::from(record.in_use), sum.2 + committed);
            pages += committed;
            unlisted += usize::from(record.group == UNLISTED);
            assert!(
                record.group != UNLISTED || spec.is_huge() || record.state == State::UnderReclaim,
                "Y2"
            );
        }
        assert_eq!(pages, self.arena.used().0, "Y4: pages");
        let objects: u64 = self.classes.iter().map(|class| class.in_use).sum();
        assert_eq!(objects, self.cells.indices().count() as u64, "Y1: cells");
        let listed = self.classes.iter().map(|class| class.check(&self.zspages).len());
        let zspages = self.zspages.records.indices().count();
        assert_eq!(listed.sum::<usize>() + unlisted, zspages, "Y2: listed zspages");
        for (at, class) in self.classes.iter().enumerate() {
            let sum = sums.get(&at).copied().unwrap_or_default();
            assert_eq!((class.zspages, class.in_use, class.pages), sum, "Y4: class {at}");
        }
        if let Some(aged) = self.age.walk() {
            let live = |&index: &u32| self.zspages.records.get(index).is_some();
            assert!(aged.iter().all(live), "Y5: freed zspage in the age order");
        }
    }
}

impl Zsmalloc {
    /// Asserts Y1 and Y3 for one zspage.
    fn check_zspage(&self, index: u32, record: &Zspage) {
        let spec = &self.classes[usize::from(record.class)].spec;
        let mut live = 0;
        for object in 0..spec.objects {
            let Some(handle) = self.zspages.handle_of(record, spec, object) else {
                continue;
            };
            let cell = self.cells.at(handle.index());
            assert_eq!((cell.zspage(), cell.object()), (index, object), "Y1: {handle:?}");
            assert_eq!(cell.class(), usize::from(record.class), "Y1: class of {handle:?}");
            assert_eq!(cell.serial(), handle.serial(), "Y1: serial of {handle:?}");
            live += 1;
        }
        assert_eq!(u32::from(record.in_use), live, "Y3: live headers of zspage {index}");
        assert!(live > 0 || record.state == State::UnderReclaim, "Y2: zspage {index} is empty");
        self.zspages.check_free(record, spec);
    }
}
