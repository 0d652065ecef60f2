//! The pool: one lock around the heap, and a cell behind each handle.
//!
//! | call | takes |
//! |:--|:--|
//! | alloc | the lock, to take a place and a cell; the bytes are copied in after it |
//! | free | the lock, to give them back; the cell is held before |
//! | read, write | no lock: the cell's word pins or holds the object |
//! | compaction | the lock for small steps, but not while objects are copied |
//!
//! There is one lock for the whole pool, because holes have to be shared to be filled: a heap for
//! each CPU has its own holes of each length, and a pool of some megabytes has few. A hold is
//! a look-up in tables, and touches no object.
//!
//! - G1: a cell that is not free names a taken place, and no other cell does. The header of a live
//!   object's place is the cell's index; that of any other place may be anything.
//! - G2: a place that is taken has a cell, or is one of the two of a move (F8).
//! - G3: who holds a cell may wait for the lock; who has the lock waits for no cell.
//! - G4: the lock is the only one, never held across the release of memory to the system, a copy
//!   of an object, or a reader's use of its bytes. Two system calls can happen under it: opening
//!   16 MiB more of the arena, and at the end of a compaction one that returns the last pages of
//!   the open segment, seven at most.
//! - G5: `held` mirrors the figure under the lock as of the last change, and `due` whether a
//!   release is worth it; both are read without it.
//!
//! What passes between threads without the lock passes by cells, under H1 to H4; their models are
//! those of [`crate::cell`], the release of pages against reuse is that of the arena. New is that
//! a mover finds a cell by a header that may be anything (G1): `models`.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::heap::Heap;
use super::place::{Cell, Place, Scale};
use crate::handle::{Handle, Serials};
use crate::memory::arena::Arena;
use crate::memory::frames::Frames;
use crate::memory::list::NIL;
use crate::memory::slab::{Records, Slab};
use crate::memory::source::Reservation;
use crate::options::Contexts;
use crate::pool::{AllocError, HandleError, PinOwner, Pool, PoolStats, ReadGuard, check_len};
use crate::sync::gate::Gate;
use crate::sync::spin::{Dead, SpinGuard, SpinLock};
use crate::sync::stat::LockStat;
use crate::units::{PageCount, PageSize};

/// Bytes of the smallest object in pools of 4 KiB pages, with its header.
const OBJECT_BYTES_MIN: usize = 8;

/// Bytes of address space for the cells of an arena of `arena_bytes`.
pub(crate) fn cells_range_bytes(arena_bytes: usize) -> usize {
    Slab::<Cell>::range_bytes((arena_bytes / OBJECT_BYTES_MIN).min(NIL as usize))
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Fit {
    name: String,
    page_size: PageSize,
    pub(super) scale: Scale,
    pub(super) frames: Frames,
    pub(super) cells: Arc<Records<Cell>>,
    pub(super) gate: Gate,
    held: AtomicU64,
    due: AtomicBool,
    state: SpinLock<State>,
}

/// What the lock guards.
#[derive(Debug)]
pub(super) struct State {
    pub(super) heap: Heap,
    cells: Slab<Cell>,
    serials: Serials,
    objects: u64,
    payload_bytes: u64,
    pub(super) moved_total: u64,
    pub(super) pages_compacted_total: u64,
}

/// An object that was taken and that nobody knows yet: its cell is coming.
#[derive(Clone, Copy, Debug)]
struct Taken {
    handle: Handle,
    place: Place,
}

impl State {
    /// Bytes of all tables but the arena's.
    #[inline]
    fn table_bytes(&self) -> u64 {
        self.heap.bytes() + self.cells.bytes() + size_of::<Fit>() as u64
    }

    /// Bytes besides pages.
    fn metadata_bytes(&self) -> u64 {
        self.table_bytes() + self.heap.arena.metadata_bytes()
    }

    /// Bytes of pages, idle pages and tables.
    #[inline]
    fn held_bytes(&self) -> u64 {
        self.table_bytes() + self.heap.arena.held_bytes()
    }

    fn release_due(&self) -> bool {
        self.heap.arena.release_due() || self.cells.release_due()
    }

    /// Gives back what tables have too much; see [`Heap::trim`].
    pub(super) fn trim(&mut self, tight: bool) {
        self.heap.trim(tight);
        self.cells.trim();
    }

    /// Takes a place and a cell for an object of `len` bytes.
    #[inline]
    fn take(&mut self, scale: Scale, len: usize) -> Result<Taken, AllocError> {
        let index = self.cells.take()?;
        let place = match self.heap.take(scale.granules(len)) {
            Ok(place) => place,
            Err(error) => {
                self.cells.put(index);
                return Err(error.into());
            }
        };
        let handle = Handle::new(index, self.serials.draw());
        self.cells.records().at(index).begin(handle.serial(), len, place);
        self.objects += 1;
        self.payload_bytes += len as u64;
        Ok(Taken { handle, place })
    }

    /// Gives back the object and the cell `index`, which the caller holds.
    #[inline]
    fn give(&mut self, index: u32, len: usize, place: Place) {
        self.heap.give(place);
        self.cells.put(index);
        self.objects -= 1;
        self.payload_bytes -= len as u64;
    }
}

impl Fit {
    pub(crate) fn new(
        name: &str,
        arena: Arena,
        cells: Arc<dyn Reservation>,
        contexts: Contexts,
    ) -> Self {
        let (page_size, frames) = (arena.page_size(), arena.frames());
        let state = State {
            heap: Heap::new(arena),
            cells: Slab::new(cells),
            serials: Serials::new(),
            objects: 0,
            payload_bytes: 0,
            moved_total: 0,
            pages_compacted_total: 0,
        };
        Self {
            name: name.to_owned(),
            page_size,
            scale: Scale::new(page_size),
            frames,
            cells: Arc::clone(state.cells.records()),
            gate: Gate::new(contexts.is_single()),
            held: AtomicU64::new(state.held_bytes()),
            due: AtomicBool::new(false),
            state: SpinLock::new(state),
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> Result<SpinGuard<'_, State>, Dead> {
        self.state.lock()
    }

    /// Unlocks after a change (G5).
    #[inline]
    pub(super) fn unlock(&self, state: SpinGuard<'_, State>) {
        let (held, due) = (state.held_bytes(), state.release_due());
        // Relaxed: figures that order nothing; written only if they changed.
        if self.held.load(Ordering::Relaxed) != held {
            self.held.store(held, Ordering::Relaxed);
        }
        if self.due.load(Ordering::Relaxed) != due {
            self.due.store(due, Ordering::Relaxed);
        }
    }

    /// Returns idle memory to the system if that is due.
    #[inline]
    fn release_due(&self) {
        // Relaxed: a hint.
        if self.due.load(Ordering::Relaxed) {
            self.release(Arena::warm_keep);
        }
    }

    /// Returns idle memory to the system, all but the pages that `keep` says.
    #[cold]
    pub(super) fn release(&self, keep: impl Fn(&Arena) -> PageCount) {
        // A dead pool releases nothing any more.
        let Ok(mut state) = self.lock() else { return };
        let keep = keep(&state.heap.arena);
        let pages = state.heap.arena.begin_release(keep);
        let cells = state.cells.begin_release();
        self.unlock(state);
        pages.release();
        cells.release();
        let Ok(mut state) = self.lock() else { return };
        state.heap.arena.end_release(pages);
        state.cells.end_release(cells);
        self.unlock(state);
    }

    /// Returns the cell that a handle names, whatever its state.
    #[inline]
    fn cell(&self, handle: Handle) -> Result<&Cell, HandleError> {
        self.cells.get(handle.index()).ok_or(HandleError::Stale)
    }

    #[inline]
    fn take(&self, len: usize) -> Result<Taken, AllocError> {
        check_len(len, self.len_max())?;
        let mut state = self.lock()?;
        let taken = state.take(self.scale, len);
        self.unlock(state);
        taken
    }

    /// Makes a taken object, whose payload is written, known to its handle.
    #[inline]
    fn publish(&self, Taken { handle, place }: Taken) -> Handle {
        self.frames.store_u32(self.scale.header(place), handle.index());
        self.cells.at(handle.index()).publish(place);
        handle
    }

    /// Returns the payload at a place, which the caller has pinned or held or just taken.
    #[inline]
    fn payload(&self, place: Place, len: usize) -> NonNull<[u8]> {
        self.frames.payload(self.scale.payload(place), len)
    }
}

impl PinOwner for Fit {
    #[inline]
    fn unpin(&self, handle: Handle) {
        self.cells.at(handle.index()).unpin();
    }
}

impl Pool for Fit {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_max(&self) -> usize {
        self.page_size.bytes()
    }

    fn huge_len(&self) -> usize {
        // The shortest that takes as many granules as a page.
        self.page_size.bytes() - self.scale.granule_bytes() + 1
    }

    fn alloc(&self, len: usize) -> Result<Handle, AllocError> {
        Ok(self.publish(self.take(len)?))
    }

    fn insert(&self, bytes: &[u8]) -> Result<Handle, AllocError> {
        let taken = self.take(bytes.len())?;
        let target = self.payload(taken.place, bytes.len()).cast::<u8>();
        // SAFETY: the place has room for that many bytes; its cell is coming, so this thread alone
        // touches them (H1, G1), and `bytes`, a live borrow, cannot overlap them.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(self.publish(taken))
    }

    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<(), HandleError> {
        let cell = self.cell(handle)?;
        let place = cell.hold(handle.serial())?;
        let max = cell.len();
        if bytes.len() > max {
            cell.publish(place);
            return Err(HandleError::TooLong { len: bytes.len(), max });
        }
        let target = self.payload(place, max).cast::<u8>();
        // SAFETY: the object has at least that many bytes; this thread holds its cell (H1), and
        // `bytes`, a live borrow, cannot overlap them.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        cell.publish(place);
        Ok(())
    }

    fn read(&self, handle: Handle) -> Result<ReadGuard<'_>, HandleError> {
        let cell = self.cell(handle)?;
        let place = cell.pin(handle.serial())?;
        let bytes = self.payload(place, cell.len());
        // SAFETY: the bytes are those of a live object, initialised (frames start as zeros), and
        // pinned, so nobody writes or moves them until the guard is dropped (P3, H1). The arena
        // lives as long as `self`, which the guard borrows.
        let bytes = unsafe { bytes.as_ref() };
        Ok(ReadGuard::new(bytes, self, handle))
    }

    fn free(&self, handle: Handle) -> Result<(), HandleError> {
        let cell = self.cell(handle)?;
        let place = cell.hold(handle.serial())?;
        let len = cell.len();
        let mut state = self.lock().inspect_err(|_| cell.publish(place))?;
        state.give(handle.index(), len, place);
        self.unlock(state);
        self.release_due();
        Ok(())
    }

    fn compact_until(&self, pages: u64, stop: &AtomicBool) -> u64 {
        self.compact_within(pages, stop)
    }

    fn watch_locks(&self, on: bool) {
        self.state.watch(on);
    }

    fn lock_stats(&self) -> Vec<LockStat> {
        vec![self.state.stat("pool", 0)]
    }

    fn held_bytes(&self) -> u64 {
        // Relaxed: a figure for limits; it orders nothing.
        self.held.load(Ordering::Relaxed)
    }

    fn stats(&self) -> PoolStats {
        // A dead pool's counters may be off by one change; they are still the best there is.
        self.state.with_even_dead(|state| PoolStats {
            objects: state.objects,
            payload_bytes: state.payload_bytes,
            metadata_bytes: state.metadata_bytes(),
            freeable_pages: state.heap.freeable_pages(),
            pages_compacted_total: state.pages_compacted_total,
            objects_moved_total: state.moved_total,
            ..PoolStats::of_pages(&state.heap.arena)
        })
    }

    fn check(&self) {
        let Ok(state) = self.lock() else { panic!("pool {} is dead", self.name) };
        let places = state.heap.check();
        state.cells.check();
        let (mut named, mut cells) = (std::collections::HashSet::new(), 0);
        for index in self.cells.indices() {
            let cell = self.cells.at(index);
            let place = cell.place();
            assert!(state.heap.is_taken(place), "G1: cell {index} names {place:?}");
            // A move may have changed the place since; it is then one that nobody else names.
            assert!(named.insert(place), "G1: two cells name {place:?}");
            cells += 1;
            if cell.live_serial().is_some() && cell.place() == place {
                let header = self.frames.load_u32(self.scale.header(place));
                assert_eq!(header, index, "G1: header at {place:?}");
            }
        }
        assert_eq!(cells, state.objects, "G2: cells");
        assert_eq!(places, cells + state.heap.reserved(), "G2: places");
    }
}
