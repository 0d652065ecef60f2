//! A shard: one lock around a heap, and a cell behind each handle. It is a pool by itself, but for
//! the choice between shards, which is the [`pool`](super::pool)'s. Objects that have an owner
//! ([`crate::owned`]) have no cell: what is said about holding a cell then applies to their owner.
//!
//! | call | takes |
//! |:--|:--|
//! | alloc | the lock, to take a place and a cell; the bytes are copied in after it |
//! | free | the lock, to give them back; the cell is held before |
//! | read | no lock: the cell's word pins the object |
//! | compaction | the lock for small steps, but not while objects are copied |
//!
//! A hold is a look-up in tables, and touches no object.
//!
//! - G1: a cell that is not free names a taken place, and no other cell does. The header of a live
//!   object's place is the cell's index, or its owner's key; that of any other place may be
//!   anything.
//! - G2: a place that is taken has a cell, or is an owned object's, of which `owned` is the count,
//!   or one of the two of a move (heap/F8).
//! - G3: a thread that holds a cell may wait for the lock; a thread that has the lock waits for no
//!   cell.
//! - G4: the lock is never held across the release of memory to the system, a copy of an object, or
//!   a reader's use of its bytes. Two system calls can happen under it: opening 16 MiB more of the
//!   arena, and at the end of a compaction one that returns the last pages of the open segment,
//!   fifteen at most.
//! - G5: `held` mirrors the figure under the lock as of the last change, `due` whether a release is
//!   worth it, and the shard's bit of the [`Crowd`] whether it is loose; all are read without it.
//!
//! Memory passes between threads without the lock only by cells, under cell/H1 to H4; their models
//! are those of [`crate::cell`], the release of pages against reuse is that of the arena. New is
//! that a mover finds a cell by a header that may be anything (G1): `models`.

use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::crowd::Crowd;
use super::heap::Heap;
use super::place::{Cell, OWNED, Place, Scale};
use crate::handle::{Handle, Serials};
use crate::memory::arena::Arena;
use crate::memory::frames::Frames;
use crate::memory::slab::{Records, Slab};
use crate::memory::source::Reservation;
use crate::pool::{AllocError, HandleError, PoolStats};
use crate::sync::spin::{Dead, SpinGuard, SpinLock};
use crate::sync::stat::LockStat;
use crate::units::PageCount;

/// Bytes of the smallest object in pools of 4 KiB pages, with its header.
const OBJECT_BYTES_MIN: usize = 8;

/// Bytes of address space for the cells of an arena of `arena_bytes`, at most `cells` of them.
pub(crate) fn cells_range_bytes(arena_bytes: usize, cells: usize) -> usize {
    Slab::<Cell>::range_bytes((arena_bytes / OBJECT_BYTES_MIN).min(cells).min(OWNED as usize))
}

/// See the module documentation. On cache lines of its own: pairs of lines are fetched together.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shard {
    pub(super) number: usize,
    /// The number of bits by which addresses distinguish it from others.
    pub(super) shard_bits: u32,
    pub(super) scale: Scale,
    pub(super) frames: Frames,
    pub(super) cells: Arc<Records<Cell>>,
    crowd: Arc<Crowd>,
    held: AtomicU64,
    due: AtomicBool,
    state: SpinLock<State>,
}

/// The data that the lock guards.
#[derive(Debug)]
pub(super) struct State {
    pub(super) heap: Heap,
    cells: Slab<Cell>,
    serials: Serials,
    objects: u64,
    /// Objects that have an owner.
    pub(super) owned: u64,
    payload_bytes: u64,
    pub(super) moved_total: u64,
    pub(super) pages_compacted_total: u64,
    /// The pool's copy of [`Heap::is_loose`].
    loose: bool,
}

/// An object that was taken and that no other thread knows yet.
pub(super) trait Take: Sized {
    /// Takes an object of `len` bytes; `None` if no hole fits and `grow` says no.
    fn take(
        state: &mut State,
        scale: Scale,
        len: usize,
        grow: impl FnOnce() -> bool,
    ) -> Result<Option<Self>, AllocError>;
}

/// An object that will have a handle: its cell is coming.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    handle: Handle,
    place: Place,
}

impl Take for Taken {
    #[inline]
    fn take(
        state: &mut State,
        scale: Scale,
        len: usize,
        grow: impl FnOnce() -> bool,
    ) -> Result<Option<Self>, AllocError> {
        let index = state.cells.take()?;
        let place = match state.take_place(scale, len, grow) {
            Ok(Some(place)) => place,
            other => {
                state.cells.put(index);
                return other.map(|_| None);
            }
        };
        let handle = Handle::new(index, state.serials.draw());
        state.cells.records().at(index).begin(handle.serial(), len, place);
        Ok(Some(Self { handle, place }))
    }
}

impl State {
    /// Bytes of all tables but the arena's.
    #[inline]
    fn table_bytes(&self) -> u64 {
        self.heap.bytes() + self.cells.bytes() + size_of::<Shard>() as u64
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

    /// Takes a place for an object of `len` bytes; `None` if no hole fits and `grow` says no.
    #[inline]
    pub(super) fn take_place(
        &mut self,
        scale: Scale,
        len: usize,
        grow: impl FnOnce() -> bool,
    ) -> Result<Option<Place>, AllocError> {
        let place = self.heap.take(scale.granules(len), grow)?;
        if place.is_some() {
            self.objects += 1;
            self.payload_bytes += len as u64;
        }
        Ok(place)
    }

    /// Returns the counters.
    pub(super) fn stats(&self) -> PoolStats {
        PoolStats {
            objects: self.objects,
            payload_bytes: self.payload_bytes,
            metadata_bytes: self.metadata_bytes(),
            freeable_pages: self.heap.freeable_pages(),
            pages_compacted_total: self.pages_compacted_total,
            objects_moved_total: self.moved_total,
            ..PoolStats::of_pages(&self.heap.arena)
        }
    }

    /// Gives back the place of an object, which the caller holds.
    #[inline]
    pub(super) fn give_place(&mut self, len: usize, place: Place) {
        self.heap.give(place);
        self.objects -= 1;
        self.payload_bytes -= len as u64;
    }
}

impl Shard {
    /// Returns an empty shard, the `number`th of those that `crowd` knows of and that addresses
    /// tell apart by `shard_bits`.
    pub(super) fn new(
        number: usize,
        shard_bits: u32,
        arena: Arena,
        cells: Arc<dyn Reservation>,
        crowd: Arc<Crowd>,
    ) -> Self {
        let (scale, frames) = (Scale::new(arena.page_size()), arena.frames());
        let state = State {
            heap: Heap::new(arena),
            cells: Slab::new(cells),
            serials: Serials::new(),
            objects: 0,
            owned: 0,
            payload_bytes: 0,
            moved_total: 0,
            pages_compacted_total: 0,
            loose: false,
        };
        Self {
            number,
            shard_bits,
            scale,
            frames,
            cells: Arc::clone(state.cells.records()),
            crowd,
            held: AtomicU64::new(state.held_bytes()),
            due: AtomicBool::new(false),
            state: SpinLock::new(state),
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> Result<SpinGuard<'_, State>, Dead> {
        self.state.lock()
    }

    /// Takes the lock for one of many steps, after others that wait for it.
    pub(super) fn lock_in_turn(&self) -> Result<SpinGuard<'_, State>, Dead> {
        self.state.lock_in_turn()
    }

    /// Returns whether the lock is taken at this moment.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.state.is_taken()
    }

    /// Unlocks after places and cells were taken or given back (G5). These change pages and tables
    /// only now and then.
    #[inline]
    pub(super) fn unlock_soon(&self, state: SpinGuard<'_, State>) {
        let resized = state.heap.is_resized() || state.cells.is_resized();
        if resized || state.heap.is_loose() != state.loose {
            return self.unlock(state);
        }
        debug_assert_eq!(self.held.load(Ordering::Relaxed), state.held_bytes(), "G5: held");
        debug_assert_eq!(self.due.load(Ordering::Relaxed), state.release_due(), "G5: due");
    }

    /// Unlocks after a change (G5).
    #[cold]
    pub(super) fn unlock(&self, mut state: SpinGuard<'_, State>) {
        state.heap.note_sizes();
        state.cells.note_size();
        let (held, due) = (state.held_bytes(), state.release_due());
        if state.heap.is_loose() != state.loose {
            state.loose = !state.loose;
            self.crowd.note_loose(self.number, state.loose);
        }
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
    pub(super) fn release_due(&self) {
        // Relaxed: a hint.
        if self.due.load(Ordering::Relaxed) {
            self.release(Arena::warm_keep);
        }
    }

    /// Returns idle memory to the system, all but the pages that `keep` says.
    #[cold]
    pub(super) fn release(&self, keep: impl Fn(&Arena) -> PageCount) {
        // A dead pool releases nothing any longer.
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

    /// Takes an object of `len` bytes, at least one and at most a page; `None` if no hole fits and
    /// `grow`, called under the lock, says no.
    #[inline]
    pub(super) fn take<T: Take>(
        &self,
        len: usize,
        grow: impl FnOnce() -> bool,
    ) -> Result<Option<T>, AllocError> {
        let mut state = self.lock()?;
        let taken = T::take(&mut state, self.scale, len, grow);
        self.unlock_soon(state);
        taken
    }

    /// Writes the payload of a taken object, which has as many bytes, and makes it known.
    #[inline]
    pub(super) fn fill(&self, taken: Taken, bytes: &[u8]) -> Handle {
        // SAFETY: the place has room for that many bytes; its cell is coming (cell/H1, G1).
        unsafe { self.copy_in(taken.place, bytes) };
        self.publish(taken)
    }

    /// Writes the first bytes of the payload at a place.
    ///
    /// # Safety
    /// It has room for as many, and this thread alone touches them.
    #[inline]
    pub(super) unsafe fn copy_in(&self, place: Place, bytes: &[u8]) {
        let target = self.payload(place, bytes.len()).cast::<u8>();
        // SAFETY: as the caller says; `bytes`, a live borrow, cannot overlap them.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// Makes a taken object, whose payload is written, known to its handle.
    #[inline]
    pub(super) fn publish(&self, Taken { handle, place }: Taken) -> Handle {
        self.frames.store_u32(self.scale.header(place), handle.index());
        self.cells.at(handle.index()).publish(place);
        handle
    }

    /// Returns the payload at a place, which the caller has pinned or held or just taken.
    #[inline]
    pub(super) fn payload(&self, place: Place, len: usize) -> NonNull<[u8]> {
        self.frames.payload(self.scale.payload(place), len)
    }

    /// Pins an object until [`Shard::unpin`] and returns its bytes.
    #[inline]
    pub(super) fn pin(&self, handle: Handle) -> Result<&[u8], HandleError> {
        let cell = self.cell(handle)?;
        let place = cell.pin(handle.serial())?;
        let bytes = self.payload(place, cell.len());
        // SAFETY: the bytes are those of a live object, initialised (frames start as zeros), and
        // pinned, so no thread writes or moves them until the caller unpins it (pool/P3, cell/H1).
        // The arena lives as long as `self`, which the slice borrows.
        Ok(unsafe { bytes.as_ref() })
    }

    /// Takes a pin back.
    #[inline]
    pub(super) fn unpin(&self, handle: Handle) {
        self.cells.at(handle.index()).unpin();
    }

    /// Frees an object.
    #[inline]
    pub(super) fn free(&self, handle: Handle) -> Result<(), HandleError> {
        let cell = self.cell(handle)?;
        let place = cell.hold(handle.serial())?;
        let len = cell.len();
        let mut state = self.lock().inspect_err(|_| cell.publish(place))?;
        state.give_place(len, place);
        state.cells.put(handle.index());
        self.unlock_soon(state);
        self.release_due();
        Ok(())
    }

    /// Returns the bytes that the shard holds.
    #[inline]
    pub(super) fn held_bytes(&self) -> u64 {
        // Relaxed: a figure for limits; it orders nothing.
        self.held.load(Ordering::Relaxed)
    }

    /// Counts in the lock from now on, or no longer.
    pub(super) fn watch(&self, on: bool) {
        self.state.watch(on);
    }

    /// Returns what the lock counted.
    pub(super) fn lock_stat(&self, name: &'static str) -> LockStat {
        self.state.stat(name, self.number)
    }

    /// Returns the counters of a shard whose lock can no longer be taken: they may be off by one
    /// change.
    #[cold]
    pub(super) fn stats_even_dead(&self) -> PoolStats {
        self.state.with_even_dead(State::stats)
    }

    /// Asserts G1 and G2 and all below; the caller has the lock.
    ///
    /// # Panics
    /// If one is broken.
    pub(super) fn check(&self, state: &State) {
        let places = state.heap.check();
        state.cells.check();
        let (mut named, mut cells) = (HashSet::new(), 0);
        for index in self.cells.indices() {
            let cell = self.cells.at(index);
            let place = cell.place();
            assert!(state.heap.is_taken(place), "G1: cell {index} names {place:?}");
            // A move may have changed the place since; no other thread then names it.
            assert!(named.insert(place), "G1: two cells name {place:?}");
            cells += 1;
            if cell.live_serial().is_some() && cell.place() == place {
                let header = self.frames.load_u32(self.scale.header(place));
                assert_eq!(header, index, "G1: header at {place:?}");
            }
        }
        assert_eq!(cells + state.owned, state.objects, "G2: cells and owned objects");
        assert_eq!(places, state.objects + state.heap.reserved(), "G2: places");
        assert_eq!(state.loose, self.crowd.is_loose(self.number), "G5: loose");
    }
}
