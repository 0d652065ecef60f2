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

use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::age::AgeOrder;
use crate::chunks::{CHUNKS, Field, FreeLists, HEADER_OWN, Headers, chunk_bytes};
use crate::contract::{AllocError, HandleError, PoolStats};
use crate::core::{CompactStep, Core, Victim};
use crate::frames::arena::Arena;
use crate::frames::source::Reservation;
use crate::handle::{Handle, Serials};
use crate::list::{List, NIL};
use crate::pins::Pins;
use crate::slab::{Record, Slab};
use crate::sync::Plain32;
use crate::units::FrameIndex;

/// Bytes of the kernel's page header on 64-bit machines, which decide the header's chunks.
const KERNEL_HEADER_BYTES: usize = 88;

/// Smallest gap in chunks that sliding the middle object is worth.
const SLIDE_GAP_CHUNKS: usize = 3;

/// Pages that may wait for their optimisation; beyond that, `free` optimises at once.
const WAITING_MAX: usize = 256;

/// Waiting pages that are optimised in one go, and that are worth waking a thread for.
const OPTIMISE_BATCH: usize = 16;

/// Where an object lies in its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Place {
    First = 0,
    Middle = 1,
    Last = 2,
    Headless = 3,
}

impl Place {
    /// The places in a page with a header, in the order in which reclaim evicts them.
    const BUDDIES: [Self; 3] = [Self::Middle, Self::First, Self::Last];

    const fn record_field(self) -> Field {
        Field(HEADER_OWN + 4 * self as usize)
    }

    const fn chunks_field(self) -> Field {
        Field(HEADER_OWN + 12 + 4 * self as usize)
    }
}

/// Chunk at which the middle object starts.
const MIDDLE_START: Field = Field(HEADER_OWN + 24);
/// What keeps a page with room off the lists of free chunks: one of the values below.
const STATE: Field = Field(HEADER_OWN + 28);

const LISTED: u32 = 0;
const WAITING: u32 = 1;
const RECLAIM: u32 = 2;

const _: () = assert!(STATE.0 + 4 <= KERNEL_HEADER_BYTES, "the header fits its chunks");

/// What a handle stands for.
#[derive(Clone, Copy, Debug)]
struct Object {
    serial: u32,
    len: u32,
    page: u32,
    place: Place,
}

/// The record of an object; its serial is zero while it is free.
#[derive(Debug, Default)]
#[repr(C)]
struct ObjectRecord {
    serial: Plain32,
    len: Plain32,
    page: Plain32,
    place: Plain32,
}

impl ObjectRecord {
    fn get(&self) -> Object {
        let place = match self.place.get() {
            0 => Place::First,
            1 => Place::Middle,
            2 => Place::Last,
            _ => Place::Headless,
        };
        let (serial, len, page) = (self.serial.get(), self.len.get(), self.page.get());
        Object { serial, len, page, place }
    }

    fn set(&self, object: Object) {
        self.serial.set(object.serial);
        self.len.set(object.len);
        self.set_place(object.page, object.place);
    }

    fn set_place(&self, page: u32, place: Place) {
        self.page.set(page);
        self.place.set(place as u32);
    }
}

// SAFETY: atomics only; zeros are a free record; no drop; alignment 4, 16 bytes.
unsafe impl Record for ObjectRecord {
    fn next_free(&self) -> u32 {
        self.len.get()
    }
    fn set_free(&self, next: u32) {
        self.serial.set(0);
        self.len.set(next);
    }
    fn is_live(&self) -> bool {
        self.serial.get() != 0
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Z3fold {
    arena: Arena,
    headers: Headers,
    chunk: usize,
    header_chunks: usize,
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
        let page_size = arena.page_size();
        let chunk = chunk_bytes(page_size);
        Self {
            headers: Headers { frames: arena.frames(), page_size },
            chunk,
            header_chunks: KERNEL_HEADER_BYTES.div_ceil(chunk),
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

    /// Longest object in bytes that shares a page: it leaves at least one chunk.
    fn shared_len_max(&self) -> usize {
        (CHUNKS - self.header_chunks - 1) * self.chunk
    }

    fn record(&self, page: u32, place: Place) -> Option<u32> {
        Some(self.headers.get(page, place.record_field())).filter(|&index| index != NIL)
    }

    fn chunks(&self, page: u32, place: Place) -> usize {
        self.headers.get(page, place.chunks_field()) as usize
    }

    fn middle_start(&self, page: u32) -> usize {
        self.headers.get(page, MIDDLE_START) as usize
    }

    fn buddies(&self, page: u32) -> impl Iterator<Item = Place> + '_ {
        Place::BUDDIES.into_iter().filter(move |&place| self.record(page, place).is_some())
    }

    /// Returns the record index of a live object.
    fn find(&self, handle: Handle) -> Result<Object, HandleError> {
        let record = self.objects.records().get(handle.index()).ok_or(HandleError::Stale)?;
        let object = record.get();
        if object.serial == handle.serial() { Ok(object) } else { Err(HandleError::Stale) }
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

    /// First chunk of an object in a page with a header.
    fn start_chunk(&self, page: u32, place: Place) -> usize {
        match place {
            Place::First => self.header_chunks,
            Place::Middle => self.middle_start(page),
            Place::Last => CHUNKS - self.chunks(page, Place::Last),
            Place::Headless => 0,
        }
    }

    fn offset(&self, page: u32, place: Place) -> usize {
        let start = FrameIndex(page).offset(self.headers.page_size);
        start + self.start_chunk(page, place) * self.chunk
    }

    /// Chunks of the largest gap that another object can take; meaningless if there are three.
    fn free_chunks(&self, page: u32) -> usize {
        let empty = |place| self.record(page, place).is_none();
        if empty(Place::Middle) {
            let used = self.chunks(page, Place::First) + self.chunks(page, Place::Last);
            return CHUNKS - self.header_chunks - used;
        }
        let (start, len) = (self.middle_start(page), self.chunks(page, Place::Middle));
        let before = if empty(Place::First) { start - self.header_chunks } else { 0 };
        let after = if empty(Place::Last) { CHUNKS - start - len } else { 0 };
        before.max(after)
    }

    /// Chooses the place of an object of `chunks` in a page that has room for it.
    fn choose_place(&self, page: u32, chunks: usize) -> Place {
        let empty = |place| self.record(page, place).is_none();
        if empty(Place::Middle) {
            return match (empty(Place::First), empty(Place::Last)) {
                (true, _) => Place::First,
                (false, true) => Place::Last,
                (false, false) => Place::Middle,
            };
        }
        let before = self.middle_start(page) - self.header_chunks;
        if empty(Place::First) && chunks <= before { Place::First } else { Place::Last }
    }

    fn new_page(&mut self) -> Result<u32, AllocError> {
        let FrameIndex(page) = self.arena.take_page()?;
        for place in Place::BUDDIES {
            self.headers.set(page, place.record_field(), NIL);
            self.headers.set(page, place.chunks_field(), 0);
        }
        self.headers.set(page, MIDDLE_START, 0);
        self.headers.set(page, STATE, LISTED);
        self.age.add(page, NIL);
        Ok(page)
    }

    /// Writes an object of `chunks` into the header of a page that has room; returns its place.
    fn put_object(&mut self, page: u32, chunks: usize, index: u32) -> Place {
        let place = self.choose_place(page, chunks);
        debug_assert!(self.record(page, place).is_none());
        if place == Place::Middle {
            let start = self.header_chunks + self.chunks(page, Place::First);
            self.headers.set(page, MIDDLE_START, start as u32);
        }
        self.headers.set(page, place.record_field(), index);
        self.headers.set(page, place.chunks_field(), chunks as u32);
        place
    }

    fn take_object(&mut self, page: u32, place: Place) {
        self.headers.set(page, place.record_field(), NIL);
        self.headers.set(page, place.chunks_field(), 0);
    }

    fn has_room(&self, page: u32) -> bool {
        (1..3).contains(&self.buddies(page).count())
    }

    fn is_in(&self, state: u32, page: u32) -> bool {
        self.headers.get(page, STATE) == state
    }

    /// Lists a page that has room (F2).
    fn list(&mut self, page: u32) {
        if self.has_room(page) {
            self.unbuddied.push(self.headers, page, self.free_chunks(page));
        }
    }

    /// Returns an empty page to the arena.
    fn release_page(&mut self, page: u32) {
        self.age.remove(page);
        self.arena.put_page(FrameIndex(page));
    }

    /// Takes a page off its list, or out of those that wait, if it is on one.
    fn unlist(&mut self, page: u32) {
        if self.is_in(WAITING, page) {
            self.waiting.remove(&mut self.headers, page);
            self.waiting_pages -= 1;
            self.headers.set(page, STATE, LISTED);
        } else if self.has_room(page) {
            self.unbuddied.remove(self.headers, page, self.free_chunks(page));
        }
    }

    /// Has a page that has room and is on no list wait for its optimisation.
    fn wait(&mut self, page: u32) {
        self.headers.set(page, STATE, WAITING);
        self.waiting.push_front(&mut self.headers, page);
        self.waiting_pages += 1;
    }

    fn alloc_shared(&mut self, len: usize, index: u32) -> Result<(u32, Place), AllocError> {
        let chunks = len.div_ceil(self.chunk);
        let page = match self.unbuddied.find(chunks) {
            Some((page, free)) => {
                self.unbuddied.remove(self.headers, page, free);
                self.age.touch(page);
                page
            }
            None => self.new_page()?,
        };
        let place = self.put_object(page, chunks, index);
        self.list(page);
        Ok((page, place))
    }

    fn alloc_headless(&mut self, index: u32) -> Result<(u32, Place), AllocError> {
        let FrameIndex(page) = self.arena.take_page()?;
        self.age.add(page, index);
        Ok((page, Place::Headless))
    }

    /// Optimises the layout of a page that lost an object and is on no list; lists it or lets it
    /// go.
    fn optimise(&mut self, page: u32, pins: &Pins) {
        if self.buddies(page).count() == 0 || self.move_single(page, pins) {
            self.release_page(page);
        } else {
            self.slide_middle(page, pins);
            self.list(page);
        }
    }

    fn is_pinned(&self, page: u32, place: Place, pins: &Pins) -> bool {
        self.record(page, place).is_some_and(|index| pins.contains(self.handle(index)))
    }

    /// Moves the only object of a page into another page's gap; returns whether it did.
    fn move_single(&mut self, page: u32, pins: &Pins) -> bool {
        let mut buddies = self.buddies(page);
        let (Some(place), None) = (buddies.next(), buddies.next()) else {
            return false;
        };
        drop(buddies);
        let chunks = self.chunks(page, place);
        let Some((target, free)) = self.unbuddied.find(chunks) else {
            return false;
        };
        if self.is_pinned(page, place, pins) {
            return false;
        }
        self.unbuddied.remove(self.headers, target, free);
        let index = self.headers.get(page, place.record_field());
        let new_place = self.put_object(target, chunks, index);
        self.copy_object(self.offset(page, place), self.offset(target, new_place), chunks);
        self.take_object(page, place);
        self.objects.records().at(index).set_place(target, new_place);
        self.list(target);
        true
    }

    /// Moves the middle object where it joins the gaps of its page.
    fn slide_middle(&mut self, page: u32, pins: &Pins) {
        let middle = self.chunks(page, Place::Middle);
        if middle == 0 || self.is_pinned(page, Place::Middle, pins) {
            return;
        }
        let (first, last) = (self.chunks(page, Place::First), self.chunks(page, Place::Last));
        let start = self.middle_start(page);
        let from = self.offset(page, Place::Middle);
        let first_end = self.header_chunks + first;
        if first == 0 && last == 0 {
            let index = self.headers.get(page, Place::Middle.record_field());
            self.take_object(page, Place::Middle);
            let place = self.put_object(page, middle, index);
            self.copy_object(from, self.offset(page, place), middle);
            self.objects.records().at(index).set_place(page, place);
        } else if last == 0 && start - first_end >= SLIDE_GAP_CHUNKS {
            self.headers.set(page, MIDDLE_START, first_end as u32);
            self.copy_object(from, self.offset(page, Place::Middle), middle);
        } else if first == 0 && CHUNKS - last - start - middle >= SLIDE_GAP_CHUNKS {
            self.headers.set(page, MIDDLE_START, (CHUNKS - last - middle) as u32);
            self.copy_object(from, self.offset(page, Place::Middle), middle);
        }
    }

    fn copy_object(&mut self, from: usize, to: usize, chunks: usize) {
        self.moved_total += 1;
        // SAFETY: M1: the shell holds the lock, and callers have checked that the object is not
        // pinned; the target is a gap of the page (F3).
        unsafe { self.headers.frames.copy(from, to, chunks * self.chunk) };
    }

    /// Asserts F3 for a page with a header.
    fn check_overlap(&self, page: u32) {
        let mut ranges: Vec<_> = self
            .buddies(page)
            .map(|place| (self.start_chunk(page, place), self.chunks(page, place)))
            .collect();
        ranges.sort_unstable();
        let mut end = self.header_chunks;
        for (start, chunks) in ranges {
            assert!(start >= end && chunks > 0, "F3: objects of page {page} overlap");
            end = start + chunks;
        }
        assert!(end <= CHUNKS, "F3: an object leaves page {page}");
    }

    fn under_reclaim(&self, object: &Object) -> bool {
        match object.place {
            Place::Headless => self.headless_reclaim.contains(&object.page),
            _ => self.is_in(RECLAIM, object.page),
        }
    }
}

impl Core for Z3fold {
    fn len_max(&self) -> usize {
        self.headers.page_size.bytes()
    }

    fn huge_len(&self) -> usize {
        self.shared_len_max() + 1
    }

    fn alloc(&mut self, len: usize) -> Result<(Handle, NonNull<[u8]>), AllocError> {
        let serial = self.serials.draw();
        let index = self.objects.take()?;
        let placed = match len <= self.shared_len_max() {
            true => self.alloc_shared(len, index),
            false => self.alloc_headless(index),
        };
        let (page, place) = placed.inspect_err(|_| self.put_record(index))?;
        self.objects.records().at(index).set(Object { serial, len: len as u32, page, place });
        self.object_count += 1;
        self.payload_bytes += len as u64;
        let bytes = self.headers.frames.payload(self.offset(page, place), len);
        Ok((Handle::new(index, serial), bytes))
    }

    fn free(&mut self, handle: Handle, pins: &Pins) -> Result<(), HandleError> {
        let object = self.find(handle)?;
        let reclaiming = self.under_reclaim(&object);
        self.put_record(handle.index());
        self.object_count -= 1;
        self.payload_bytes -= u64::from(object.len);
        match (object.place, reclaiming) {
            (Place::Headless, true) => {}
            (Place::Headless, false) => self.release_page(object.page),
            (place, true) => self.take_object(object.page, place),
            (place, false) => {
                self.unlist(object.page);
                self.take_object(object.page, place);
                let put_off = self.deferred && self.waiting_pages < WAITING_MAX;
                if put_off && self.has_room(object.page) {
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
        let offset = self.offset(object.page, object.place);
        Ok(self.headers.frames.payload(offset, object.len as usize))
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
        self.headers.set(page, STATE, RECLAIM);
        let records = self.buddies(page).filter_map(|place| self.record(page, place));
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
                self.headers.set(page, STATE, LISTED);
                (NIL, self.buddies(page).count() == 0)
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
            ..self.arena.stats()
        }
    }

    fn check(&self) {
        self.arena.check();
        self.objects.check();
        let limit = self.arena.frames_fresh() as usize;
        let (mut pages, mut roomy) = (HashSet::new(), HashSet::new());
        for index in self.objects.records().indices() {
            let object = self.objects.records().at(index).get();
            assert!(pages.insert(object.page) || object.place != Place::Headless, "F1: shared");
            if object.place != Place::Headless {
                assert_eq!(self.record(object.page, object.place), Some(index), "F1: {object:?}");
                self.check_overlap(object.page);
                if !self.is_in(RECLAIM, object.page) {
                    roomy.insert(object.page);
                }
            }
        }
        if self.headless_reclaim.is_empty() {
            assert!(pages.len() as u64 <= self.arena.used().0, "F1: more pages than used");
        }
        let waiting = self.waiting.walk(&self.headers, limit);
        for &page in &waiting {
            assert!(self.is_in(WAITING, page) && self.has_room(page), "F2: page {page} waits");
        }
        assert_eq!(waiting.len(), self.waiting_pages, "F2: pages that wait");
        assert!(self.waiting_pages <= WAITING_MAX, "F2: too many pages wait");
        let listed = self.unbuddied.walk(self.headers, limit);
        for &(page, free) in &listed {
            assert!(self.is_in(LISTED, page) && self.has_room(page), "F2: page {page} is listed");
            assert_eq!(self.free_chunks(page), free, "F2: page {page} is on the wrong list");
        }
        let roomy = roomy.into_iter().filter(|&page| self.has_room(page));
        assert_eq!(roomy.count(), listed.len() + waiting.len(), "F2: a page with room is lost");
        if let Some(aged) = self.age.walk() {
            assert!(aged.len() as u64 <= self.arena.used().0, "F5: more pages aged than used");
            assert!(aged.iter().all(|page| pages.contains(page)), "F5: empty page in age order");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::source::{HeapPages, PageSource};
    use crate::units::{PageCount, PageSize};

    fn z3fold(page_size: PageSize) -> Z3fold {
        let arena = Arena::new(HeapPages.reserve(64 * page_size.bytes()).unwrap(), page_size);
        let records = HeapPages.reserve(64 << 10).unwrap();
        Z3fold::new(arena, records, true)
    }

    fn places(z3fold: &Z3fold, handles: &[Handle]) -> Vec<(u32, Place)> {
        let objects = handles.iter().map(|&handle| z3fold.find(handle).unwrap());
        objects.map(|object| (object.page, object.place)).collect()
    }

    fn alloc(core: &mut Z3fold, len: usize) -> Handle {
        core.alloc(len).unwrap().0
    }

    #[test]
    fn the_header_takes_the_kernels_chunks() {
        let shared = |size| z3fold(size).shared_len_max();
        assert_eq!(shared(PageSize::KIB4), 61 * 64);
        assert_eq!(shared(PageSize::KIB16), 62 * 256);
        assert_eq!(z3fold(PageSize::KIB64).len_max(), 65536);
    }

    #[test]
    fn three_objects_share_a_page_in_the_order_first_last_middle() {
        let mut z3fold = z3fold(PageSize::KIB4);
        let handles = [0; 3].map(|_| alloc(&mut z3fold, 1280));
        assert_eq!(
            places(&z3fold, &handles),
            [(0, Place::First), (0, Place::Last), (0, Place::Middle)]
        );
        z3fold.check();
        let fourth = alloc(&mut z3fold, 100);
        assert_eq!(places(&z3fold, &[fourth])[0].0, 1);
    }

    #[test]
    fn an_object_that_leaves_no_chunk_owns_its_page() {
        let mut z3fold = z3fold(PageSize::KIB4);
        let (shared, headless) = (alloc(&mut z3fold, 3904), alloc(&mut z3fold, 3905));
        assert_eq!(places(&z3fold, &[shared]), [(0, Place::First)]);
        assert_eq!(places(&z3fold, &[headless]), [(1, Place::Headless)]);
        z3fold.free(headless, &Pins::default()).unwrap();
        assert_eq!(z3fold.arena.used(), PageCount(1));
        z3fold.check();
    }

    #[test]
    fn a_lone_middle_object_becomes_the_first() {
        let mut z3fold = z3fold(PageSize::KIB4);
        let pins = Pins::default();
        let [first, last, middle] = [0; 3].map(|_| alloc(&mut z3fold, 1000));
        // SAFETY: the object has 1000 bytes, and nobody else uses this core.
        unsafe { z3fold.locate(middle).unwrap().as_mut() }.fill(7);
        z3fold.free(first, &pins).unwrap();
        z3fold.free(last, &pins).unwrap();
        assert_eq!(places(&z3fold, &[middle]), [(0, Place::First)]);
        let bytes = z3fold.locate(middle).unwrap();
        // SAFETY: nobody else uses this core.
        assert_eq!(unsafe { bytes.as_ref() }, [7; 1000]);
        z3fold.check();
    }

    #[test]
    fn the_middle_object_slides_only_over_gaps_of_three_chunks() {
        let pins = Pins::default();
        for (gap_chunks, slides) in [(2, false), (3, true)] {
            let mut z3fold = z3fold(PageSize::KIB4);
            // First of 10 chunks; last leaves `gap_chunks` between it and the middle.
            let first = alloc(&mut z3fold, 10 * 64);
            let last = alloc(&mut z3fold, (62 - 10 - 20 - gap_chunks) * 64);
            let middle = alloc(&mut z3fold, 20 * 64);
            z3fold.free(first, &pins).unwrap();
            let start = z3fold.middle_start(z3fold.find(middle).unwrap().page);
            assert_eq!(start, if slides { 12 + gap_chunks } else { 12 });
            assert!(z3fold.locate(last).is_ok());
            z3fold.check();
        }
    }

    #[test]
    fn a_single_object_moves_into_another_page_unless_it_is_pinned() {
        for pinned in [false, true] {
            let mut z3fold = z3fold(PageSize::KIB4);
            let big = alloc(&mut z3fold, 2600);
            let (a, b) = (alloc(&mut z3fold, 2000), alloc(&mut z3fold, 1800));
            let small = alloc(&mut z3fold, 900);
            assert_eq!(places(&z3fold, &[big, a, b, small]).iter().map(|p| p.0).max(), Some(1));
            let mut pins = Pins::default();
            if pinned {
                pins.add(b);
            }
            z3fold.free(small, &pins).unwrap();
            z3fold.free(big, &pins).unwrap();
            alloc(&mut z3fold, 1500);
            z3fold.free(a, &pins).unwrap();
            assert_eq!(z3fold.arena.used(), PageCount(if pinned { 2 } else { 1 }));
            z3fold.check();
        }
    }

    #[test]
    fn a_layout_that_is_put_off_waits_until_it_is_optimised() {
        let mut z3fold = z3fold(PageSize::KIB4);
        z3fold.defer_layout();
        let pins = Pins::default();
        let [first, last, middle] = [0; 3].map(|_| alloc(&mut z3fold, 1000));
        z3fold.free(first, &pins).unwrap();
        z3fold.free(last, &pins).unwrap();
        assert_eq!(places(&z3fold, &[middle]), [(0, Place::Middle)]);
        z3fold.check();
        let other = alloc(&mut z3fold, 1000);
        assert_eq!(places(&z3fold, &[other]), [(1, Place::First)], "a waiting page takes nothing");
        assert_eq!(z3fold.optimise_some(&pins), 0);
        assert_eq!(places(&z3fold, &[middle, other]), [(1, Place::Last), (1, Place::First)]);
        assert_eq!(z3fold.arena.used(), PageCount(1));
        z3fold.check();
    }

    #[test]
    fn a_page_that_empties_while_it_waits_leaves_at_once() {
        let mut z3fold = z3fold(PageSize::KIB4);
        z3fold.defer_layout();
        let pins = Pins::default();
        let handles = [0; 3].map(|_| alloc(&mut z3fold, 1000));
        for handle in handles {
            z3fold.free(handle, &pins).unwrap();
            z3fold.check();
        }
        assert_eq!(z3fold.arena.used(), PageCount::ZERO);
        assert_eq!(z3fold.waiting_pages, 0);
    }

    #[test]
    fn pages_wait_in_bounded_number_and_leave_in_batches() {
        let arena = Arena::new(HeapPages.reserve(4 << 20).unwrap(), PageSize::KIB4);
        let mut z3fold = Z3fold::new(arena, HeapPages.reserve(64 << 10).unwrap(), false);
        z3fold.defer_layout();
        let pins = Pins::default();
        // Pairs that fill a page; of the ones that stay, three do.
        let lens = [1000, 2900].into_iter().cycle();
        let handles: Vec<_> = lens.take(600).map(|len| alloc(&mut z3fold, len)).collect();
        for (n, pair) in (1..).zip(handles.chunks(2)) {
            z3fold.free(pair[1], &pins).unwrap();
            assert_eq!(z3fold.waiting_pages, n.min(WAITING_MAX));
            assert_eq!(z3fold.optimise_due(), n >= OPTIMISE_BATCH);
        }
        z3fold.check();
        let before = z3fold.arena.used();
        let step = z3fold.compact_step(&pins);
        assert_eq!(z3fold.waiting_pages, WAITING_MAX - OPTIMISE_BATCH);
        assert_eq!(step.freed, before.0 - z3fold.arena.used().0);
        assert!(!step.done && step.freed >= 10, "{step:?}: of three pages, two leave");
        while z3fold.optimise_some(&pins) > 0 {}
        assert_eq!(z3fold.arena.used(), PageCount(100));
        z3fold.check();
    }

    #[test]
    fn a_waiting_page_can_be_reclaimed() {
        let mut z3fold = z3fold(PageSize::KIB4);
        z3fold.defer_layout();
        let pins = Pins::default();
        let [first, last, middle] = [0; 3].map(|_| alloc(&mut z3fold, 1000));
        z3fold.free(first, &pins).unwrap();
        let victim = z3fold.begin_reclaim().unwrap();
        assert_eq!(victim.handles, [middle, last]);
        assert_eq!(z3fold.optimise_some(&pins), 0, "it waits no longer");
        z3fold.free(middle, &pins).unwrap();
        assert_eq!(z3fold.end_reclaim(&victim), 0, "one object stays");
        z3fold.check();
        z3fold.free(last, &pins).unwrap();
        assert_eq!(z3fold.arena.used(), PageCount::ZERO);
    }

    #[test]
    fn reclaim_evicts_middle_first_last_and_headless_pages_too() {
        let mut z3fold = z3fold(PageSize::KIB4);
        let pins = Pins::default();
        let [first, last, middle] = [0; 3].map(|_| alloc(&mut z3fold, 1000));
        let headless = alloc(&mut z3fold, 4096);
        let victim = z3fold.begin_reclaim().unwrap();
        assert_eq!(victim.handles, [middle, first, last]);
        victim.handles.iter().for_each(|&handle| z3fold.free(handle, &pins).unwrap());
        assert_eq!(z3fold.end_reclaim(&victim), 1);
        let victim = z3fold.begin_reclaim().unwrap();
        assert_eq!(victim.handles, [headless]);
        assert_eq!(z3fold.end_reclaim(&victim), 0, "refused");
        z3fold.free(headless, &pins).unwrap();
        assert_eq!(z3fold.arena.used(), PageCount::ZERO);
        z3fold.check();
    }
}
