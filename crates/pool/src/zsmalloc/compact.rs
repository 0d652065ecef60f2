//! Compaction: objects of sparse zspages move into fuller ones until no whole zspage's worth of
//! free objects is left in the class.
//!
//! It goes in steps of a few objects of one class. A step has three parts; the middle one needs no
//! lock, so a foreground call waits for the choosing or the accounting of a step, never for the
//! copying, unless it wants one of the very objects:
//!
//! ```text
//!   plan    heap locked   choose source and target, isolate them, hold the cells of some of the
//!                         source's objects, take places in the target
//!   run     no lock       copy, write headers, publish the cells at their new places
//!   finish  heap locked   give the old places back, list both zspages again
//! ```
//!
//! Both algorithms of the kernel are here, so that their published object-copy counts can be
//! compared. An object that is pinned, or on its way in or out, stays; its class is left alone
//! until the next compaction.
//!
//! - C1: an object moves only while its cell is held (cell/H1, cell/H2), so no read or free of it
//!   is under way, and it has one place at any time: the old one until `publish`, then the new
//!   one.
//! - C2: an isolated zspage has one compactor, which puts it back; no other thread releases it
//!   before.
//! - C3: `KeepTarget` moves objects from the zspage with fewer of them to the one with more, so
//!   that a compaction comes to an end whatever others do with the lists meanwhile.

use std::array;

use crate::handle::Handle;
use crate::options::zsmalloc::Compaction;
use crate::zsmalloc::cell::Place;
use crate::zsmalloc::class::SizeClass;
use crate::zsmalloc::geometry::ClassSpec;
use crate::zsmalloc::heap::{Emptied, Heap};
use crate::zsmalloc::tables::Tables;

/// Objects that one step moves at most. With twice as many, the steps' holds show in the slowest
/// thousandth of the calls beside them.
const STEP_OBJECTS: usize = 8;

/// A class under compaction by one thread.
#[derive(Debug)]
pub(crate) struct Compactor {
    pub(crate) class: usize,
    algorithm: Compaction,
    /// `PerSource`: the source at work, isolated, and the object to go on with.
    source: Option<(u32, u32)>,
    done: bool,
}

/// A step: what moves from where to where.
#[derive(Debug)]
pub(crate) struct Step {
    spec: ClassSpec,
    source: u32,
    target: u32,
    moves: [Move; STEP_OBJECTS],
    count: usize,
    /// Where to go on in the source.
    next: u32,
    /// Why no more objects move in this step.
    end: End,
    /// Pages that the target needed.
    pub(crate) pages: u32,
}

#[derive(Clone, Copy, Debug)]
struct Move {
    handle: Handle,
    from: Place,
    to: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Enough for one step.
    Long,
    /// The source has no object left that could move.
    Drained,
    /// The same, but some of its objects could not move.
    Stuck,
    /// The target is full.
    TargetFull,
    /// The target needs another page, and there is none.
    NoMemory,
}

impl Compactor {
    pub(crate) fn new(class: usize, algorithm: Compaction) -> Self {
        Self { class, algorithm, source: None, done: false }
    }

    /// Plans the next step; `None` if the class is done. The heap is locked.
    pub(crate) fn plan(&mut self, heap: &mut Heap, tables: &Tables) -> Option<Step> {
        if self.done {
            return None;
        }
        let class = self.class;
        let surplus = heap.class(class).surplus_zspages() > 0;
        let mut isolate =
            |choose: fn(&SizeClass) -> Option<u32>| heap.isolate(tables, class, choose);
        let (source, target) = match (self.source, self.algorithm) {
            (Some(at_work), _) => (Some(at_work), isolate(SizeClass::fullest_with_room)),
            (None, _) if !surplus => return None,
            (None, Compaction::PerSource) => {
                let source = isolate(SizeClass::emptiest);
                (source.map(|source| (source, 0)), isolate(SizeClass::fullest_with_room))
            }
            (None, Compaction::KeepTarget) => {
                let target = isolate(SizeClass::fullest_with_room);
                let source = isolate(SizeClass::emptiest);
                // Of one group, the one with fewer objects gives them away (C3).
                let in_use = |zspage: &u32| tables.zspages.records.at(*zspage).in_use();
                let swapped = source.as_ref().map(in_use) > target.as_ref().map(in_use);
                let (source, target) = if swapped { (target, source) } else { (source, target) };
                (source.map(|source| (source, 0)), target)
            }
        };
        let (Some(source), Some(target)) = (source, target) else {
            self.done = true;
            self.source = source;
            if let Some(target) = target {
                // It was listed a moment ago, with the heap locked: it has objects.
                let _listed = heap.put_back(tables, class, target);
            }
            return None;
        };
        Some(fill_step(heap, tables, class, source, target))
    }

    /// Ends a step whose objects have been moved. The heap is locked. Returns the zspage that
    /// became empty, if any.
    pub(crate) fn finish(
        &mut self,
        step: &Step,
        heap: &mut Heap,
        tables: &Tables,
    ) -> Option<Emptied> {
        for moved in &step.moves[..step.count] {
            let none = heap.give_object(tables, moved.from);
            debug_assert!(none.is_none(), "C2: the source is isolated");
        }
        heap.moved_total += step.count as u64;
        // It holds what was moved there, or what it held before.
        let mut emptied = heap.put_back(tables, self.class, step.target);
        let source_goes_on = self.algorithm == Compaction::PerSource
            && matches!(step.end, End::Long | End::TargetFull);
        self.done = matches!(step.end, End::Stuck | End::NoMemory);
        if source_goes_on {
            self.source = Some((step.source, step.next));
        } else {
            self.source = None;
            let gone = heap.put_back(tables, self.class, step.source);
            // Both at once only if others freed the rest of the target meanwhile.
            if let Some(target) = emptied.filter(|_| gone.is_some()) {
                tables.shrink(target.zspage);
            }
            self.done |= gone.is_none() && step.count == 0;
            emptied = gone.or(emptied);
        }
        let pages = emptied.map_or(0, |emptied| emptied.pages);
        heap.pages_compacted_total += u64::from(pages.saturating_sub(step.pages));
        emptied
    }

    /// Puts the source at work back. The heap is locked.
    pub(crate) fn end(&mut self, heap: &mut Heap, tables: &Tables) -> Option<Emptied> {
        let (source, _) = self.source.take()?;
        heap.put_back(tables, self.class, source)
    }
}

/// Holds objects of the source and takes places for them in the target; both are isolated.
fn fill_step(
    heap: &mut Heap,
    tables: &Tables,
    class: usize,
    (source, from): (u32, u32),
    target: u32,
) -> Step {
    let spec = heap.class(class).spec;
    let nothing = Place { class, zspage: source, object: 0 };
    let handle = Handle::new(0, 1);
    let mut step = Step {
        spec,
        source,
        target,
        moves: array::from_fn(|_| Move { handle, from: nothing, to: nothing }),
        count: 0,
        next: from,
        end: End::Drained,
        pages: 0,
    };
    let record = tables.zspages.records.at(target);
    while step.next < spec.objects {
        let from = Place { class, zspage: source, object: step.next };
        if let Some(handle) = tables.zspages.handle_hint(source, &spec, from.object) {
            if record.in_use() == spec.objects {
                step.end = End::TargetFull;
                break;
            }
            if step.count == STEP_OBJECTS {
                step.end = End::Long;
                break;
            }
            if !record.has_available() {
                let Ok(pages) = tables.extend(target, &spec) else {
                    step.end = End::NoMemory;
                    break;
                };
                heap.class(class).pages += u64::from(pages);
                step.pages += pages;
            }
            let cell = tables.cells.get(handle.index());
            if cell.is_some_and(|cell| cell.try_hold(handle.serial(), from)) {
                let object = tables.zspages.take(target, &spec, handle);
                heap.class(class).in_use += 1;
                let to = Place { class, zspage: target, object };
                step.moves[step.count] = Move { handle, from, to };
                step.count += 1;
            } else {
                step.end = End::Stuck;
            }
        }
        step.next += 1;
    }
    step
}

impl Step {
    /// Copies the objects and publishes their cells. Needs no lock.
    pub(crate) fn run(&self, tables: &Tables) {
        let payload = |place: Place| tables.zspages.payload(place.zspage, &self.spec, place.object);
        for Move { handle, from, to } in &self.moves[..self.count] {
            let cell = tables.cells.at(handle.index());
            let len = cell.len();
            // SAFETY: C1: this thread holds the cell (cell/H1), so no other thread touches the
            // object, and its new place was taken for it and is not known to any other yet.
            unsafe { tables.zspages.frames.copy(payload(*from), payload(*to), len) };
            tables.zspages.write_header(to.zspage, &self.spec, to.object, *handle);
            cell.publish(*to);
        }
        self.look_ahead(tables);
    }

    /// Looks at what the next step will look at with the heap locked, the headers and cells of the
    /// source's next objects, so that they are in the cache by then. The value may be stale, and is
    /// not used.
    fn look_ahead(&self, tables: &Tables) {
        let ahead = self.next..self.spec.objects.min(self.next + 2 * STEP_OBJECTS as u32);
        let seen = ahead
            .filter_map(|object| tables.zspages.handle_hint(self.source, &self.spec, object))
            .filter_map(|handle| tables.cells.get(handle.index()))
            .filter(|cell| cell.live_serial().is_some());
        std::hint::black_box(seen.count());
    }
}
