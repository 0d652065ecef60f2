//! Lock designs of zsmalloc: what heaps a pool has, which lock guards them, and what a call takes
//! when. Everything below the locks is the same for all: [`Heap`], the cells, [`Tables`].
//!
//! Each design is a file that says which kernel it follows and what its calls lock. Their common
//! part is here.
//!
//! - L1: locks are taken in the order migrate, heap (by index), depot ([`Rank`]).
//! - L2: no lock is held across the release of memory to the system, a hook or a reader's use of
//!   its bytes; `hierarchical` releases memory under the class lock, as the kernel it is
//!   measured for does.
//! - L3: a heap's zspages are looked at only with its lock held, but for `owner` and `first` in
//!   the record of a zspage of which the caller has pinned or held an object: as long as that
//!   lasts, the zspage is not released (heap/Y2), so `first` is right; `owner` may change, and is
//!   looked at again with the lock held.
//! - L4: a thread that takes a heap's lock first settles the heap's remote-free list, as far as it
//!   needs the heap's counts or its emptied zspages.
//! - L5: a panic under a lock marks the guarded data dead; every later call that needs it says so.
//!
//! [`Rank`]: crate::sync::order::Rank

pub(crate) mod class_index;
pub(crate) mod hierarchical;
pub(crate) mod per_cpu;
pub(crate) mod pool_lock;

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::handle::Handle;
use crate::memory::arena::Arena;
use crate::memory::list::NIL;
use crate::options::{PoolOptions, Release};
use crate::pool::{AllocError, HandleError};
use crate::sync::rw::RwGuard;
use crate::sync::spin::{Dead, SpinGuard, SpinLock};
use crate::sync::stat::LockStat;
use crate::units::PageCount;
use crate::zsmalloc::cell::{Cell, Place};
use crate::zsmalloc::heap::{Emptied, Going, Heap, Taken};
use crate::zsmalloc::remote_free::RemoteFrees;
use crate::zsmalloc::tables::{Padded, Tables};

/// The decisions of a lock design.
pub(crate) trait Design: Sized + Send + Sync + fmt::Debug + 'static {
    /// The name of its heaps' locks in statistics.
    const LOCK: &'static str;

    /// Cells that a heap gets from the depot at once.
    const CELLS_BATCH: usize;

    /// Whether objects move and memory is released with the locks held, as in the kernels that
    /// the design is measured for.
    const LOCKED_COPY: bool;

    /// When the memory of emptied zspages goes back to the system, if the options do not say.
    const RELEASE: Release = Release::InBatches;

    /// Returns the design for a pool with these heaps.
    fn new(heaps: usize) -> Self;

    /// Returns the classes of each heap: one each if the design does not say otherwise.
    fn heaps(classes: usize, _cpus: usize) -> Vec<Range<usize>> {
        (0..classes).map(|class| class..class + 1).collect()
    }

    /// Takes an object of `len` bytes of `class`, from the class's own heap.
    #[inline]
    fn alloc(&self, shared: &Shared, class: usize, len: usize) -> Result<Taken, AllocError> {
        shared.alloc_from(class, len, || shared.slots[class].heap.lock())
    }

    /// Pins a live object, for a read; without a lock if the design does not say otherwise.
    #[inline]
    fn pin(&self, shared: &Shared, handle: Handle) -> Result<Place, HandleError> {
        shared.pin(handle)
    }

    /// Frees a live object, under the lock of its class's own heap if the design does not say
    /// otherwise; returns the zspage that became empty, for [`Shared::shrink`].
    #[inline]
    fn free(&self, shared: &Shared, handle: Handle) -> Result<Option<Emptied>, HandleError> {
        shared.free(handle)
    }

    /// Locks what the zspages of one heap may be moved under.
    fn lock_for_moves<'a>(&'a self, shared: &'a Shared, heap: usize) -> Result<ForMoves<'a>, Dead> {
        Ok(ForMoves { heap: shared.lock(heap)?, _migrate: None })
    }

    /// Returns the heaps that have zspages of `class`.
    fn heaps_of(&self, _: &Shared, class: usize) -> Range<usize> {
        class..class + 1
    }

    /// Brings the zspages with room of `class` together in one heap, if it has several, and
    /// returns that.
    fn gather(&self, _: &Shared, _: usize) -> Option<usize> {
        None
    }

    /// Watches the locks that are not those of heaps.
    fn watch(&self, _: bool) {}

    /// Adds the statistics of these.
    fn stats(&self, _: &mut Vec<LockStat>) {}
}

/// A heap locked for compaction.
pub(crate) struct ForMoves<'a> {
    // Before `_migrate`: dropped first.
    pub(crate) heap: SpinGuard<'a, Heap>,
    _migrate: Option<RwGuard<'a>>,
}

/// A heap with its lock, and the objects that others freed for it. On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Slot {
    pub(crate) heap: SpinLock<Heap>,
    /// per-cpu: classes of which the heap has a zspage with room to spare, a bit each.
    spare: [crate::sync::plain::Plain64; 4],
    pub(crate) remote_frees: Padded<RemoteFrees>,
}

/// The state on which all calls of a pool work.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) tables: Tables,
    pub(crate) slots: Box<[Slot]>,
    release: Release,
    /// Bytes of the heaps themselves; an age order grows with the zspages.
    heap_bytes: AtomicU64,
}

impl Shared {
    pub(crate) fn new<D: Design>(tables: Tables, cpus: usize, options: &PoolOptions) -> Self {
        let classes = tables.geometry.classes().len();
        let heap = |(id, classes)| {
            let heap = Heap::new(id, classes, D::CELLS_BATCH, &tables, options);
            let remote_frees = Padded(RemoteFrees::new());
            Slot { heap: SpinLock::new(heap), spare: Default::default(), remote_frees }
        };
        let slots: Box<[Slot]> =
            D::heaps(classes, cpus).into_iter().enumerate().map(heap).collect();
        let beside = (size_of::<Slot>() - size_of::<Heap>()) as u64;
        let heap_bytes =
            slots.iter().map(|slot| slot.heap.with_even_dead(Heap::bytes) + beside).sum();
        let heap_bytes = AtomicU64::new(heap_bytes);
        Self { tables, slots, release: options.rules.release.unwrap_or(D::RELEASE), heap_bytes }
    }

    /// Bytes of the heaps themselves.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> u64 {
        // Relaxed: as where it is added to.
        self.heap_bytes.load(Ordering::Relaxed)
    }

    /// Returns the cell that a handle names, whatever its state.
    #[inline]
    pub(crate) fn cell(&self, handle: Handle) -> Result<&Cell, HandleError> {
        self.tables.cells.get(handle.index()).ok_or(HandleError::Stale)
    }

    /// Pins without any lock.
    #[inline]
    fn pin(&self, handle: Handle) -> Result<Place, HandleError> {
        self.cell(handle)?.pin(handle.serial())
    }

    /// Frees under the lock of the class's own heap, which the cell says.
    #[inline]
    fn free(&self, handle: Handle) -> Result<Option<Emptied>, HandleError> {
        let cell = self.cell(handle)?;
        let place = cell.hold(handle.serial())?;
        let heap = self.slots[place.class].heap.lock();
        let mut heap = heap.inspect_err(|_| cell.publish(place))?;
        Ok(self.give(&mut heap, handle, cell, place))
    }

    /// Locks a heap and settles its remote-free list.
    #[inline]
    pub(crate) fn lock(&self, heap: usize) -> Result<SpinGuard<'_, Heap>, Dead> {
        let slot = &self.slots[heap];
        let mut guard = slot.heap.lock()?;
        if !slot.remote_frees.0.is_empty() {
            self.settle(&mut guard);
        }
        Ok(guard)
    }

    /// Gives back the objects in the remote-free list of a locked heap; those whose zspage has
    /// another owner by now go on to that one.
    #[cold]
    pub(crate) fn settle(&self, heap: &mut Heap) {
        let mut next = self.slots[heap.id].remote_frees.0.take_all();
        while next != NIL {
            let cell = self.tables.cells.at(next);
            let (going, following) = (Going { cell: next, place: cell.place() }, cell.next_going());
            let owner = self.owner(going.place);
            if owner != heap.id {
                self.slots[owner].remote_frees.0.push(next, cell);
            } else if let Some(emptied) = heap.give(&self.tables, going) {
                self.tables.shrink(emptied.zspage);
            }
            next = following;
        }
    }

    /// Returns the heap that a zspage belongs to; valid until a lock is released or taken.
    #[inline]
    fn owner(&self, place: Place) -> usize {
        self.tables.zspages.records.at(place.zspage).owner.get().into()
    }

    /// Takes an object from the heap that `locked` locks, growing it if it has no room.
    #[inline]
    fn alloc_from<'a>(
        &'a self,
        class: usize,
        len: usize,
        locked: impl Fn() -> Result<SpinGuard<'a, Heap>, Dead>,
    ) -> Result<Taken, AllocError> {
        let taken = locked()?.take(&self.tables, class, len)?;
        match taken {
            Some(taken) => Ok(taken),
            None => self.alloc_grown(class, len, locked),
        }
    }

    /// Makes a zspage, with no heap locked, and takes its first object. Two threads may do so
    /// at a time; then there are two.
    #[cold]
    fn alloc_grown<'a>(
        &'a self,
        class: usize,
        len: usize,
        locked: impl Fn() -> Result<SpinGuard<'a, Heap>, Dead>,
    ) -> Result<Taken, AllocError> {
        let zspage = self.tables.grow(class)?;
        let taken = locked().map_err(AllocError::from).and_then(|mut heap| {
            let before = heap.bytes();
            let taken = heap.take_from_new(&self.tables, zspage, class, len);
            if heap.bytes() != before {
                // Relaxed: a figure for limits; it orders nothing.
                self.heap_bytes.fetch_add(heap.bytes() - before, Ordering::Relaxed);
            }
            taken
        });
        taken.inspect_err(|_| self.tables.shrink(zspage))
    }

    /// Gives back a held object under the lock of its heap.
    #[inline]
    fn give(&self, heap: &mut Heap, handle: Handle, cell: &Cell, place: Place) -> Option<Emptied> {
        cell.retire(NIL);
        heap.give(&self.tables, Going { cell: handle.index(), place })
    }

    /// Takes back an emptied zspage, and releases memory when the design says so.
    #[inline]
    pub(crate) fn shrink(&self, emptied: Option<Emptied>) {
        if let Some(emptied) = emptied {
            self.tables.shrink(emptied.zspage);
            if self.release == Release::AtOnce {
                self.tables.release(|_| PageCount::ZERO);
            }
        }
        if self.tables.release_due() {
            self.tables.release(Arena::warm_keep);
        }
    }
}
