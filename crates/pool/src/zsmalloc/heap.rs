//! A heap: the single-threaded core of zsmalloc. It owns zspages of some size classes and finds,
//! takes and gives back objects in them.
//!
//! The lock designs differ in which heaps a pool has, and which calls lock them when: one heap with
//! all classes, a heap for each class, or one with all classes for each CPU. What heaps share is in
//! [`Tables`].
//!
//! - Y1: a cell that is not free names a zspage and a taken object; of a live one, the object's
//!   header (or huge record) holds the handle made of the cell's index and serial.
//! - Y2: a zspage with objects is on the list of its group in the heap that its record names,
//!   unless it is huge or isolated; an empty one does not exist.
//! - Y3: `in_use` of a zspage counts its taken objects; its other available ones are free.
//! - Y4: a heap's counts are the sums over its zspages; the committed pages of all zspages are
//!   the arena's used pages.
//! - Y5: with reclaim enabled, zspages are in the order of their last write, all but those under
//!   reclaim (the kernel's LRU of 6.2 to 6.4).
//!
//! Memory of objects is not touched here but for the free lists of zspages with more than 64
//! objects: headers and payloads are written and copied by the thread that holds the cell.

use crate::handle::{Handle, Serials};
use crate::memory::age::AgeOrder;
use crate::memory::list::NIL;
use crate::options::PoolOptions;
use crate::pool::AllocError;
use crate::reclaim::Victim;
use crate::zsmalloc::cell::Place;
use crate::zsmalloc::class::SizeClass;
use crate::zsmalloc::tables::Tables;
use crate::zsmalloc::zspage::State;

/// Zspages that compactions of one pool isolate at a time, at most, as far as reclaim cares.
const ISOLATED_MAX: usize = 16;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Heap {
    /// Which one of the pool's heaps: the `owner` in the records of its zspages.
    pub(crate) id: usize,
    /// The classes from `first_class` on.
    classes: Box<[SizeClass]>,
    first_class: usize,
    cells: CellCache,
    serials: Serials,
    age: AgeOrder,
    /// Lengths of the objects, taken less given back; a sum over heaps, one alone may be less
    /// than zero.
    pub(crate) payload_bytes: i64,
    pub(crate) moved_total: u64,
    pub(crate) pages_compacted_total: u64,
}

/// An object that was taken and that no other thread knows yet: its cell is coming.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) handle: Handle,
    pub(crate) place: Place,
    pub(crate) len: usize,
}

/// An object that no handle names any longer: its cell is going.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Going {
    pub(crate) cell: u32,
    pub(crate) place: Place,
}

/// An empty zspage that left its heap and waits for [`Tables::shrink`].
#[must_use = "its memory is lost otherwise"]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Emptied {
    pub(crate) zspage: u32,
    pub(crate) pages: u32,
}

impl Heap {
    /// Returns an empty heap of `classes`, counted in the geometry of `tables`.
    pub(crate) fn new(
        id: usize,
        classes: std::ops::Range<usize>,
        cells_batch: usize,
        tables: &Tables,
        options: &PoolOptions,
    ) -> Self {
        let first_class = classes.start;
        let new_class = |&spec| SizeClass::new(spec, options.rules.grouping);
        Self {
            id,
            classes: tables.geometry.classes()[classes].iter().map(new_class).collect(),
            first_class,
            cells: CellCache::new(cells_batch),
            serials: Serials::new(),
            age: AgeOrder::new(options.reclaim),
            payload_bytes: 0,
            moved_total: 0,
            pages_compacted_total: 0,
        }
    }

    /// Bytes that the heap takes itself.
    pub(crate) fn bytes(&self) -> u64 {
        let classes = self.classes.len() * size_of::<SizeClass>();
        (size_of::<Self>() + classes + self.cells.bytes()) as u64 + self.age.bytes()
    }

    #[inline]
    pub(crate) fn class(&mut self, class: usize) -> &mut SizeClass {
        &mut self.classes[class - self.first_class]
    }

    /// Returns the heap's classes, each with its position in the geometry.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (usize, &SizeClass)> {
        (self.first_class..).zip(&self.classes)
    }

    /// Takes an object of `len` bytes of `class`; `None` if no zspage has room.
    ///
    /// # Errors
    /// When the source has no memory for a page or a cell; nothing changes then.
    #[inline]
    pub(crate) fn take(
        &mut self,
        tables: &Tables,
        class: usize,
        len: usize,
    ) -> Result<Option<Taken>, AllocError> {
        let size_class = &mut self.classes[class - self.first_class];
        let Some(zspage) = size_class.fullest_with_room() else { return Ok(None) };
        let spec = size_class.spec;
        let cell = self.cells.pop(tables)?;
        let record = tables.zspages.records.at(zspage);
        if !record.has_available() {
            let extended = tables.extend(zspage, &spec);
            let pages = extended.inspect_err(|_| self.cells.push(tables, cell))?;
            size_class.pages += u64::from(pages);
        }
        let taken = self.begin(tables, cell, zspage, class, len);
        self.class(class).relist(&tables.zspages, zspage);
        self.age.touch(zspage);
        Ok(Some(taken))
    }

    /// Takes the only object of a new huge zspage, or the first of any other, which becomes
    /// this heap's.
    ///
    /// # Errors
    /// When there is no memory for a cell; the zspage stays with the caller then.
    pub(crate) fn take_from_new(
        &mut self,
        tables: &Tables,
        zspage: u32,
        class: usize,
        len: usize,
    ) -> Result<Taken, AllocError> {
        let cell = self.cells.pop(tables)?;
        let record = tables.zspages.records.at(zspage);
        record.owner.set(self.id as u8);
        let taken = self.begin(tables, cell, zspage, class, len);
        let size_class = self.class(class);
        size_class.zspages += 1;
        size_class.pages += u64::from(record.run().committed);
        size_class.list(&tables.zspages, zspage);
        self.age.add(zspage, NIL);
        Ok(taken)
    }

    /// Takes an available object of a zspage for `cell`, which is coming then.
    #[inline]
    fn begin(
        &mut self,
        tables: &Tables,
        cell: u32,
        zspage: u32,
        class: usize,
        len: usize,
    ) -> Taken {
        let handle = Handle::new(cell, self.serials.draw());
        self.payload_bytes += len as i64;
        let size_class = self.class(class);
        let spec = size_class.spec;
        size_class.in_use += 1;
        let object = tables.zspages.take(zspage, &spec, handle);
        let place = Place { class, zspage, object };
        tables.cells.at(cell).begin(handle.serial(), len, place);
        Taken { handle, place, len }
    }

    /// Gives back an object of a zspage of this heap, and its cell.
    #[inline]
    pub(crate) fn give(&mut self, tables: &Tables, going: Going) -> Option<Emptied> {
        let Going { cell, place } = going;
        self.payload_bytes -= tables.cells.at(cell).len() as i64;
        self.cells.push(tables, cell);
        self.give_object(tables, place)
    }

    /// Gives back an object whose cell is elsewhere by now, or going.
    #[inline]
    pub(crate) fn give_object(&mut self, tables: &Tables, place: Place) -> Option<Emptied> {
        let class = &mut self.classes[place.class - self.first_class];
        tables.zspages.give(place.zspage, &class.spec, place.object);
        class.in_use -= 1;
        let record = tables.zspages.records.at(place.zspage);
        debug_assert_eq!(usize::from(record.owner.get()), self.id);
        if record.is_isolated() {
            return None;
        }
        if record.in_use() > 0 {
            class.relist(&tables.zspages, place.zspage);
            return None;
        }
        class.unlist(&tables.zspages, place.zspage);
        self.age.remove(place.zspage);
        Some(self.dismiss(tables, place.class, place.zspage))
    }

    /// Lets an unlisted empty zspage go.
    fn dismiss(&mut self, tables: &Tables, class: usize, zspage: u32) -> Emptied {
        let pages = tables.zspages.records.at(zspage).run().committed;
        let class = self.class(class);
        class.zspages -= 1;
        class.pages -= u64::from(pages);
        Emptied { zspage, pages }
    }

    /// Takes the zspage that `choose` chooses off its list, to be put back by
    /// [`Heap::put_back`].
    pub(crate) fn isolate(
        &mut self,
        tables: &Tables,
        class: usize,
        choose: impl Fn(&SizeClass) -> Option<u32>,
    ) -> Option<u32> {
        let class = self.class(class);
        let zspage = choose(class)?;
        class.unlist(&tables.zspages, zspage);
        tables.zspages.records.at(zspage).set_state(State::Isolated);
        Some(zspage)
    }

    /// Lists an isolated zspage again, or releases it if it is empty.
    pub(crate) fn put_back(
        &mut self,
        tables: &Tables,
        class: usize,
        zspage: u32,
    ) -> Option<Emptied> {
        let record = tables.zspages.records.at(zspage);
        record.set_state(State::Used);
        if record.in_use() == 0 {
            self.age.remove(zspage);
            return Some(self.dismiss(tables, class, zspage));
        }
        self.class(class).list(&tables.zspages, zspage);
        None
    }

    /// Makes the first zspage with room, in the fullest group of `class`, the property of
    /// `other`; returns whether there was one.
    pub(crate) fn hand_over(&mut self, tables: &Tables, class: usize, other: &mut Self) -> bool {
        let Some(zspage) = self.class(class).fullest_with_room() else { return false };
        let record = tables.zspages.records.at(zspage);
        let (in_use, pages) = (u64::from(record.in_use()), u64::from(record.run().committed));
        let from = self.class(class);
        from.unlist(&tables.zspages, zspage);
        from.zspages -= 1;
        from.pages -= pages;
        from.in_use -= in_use;
        record.owner.set(other.id as u8);
        let to = other.class(class);
        to.zspages += 1;
        to.pages += pages;
        to.in_use += in_use;
        to.list(&tables.zspages, zspage);
        true
    }

    /// Takes the zspage that was written longest ago off its list and returns its live objects.
    pub(crate) fn begin_reclaim(&mut self, tables: &Tables) -> Option<Victim> {
        let record = |zspage| tables.zspages.records.at(zspage);
        let mut zspage = self.age.oldest()?.0;
        // Zspages that compaction works on have their turn later.
        for _ in 0..ISOLATED_MAX {
            if !record(zspage).is_isolated() {
                break;
            }
            self.age.touch(zspage);
            zspage = self.age.oldest()?.0;
        }
        if record(zspage).is_isolated() {
            return None;
        }
        self.age.remove(zspage);
        let class = record(zspage).class();
        self.class(class).unlist(&tables.zspages, zspage);
        record(zspage).set_state(State::UnderReclaim);
        let spec = self.class(class).spec;
        let handles = (0..spec.objects).filter_map(|object| {
            let handle = tables.zspages.handle_hint(zspage, &spec, object)?;
            let cell = tables.cells.get(handle.index())?;
            let live = cell.live_serial() == Some(handle.serial());
            (live && cell.place() == Place { class, zspage, object }).then_some(handle)
        });
        Some(Victim { id: zspage, handles: handles.collect() })
    }

    /// Ends the reclaim of `victim`: an empty zspage goes, any other is listed as the youngest.
    pub(crate) fn end_reclaim(&mut self, tables: &Tables, victim: &Victim) -> Option<Emptied> {
        self.age.add(victim.id, NIL);
        let class = tables.zspages.records.at(victim.id).class();
        self.put_back(tables, class, victim.id)
    }

    /// Returns all idle cells to the depot.
    pub(crate) fn trim(&mut self, tables: &Tables) {
        self.cells.flush(tables, 0);
    }

    /// Asserts Y2 of the lists, and Y5; returns the listed zspages.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub(crate) fn check(&self, tables: &Tables) -> Vec<u32> {
        if let Some(aged) = self.age.walk() {
            assert!(aged.iter().all(|&zspage| is_used(tables, zspage)), "Y5: freed zspage");
        }
        let listed = self.classes.iter().flat_map(|class| class.check(&tables.zspages));
        listed
            .inspect(|&zspage| {
                let owner = tables.zspages.records.at(zspage).owner.get();
                assert_eq!(usize::from(owner), self.id, "Y2: owner of zspage {zspage}");
            })
            .collect()
    }
}

fn is_used(tables: &Tables, zspage: u32) -> bool {
    crate::zsmalloc::tables::is_live(&tables.zspages.records, zspage)
}

/// Free cells at hand, so that the depot is asked only once for many.
#[derive(Debug)]
struct CellCache {
    cells: Vec<u32>,
    /// Cells that move to or from the depot at once; twice as many are kept at most.
    batch: usize,
}

impl CellCache {
    fn new(batch: usize) -> Self {
        Self { cells: Vec::with_capacity(2 * batch), batch }
    }

    fn bytes(&self) -> usize {
        self.cells.capacity() * size_of::<u32>()
    }

    #[inline]
    fn pop(&mut self, tables: &Tables) -> Result<u32, AllocError> {
        if self.cells.is_empty() {
            tables.take_cells(self.batch, &mut self.cells)?;
        }
        Ok(self.cells.pop().expect("at least one was taken"))
    }

    #[inline]
    fn push(&mut self, tables: &Tables, cell: u32) {
        tables.cells.at(cell).clear();
        if self.cells.len() == 2 * self.batch {
            self.flush(tables, self.batch);
        }
        self.cells.push(cell);
    }

    /// Returns all cells but the `keep` freed last to the depot.
    fn flush(&mut self, tables: &Tables, keep: usize) {
        let idle = self.cells.len().saturating_sub(keep);
        tables.put_cells(self.cells.drain(..idle));
    }
}
