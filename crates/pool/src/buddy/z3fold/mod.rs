//! z3fold: at most three objects in a page, first, middle and last. Its geometry is that of
//! Linux 4.7 to 6.14 (with the inter-page step of 5.5), so that its density is, too.
//!
//! ```text
//!   chunk 0     2                                                   63
//!   | header  | first -->   gap   | middle |    gap      <-- last   |
//! ```
//!
//! A page is 64 chunks; the header takes as many as the kernel's 88 bytes need, two on 4 KiB
//! pages. The third object goes between the first and the last. An object that leaves no room
//! for another one, or nearly so, owns its page, without a header ("headless").
//!
//! When an object leaves a page that is not empty then, the page's layout is optimised: a single
//! object moves into a gap of another page, if one fits, and its page leaves; a lone middle
//! object becomes the first one; a middle object slides to the first or last one if that joins
//! two gaps of which the smaller has at least three chunks. This happens within `free`, or, where
//! a worker does it, later: until then the page waits, off the lists, as in the kernel.
//!
//! - F1: every object has a record; `place` says where it lies, and the header of its page names
//!   the record.
//! - F2: pages with a header and one or two objects are on the list of their free chunks, unless
//!   they wait for their optimisation (then they are in `waiting`, at most [`WAITING_MAX`]) or
//!   are under reclaim; all others are on none.
//! - F3: objects of a page do not overlap each other or the header.
//! - F4: a pinned object is never moved.
//! - F5: with reclaim enabled, used pages are in the age order, all but those under reclaim.
//!
//! Differences from the kernel: a handle names a record of 16 bytes instead of a slot in a record
//! of 64, so an object may move between pages any number of times (the kernel's pages with
//! foreign handles stay put); the number of pages that wait for their optimisation is bounded.

mod check;
mod layout;
mod optimise;
mod record;
#[cfg(test)]
mod tests;

use std::ptr::NonNull;
use std::sync::Arc;

use crate::buddy::chunks::FreeLists;
use crate::buddy::core::{CompactStep, Core};
use crate::buddy::pins::Pins;
use crate::buddy::z3fold::layout::{Buddy, LISTED, Layout, RECLAIM, WAITING};
use crate::buddy::z3fold::record::{Object, ObjectRecord};
use crate::handle::{Handle, Serials};
use crate::memory::age::AgeOrder;
use crate::memory::arena::Arena;
use crate::memory::list::{List, NIL};
use crate::memory::slab::Slab;
use crate::memory::source::Reservation;
use crate::pool::{AllocError, HandleError, PoolStats};
use crate::reclaim::Victim;
use crate::units::FrameIndex;

/// Pages that may wait for their optimisation; beyond that, `free` optimises at once.
const WAITING_MAX: usize = 256;

/// Waiting pages that are optimised in one go, and that are worth waking a thread for.
const OPTIMISE_BATCH: usize = 16;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Z3fold {
    arena: Arena,
    layout: Layout,
    objects: Slab<ObjectRecord>,
    unbuddied: FreeLists,
    /// Whether layout optimisation is put off.
    deferred: bool,
    /// Pages that wait for their optimisation, the latest first.
    waiting: List,
    waiting_pages: usize,
    age: AgeOrder,
    /// Headless pages under reclaim; they have no header to say so.
    headless_reclaim: Vec<u32>,
    serials: Serials,
    object_count: u64,
    payload_bytes: u64,
    moved_total: u64,
    compacted_total: u64,
}

impl Z3fold {
    /// Bytes of address space for the records of an arena of `frames` frames.
    pub(crate) fn records_range_bytes(frames: usize) -> usize {
        Slab::<ObjectRecord>::range_bytes(frames.saturating_mul(3).min(NIL as usize))
    }

    pub(crate) fn new(arena: Arena, records: Arc<dyn Reservation>, reclaim: bool) -> Self {
        Self {
            layout: Layout::new(arena.frames(), arena.page_size()),
            objects: Slab::new(records),
            unbuddied: FreeLists::new(),
            deferred: false,
            waiting: List::EMPTY,
            waiting_pages: 0,
            age: AgeOrder::new(reclaim),
            headless_reclaim: Vec::new(),
            serials: Serials::new(),
            object_count: 0,
            payload_bytes: 0,
            moved_total: 0,
            compacted_total: 0,
            arena,
        }
    }

    /// Returns the record index of a live object.
    fn find(&self, handle: Handle) -> Result<Object, HandleError> {
        let record = self.objects.records().get(handle.index()).ok_or(HandleError::Stale)?;
        let object = record.get();
        if handle.is_of(object.serial) { Ok(object) } else { Err(HandleError::Stale) }
    }

    /// Takes a record back; the page of a table chunk that has become empty leaves at once.
    fn put_record(&mut self, index: u32) {
        self.objects.put(index);
        if self.objects.release_due() {
            let chunks = self.objects.begin_release();
            chunks.release();
            self.objects.end_release(chunks);
        }
    }

    fn handle(&self, index: u32) -> Handle {
        Handle::new(index, self.objects.records().at(index).serial.get())
    }

    fn new_page(&mut self) -> Result<u32, AllocError> {
        let FrameIndex(page) = self.arena.take_page()?;
        self.layout.init(page);
        self.age.add(page, NIL);
        Ok(page)
    }

    /// Lists a page that has room (F2).
    fn list(&mut self, page: u32) {
        if self.layout.has_room(page) {
            self.unbuddied.push(self.layout.headers, page, self.layout.free_chunks(page));
        }
    }

    /// Returns an empty page to the arena.
    fn release_page(&mut self, page: u32) {
        self.age.remove(page);
        self.arena.put_page(FrameIndex(page));
    }

    /// Takes a page off its list, or out of those that wait, if it is on one.
    fn unlist(&mut self, page: u32) {
        if self.layout.is_in(WAITING, page) {
            self.waiting.remove(&mut self.layout.headers, page);
            self.waiting_pages -= 1;
            self.layout.set_state(page, LISTED);
        } else if self.layout.has_room(page) {
            self.unbuddied.remove(self.layout.headers, page, self.layout.free_chunks(page));
        }
    }

    /// Has a page that has room and is on no list wait for its optimisation.
    fn wait(&mut self, page: u32) {
        self.layout.set_state(page, WAITING);
        self.waiting.push_front(&mut self.layout.headers, page);
        self.waiting_pages += 1;
    }

    fn alloc_shared(&mut self, len: usize, index: u32) -> Result<(u32, Buddy), AllocError> {
        let chunks = len.div_ceil(self.layout.chunk);
        let page = match self.unbuddied.find(chunks) {
            Some((page, free)) => {
                self.unbuddied.remove(self.layout.headers, page, free);
                self.age.touch(page);
                page
            }
            None => self.new_page()?,
        };
        let place = self.layout.put_object(page, chunks, index);
        self.list(page);
        Ok((page, place))
    }

    fn alloc_headless(&mut self, index: u32) -> Result<(u32, Buddy), AllocError> {
        let FrameIndex(page) = self.arena.take_page()?;
        self.age.add(page, index);
        Ok((page, Buddy::Headless))
    }

    fn under_reclaim(&self, object: &Object) -> bool {
        match object.place {
            Buddy::Headless => self.headless_reclaim.contains(&object.page),
            _ => self.layout.is_in(RECLAIM, object.page),
        }
    }
}

impl Core for Z3fold {
    fn len_max(&self) -> usize {
        self.layout.headers.page_size.bytes()
    }

    fn huge_len(&self) -> usize {
        self.layout.shared_len_max() + 1
    }

    fn alloc(&mut self, len: usize) -> Result<(Handle, NonNull<[u8]>), AllocError> {
        let serial = self.serials.draw();
        let index = self.objects.take()?;
        let placed = match len <= self.layout.shared_len_max() {
            true => self.alloc_shared(len, index),
            false => self.alloc_headless(index),
        };
        let (page, place) = placed.inspect_err(|_| self.put_record(index))?;
        self.objects.records().at(index).set(Object { serial, len: len as u32, page, place });
        self.object_count += 1;
        self.payload_bytes += len as u64;
        let bytes = self.layout.headers.frames.payload(self.layout.offset(page, place), len);
        Ok((Handle::new(index, serial), bytes))
    }

    fn free(&mut self, handle: Handle, pins: &Pins) -> Result<(), HandleError> {
        let object = self.find(handle)?;
        let reclaiming = self.under_reclaim(&object);
        self.put_record(handle.index());
        self.object_count -= 1;
        self.payload_bytes -= u64::from(object.len);
        match (object.place, reclaiming) {
            (Buddy::Headless, true) => {}
            (Buddy::Headless, false) => self.release_page(object.page),
            (place, true) => self.layout.take_object(object.page, place),
            (place, false) => {
                self.unlist(object.page);
                self.layout.take_object(object.page, place);
                let put_off = self.deferred && self.waiting_pages < WAITING_MAX;
                if put_off && self.layout.has_room(object.page) {
                    self.wait(object.page);
                } else {
                    self.optimise(object.page, pins);
                }
            }
        }
        Ok(())
    }

    fn locate(&self, handle: Handle) -> Result<NonNull<[u8]>, HandleError> {
        let object = self.find(handle)?;
        let offset = self.layout.offset(object.page, object.place);
        Ok(self.layout.headers.frames.payload(offset, object.len as usize))
    }

    fn defer_layout(&mut self) {
        self.deferred = true;
    }

    fn optimise_due(&self) -> bool {
        self.waiting_pages >= OPTIMISE_BATCH
    }

    fn optimise_some(&mut self, pins: &Pins) -> usize {
        for _ in 0..OPTIMISE_BATCH {
            let Some(page) = self.waiting.last() else { break };
            self.unlist(page);
            self.optimise(page, pins);
        }
        self.waiting_pages
    }

    fn compact_step(&mut self, pins: &Pins) -> CompactStep {
        // A layout that does not wait has been optimised with the last free.
        let before = self.arena.used();
        let left = self.optimise_some(pins);
        let freed = before.0 - self.arena.used().0;
        self.compacted_total += freed;
        CompactStep { freed, done: left == 0 }
    }

    fn begin_reclaim(&mut self) -> Option<Victim> {
        let (page, note) = self.age.oldest()?;
        self.age.remove(page);
        if note != NIL {
            self.headless_reclaim.push(page);
            return Some(Victim { id: page, handles: vec![self.handle(note)] });
        }
        self.unlist(page);
        self.layout.set_state(page, RECLAIM);
        let records = self.layout.buddies(page).filter_map(|place| self.layout.record(page, place));
        Some(Victim { id: page, handles: records.map(|index| self.handle(index)).collect() })
    }

    fn end_reclaim(&mut self, victim: &Victim) -> u64 {
        let page = victim.id;
        let headless = self.headless_reclaim.iter().position(|&reclaimed| reclaimed == page);
        let (note, empty) = match headless {
            Some(at) => {
                self.headless_reclaim.swap_remove(at);
                let handle = victim.handles[0];
                (handle.index(), self.find(handle).is_err())
            }
            None => {
                self.layout.set_state(page, LISTED);
                (NIL, self.layout.buddies(page).count() == 0)
            }
        };
        if empty {
            self.arena.put_page(FrameIndex(page));
            return 1;
        }
        if headless.is_none() {
            self.list(page);
        }
        self.age.add(page, note);
        0
    }

    fn arena(&mut self) -> &mut Arena {
        &mut self.arena
    }

    fn held_bytes(&self) -> u64 {
        self.arena.held_bytes() + self.objects.bytes() + self.age.bytes()
    }

    fn stats(&self) -> PoolStats {
        let tables = self.objects.bytes() + self.age.bytes();
        PoolStats {
            objects: self.object_count,
            payload_bytes: self.payload_bytes,
            metadata_bytes: self.arena.metadata_bytes() + tables,
            pages_compacted_total: self.compacted_total,
            objects_moved_total: self.moved_total,
            ..PoolStats::of_pages(&self.arena)
        }
    }

    fn check(&self) {
        self.check_invariants();
    }
}
