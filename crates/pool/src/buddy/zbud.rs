//! zbud: at most two objects ("buddies") in a page, found by simple lists. Its geometry is that
//! of Linux 3.11 to 6.14, so that its density is, too.
//!
//! ```text
//!   chunk 0   1                                               63
//!   | header | first buddy -->     free      <-- last buddy   |
//! ```
//!
//! A page is 64 chunks; the header takes one. The first buddy starts behind the header, the last
//! one ends with the page, and what either leaves free is one gap. An object goes into the page
//! with the smallest gap that fits, the most recently used among equals.
//!
//! A handle is the place itself: page and side. Nothing ever moves.
//!
//! - Z1: a page is used iff one of its two serials is not zero; both are cleared before its run
//!   goes back to the arena.
//! - Z2: used pages with one object are on the list of their free chunks, pages with two are
//!   not; pages under reclaim are on none. (The kernel keeps the full ones on a list, too,
//!   that nothing reads.)
//! - Z3: with reclaim enabled, used pages are in the age order, all but those under reclaim.
//!
//! Differences from the kernel: length and serial of each object lie in the header, so that wrong
//! handles are refused and reads have their exact length. The header still fits its chunk.

use std::ptr::NonNull;

use crate::buddy::chunks::{CHUNKS, Field, FreeLists, HEADER_OWN, Headers, chunk_bytes};
use crate::buddy::core::{CompactStep, Core};
use crate::buddy::pins::Pins;
use crate::handle::{Handle, Serials};
use crate::memory::age::AgeOrder;
use crate::memory::arena::Arena;
use crate::memory::list::NIL;
use crate::pool::{AllocError, HandleError, PoolStats};
use crate::reclaim::Victim;
use crate::units::{FrameIndex, PageCount};

/// Chunks that objects can use.
const CHUNKS_USABLE: usize = CHUNKS - 1;

/// A buddy: which end of the page it lies at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    First = 0,
    Last = 1,
}

impl Side {
    const BOTH: [Self; 2] = [Self::First, Self::Last];

    const fn len_field(self) -> Field {
        Field(HEADER_OWN + 4 * self as usize)
    }

    const fn serial_field(self) -> Field {
        Field(HEADER_OWN + 8 + 4 * self as usize)
    }
}

/// Not zero while the page is under reclaim.
const RECLAIM: Field = Field(HEADER_OWN + 16);

const _: () = assert!(RECLAIM.0 + 4 <= 4096 / CHUNKS, "the header fits its chunk");

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Zbud {
    arena: Arena,
    headers: Headers,
    chunk: usize,
    unbuddied: FreeLists,
    age: AgeOrder,
    serials: Serials,
    objects: u64,
    payload_bytes: u64,
}

impl Zbud {
    pub(crate) fn new(arena: Arena, reclaim: bool) -> Self {
        let page_size = arena.page_size();
        Self {
            headers: Headers { frames: arena.frames(), page_size },
            chunk: chunk_bytes(page_size),
            arena,
            unbuddied: FreeLists::new(),
            age: AgeOrder::new(reclaim),
            serials: Serials::new(),
            objects: 0,
            payload_bytes: 0,
        }
    }

    fn len(&self, page: u32, side: Side) -> usize {
        self.headers.get(page, side.len_field()) as usize
    }

    fn has(&self, page: u32, side: Side) -> bool {
        self.headers.get(page, side.serial_field()) != 0
    }

    fn chunks(&self, len: usize) -> usize {
        len.div_ceil(self.chunk)
    }

    fn free_chunks(&self, page: u32) -> usize {
        let used = Side::BOTH.map(|side| self.chunks(self.len(page, side)));
        CHUNKS_USABLE - used[0] - used[1]
    }

    /// Byte offset in the arena of an object of `len` bytes.
    fn offset(&self, page: u32, side: Side, len: usize) -> usize {
        let start = FrameIndex(page).offset(self.headers.page_size);
        match side {
            Side::First => start + self.chunk,
            Side::Last => start + (CHUNKS - self.chunks(len)) * self.chunk,
        }
    }

    fn handle(&self, page: u32, side: Side) -> Handle {
        let serial = self.headers.get(page, side.serial_field());
        Handle::new(page << 1 | side as u32, serial)
    }

    /// Returns page and side of a live object.
    fn find(&self, handle: Handle) -> Result<(u32, Side), HandleError> {
        let page = handle.index() >> 1;
        let side = Side::BOTH[(handle.index() & 1) as usize];
        // A frame that was given back reads as zeros or has cleared serials (Z1).
        let live = page < self.arena.frames_fresh()
            && handle.is_of(self.headers.get(page, side.serial_field()));
        if live { Ok((page, side)) } else { Err(HandleError::Stale) }
    }

    fn new_page(&mut self) -> Result<u32, AllocError> {
        let FrameIndex(page) = self.arena.take_page()?;
        for side in Side::BOTH {
            self.headers.set(page, side.len_field(), 0);
            self.headers.set(page, side.serial_field(), 0);
        }
        self.headers.set(page, RECLAIM, 0);
        self.age.add(page, NIL);
        Ok(page)
    }

    fn buddies(&self, page: u32) -> usize {
        Side::BOTH.iter().filter(|&&side| self.has(page, side)).count()
    }

    /// Puts a page where its buddies say: on a list, on none, or back into the arena. Returns
    /// the pages freed.
    fn settle(&mut self, page: u32) -> u64 {
        match self.buddies(page) {
            0 => {
                self.arena.put_page(FrameIndex(page));
                return 1;
            }
            1 => self.unbuddied.push(self.headers, page, self.free_chunks(page)),
            _ => {}
        }
        0
    }
}

impl Core for Zbud {
    fn len_max(&self) -> usize {
        (CHUNKS_USABLE - 1) * self.chunk
    }

    fn huge_len(&self) -> usize {
        // Beside the longest object there is one chunk for another.
        self.len_max() + 1
    }

    fn alloc(&mut self, len: usize) -> Result<(Handle, NonNull<[u8]>), AllocError> {
        let page = match self.unbuddied.find(self.chunks(len)) {
            Some((page, free)) => {
                self.unbuddied.remove(self.headers, page, free);
                self.age.touch(page);
                page
            }
            None => self.new_page()?,
        };
        let side = if self.has(page, Side::First) { Side::Last } else { Side::First };
        debug_assert!(!self.has(page, side));
        self.headers.set(page, side.len_field(), len as u32);
        self.headers.set(page, side.serial_field(), self.serials.draw());
        self.settle(page);
        self.objects += 1;
        self.payload_bytes += len as u64;
        let bytes = self.headers.frames.payload(self.offset(page, side, len), len);
        Ok((self.handle(page, side), bytes))
    }

    fn free(&mut self, handle: Handle, _: &Pins) -> Result<(), HandleError> {
        let (page, side) = self.find(handle)?;
        let listed = self.buddies(page) == 1;
        let (len, free) = (self.len(page, side), self.free_chunks(page));
        self.objects -= 1;
        self.payload_bytes -= len as u64;
        self.headers.set(page, side.len_field(), 0);
        self.headers.set(page, side.serial_field(), 0);
        if self.headers.get(page, RECLAIM) != 0 {
            return Ok(());
        }
        if listed {
            self.unbuddied.remove(self.headers, page, free);
            self.age.remove(page);
        }
        self.settle(page);
        Ok(())
    }

    fn locate(&self, handle: Handle) -> Result<NonNull<[u8]>, HandleError> {
        let (page, side) = self.find(handle)?;
        let len = self.len(page, side);
        Ok(self.headers.frames.payload(self.offset(page, side, len), len))
    }

    fn compact_step(&mut self, _: &Pins) -> CompactStep {
        // Buddies coalesce with their gap when they are freed; nothing is left to do.
        CompactStep { freed: 0, done: true }
    }

    fn begin_reclaim(&mut self) -> Option<Victim> {
        let (page, _) = self.age.oldest()?;
        self.age.remove(page);
        if self.buddies(page) == 1 {
            self.unbuddied.remove(self.headers, page, self.free_chunks(page));
        }
        self.headers.set(page, RECLAIM, 1);
        let sides = Side::BOTH.into_iter().filter(|&side| self.has(page, side));
        Some(Victim { id: page, handles: sides.map(|side| self.handle(page, side)).collect() })
    }

    fn end_reclaim(&mut self, victim: &Victim) -> u64 {
        self.headers.set(victim.id, RECLAIM, 0);
        let freed = self.settle(victim.id);
        if freed == 0 {
            self.age.add(victim.id, NIL);
        }
        freed
    }

    fn arena(&mut self) -> &mut Arena {
        &mut self.arena
    }

    fn held_bytes(&self) -> u64 {
        self.arena.held_bytes() + self.age.bytes()
    }

    fn stats(&self) -> PoolStats {
        PoolStats {
            objects: self.objects,
            payload_bytes: self.payload_bytes,
            metadata_bytes: self.arena.metadata_bytes() + self.age.bytes(),
            ..PoolStats::of_pages(&self.arena)
        }
    }

    fn check(&self) {
        self.arena.check();
        let limit = self.arena.frames_fresh() as usize;
        let listed = self.unbuddied.walk(self.headers, limit);
        for &(page, free) in &listed {
            assert_eq!(self.buddies(page), 1, "Z2: page {page} is listed");
            assert_eq!(self.free_chunks(page), free, "Z2: page {page} is on the wrong list");
        }
        if let Some(aged) = self.age.walk() {
            let buddies: usize = aged.iter().map(|&page| self.buddies(page)).sum();
            let reclaimed = PageCount(aged.len() as u64) != self.arena.used();
            assert!(reclaimed || buddies as u64 == self.objects, "Z3: objects in aged pages");
            let singles = aged.iter().filter(|&&page| self.buddies(page) == 1).count();
            assert_eq!(singles, listed.len(), "Z2: pages with one buddy are listed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::source::PageSource;
    use crate::testing::HeapPages;
    use crate::units::PageSize;

    fn zbud() -> Zbud {
        let range = HeapPages.reserve(64 * 4096).unwrap();
        Zbud::new(Arena::new(range, PageSize::KIB4), true)
    }

    fn alloc(core: &mut Zbud, len: usize) -> Handle {
        core.alloc(len).unwrap().0
    }

    #[test]
    fn the_longest_object_is_3968_bytes() {
        assert_eq!(zbud().len_max(), 3968);
    }

    #[test]
    fn an_object_takes_the_smallest_gap_that_fits() {
        let mut zbud = zbud();
        let wide = alloc(&mut zbud, 1000);
        let narrow = alloc(&mut zbud, 3100);
        assert_eq!(zbud.arena.used(), PageCount(2), "3100 bytes do not fit beside 1000");
        let buddy = alloc(&mut zbud, 850);
        assert_eq!(buddy.index() >> 1, narrow.index() >> 1);
        let other = alloc(&mut zbud, 1200);
        assert_eq!(other.index() >> 1, wide.index() >> 1);
        zbud.check();
    }

    #[test]
    fn pages_never_outnumber_objects() {
        let mut zbud = zbud();
        for len in (1..3968).step_by(97) {
            alloc(&mut zbud, len);
            assert!(zbud.arena.used().0 <= zbud.objects);
        }
        zbud.check();
    }

    #[test]
    fn reclaim_takes_the_page_that_was_allocated_from_longest_ago() {
        let mut zbud = zbud();
        let pins = Pins::default();
        let (old, young) = (alloc(&mut zbud, 3900), alloc(&mut zbud, 3900));
        let victim = zbud.begin_reclaim().unwrap();
        assert_eq!(victim.handles, [old]);
        zbud.free(old, &pins).unwrap();
        assert_eq!(zbud.end_reclaim(&victim), 1);
        assert_eq!(zbud.begin_reclaim().unwrap().handles, [young]);
    }

    #[test]
    fn a_refused_page_goes_back_as_the_youngest() {
        let mut zbud = zbud();
        let (a, b) = (alloc(&mut zbud, 3900), alloc(&mut zbud, 2000));
        let victim = zbud.begin_reclaim().unwrap();
        assert_eq!(zbud.end_reclaim(&victim), 0);
        zbud.check();
        assert_eq!(zbud.begin_reclaim().unwrap().handles, [b]);
        assert!(zbud.locate(a).is_ok());
    }
}
