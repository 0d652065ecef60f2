//! Zspages: runs of pages cut into objects of one size, with a free list inside the free ones.
//!
//! ```text
//!   page 0            page 1            page 2
//!   | object 0 | object 1 | object 2 | object 3 | ... | waste |
//!   object:  | header 8 | payload ...                 |
//!   header of a live object:  handle << 1 | 1
//!   header of a free object:  index of the next free one << 1   (all ones << 1: the last)
//! ```
//!
//! The pages are virtually contiguous, so an object that crosses a page border is one slice like
//! any other. Bit 0 of a header tells live from free: compaction and reclaim find objects by it.
//! A huge zspage has one object without a header; its record holds the handle instead.

use crate::frames::memory::Frames;
use crate::handle::Handle;
use crate::list::{Links, NIL};
use crate::slab::{Record, Slab};
use crate::units::{FrameIndex, PageSize};
use crate::zsmalloc::geometry::{ClassSpec, HEADER_BYTES};

const LIVE_BIT: u64 = 1;
const FREE_END: u32 = u32::MAX >> 1;

/// Group of a zspage that is on no list: under compaction or reclaim, or huge.
pub(crate) const UNLISTED: u8 = u8::MAX;

/// The record of a zspage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zspage {
    pub(crate) first: FrameIndex,
    prev: u32,
    next: u32,
    /// First free object.
    free: u32,
    pub(crate) in_use: u16,
    /// Position of its class in the geometry.
    pub(crate) class: u8,
    /// Fullness group of the list it is on, or [`UNLISTED`].
    pub(crate) group: u8,
    live: bool,
    pub(crate) under_reclaim: bool,
    /// Handle of a huge object, 0 if none.
    huge: u64,
}

// SAFETY: integers, and bools of which only `Zspage` values and zeros are ever stored; no drop;
// alignment 8.
unsafe impl Record for Zspage {
    fn next_free(&self) -> u32 {
        self.next
    }
    fn free(next: u32) -> Self {
        let first = FrameIndex(NIL);
        let (in_use, class, group) = (0, 0, UNLISTED);
        let (live, under_reclaim) = (false, false);
        Self { first, prev: NIL, next, free: 0, in_use, class, group, live, under_reclaim, huge: 0 }
    }
    fn is_live(&self) -> bool {
        self.live
    }
}

impl Links for Slab<Zspage> {
    fn links(&self, node: u32) -> (u32, u32) {
        let zspage = self.at(node);
        (zspage.prev, zspage.next)
    }
    fn set_prev(&mut self, node: u32, prev: u32) {
        self.at_mut(node).prev = prev;
    }
    fn set_next(&mut self, node: u32, next: u32) {
        self.at_mut(node).next = next;
    }
}

/// The records of all zspages together with the bytes they describe.
#[derive(Debug)]
pub(crate) struct Zspages {
    pub(crate) records: Slab<Zspage>,
    pub(crate) frames: Frames,
    pub(crate) page_size: PageSize,
}

impl Zspages {
    /// Returns a fresh, unlisted record for the run at `first`, with all its objects free.
    pub(crate) fn record(first: FrameIndex, class: u8) -> Zspage {
        Zspage { first, class, live: true, ..Zspage::free(NIL) }
    }

    /// Links all objects of a fresh zspage into its free list.
    pub(crate) fn link_objects(&self, zspage: &Zspage, spec: &ClassSpec) {
        if spec.is_huge() {
            return;
        }
        for object in 0..spec.objects {
            let next = if object + 1 < spec.objects { object + 1 } else { FREE_END };
            self.frames.store_u64(self.offset(zspage, spec, object), u64::from(next) << 1);
        }
    }

    /// Byte offset of an object in the arena, its header included.
    #[inline]
    pub(crate) fn offset(&self, zspage: &Zspage, spec: &ClassSpec, object: u32) -> usize {
        zspage.first.offset(self.page_size) + object as usize * spec.size as usize
    }

    /// Byte offset of an object's payload.
    #[inline]
    pub(crate) fn payload(&self, zspage: &Zspage, spec: &ClassSpec, object: u32) -> usize {
        let header = if spec.is_huge() { 0 } else { HEADER_BYTES };
        self.offset(zspage, spec, object) + header
    }

    /// Takes a free object of a zspage that has one, for `handle`; returns its index.
    #[inline]
    pub(crate) fn take(&mut self, index: u32, spec: &ClassSpec, handle: Handle) -> u32 {
        let zspage = *self.records.at(index);
        debug_assert!(u32::from(zspage.in_use) < spec.objects);
        self.records.at_mut(index).in_use += 1;
        if spec.is_huge() {
            self.records.at_mut(index).huge = handle.to_bits().get();
            return 0;
        }
        let at = self.offset(&zspage, spec, zspage.free);
        let header = self.frames.load_u64(at);
        debug_assert_eq!(header & LIVE_BIT, 0, "a free object");
        self.records.at_mut(index).free = (header >> 1) as u32;
        self.frames.store_u64(at, handle.to_bits().get() << 1 | LIVE_BIT);
        zspage.free
    }

    /// Puts a live object back on its zspage's free list.
    #[inline]
    pub(crate) fn give(&mut self, index: u32, spec: &ClassSpec, object: u32) {
        let zspage = *self.records.at(index);
        let record = self.records.at_mut(index);
        record.in_use -= 1;
        record.huge = 0;
        record.free = object;
        if !spec.is_huge() {
            let at = self.offset(&zspage, spec, object);
            self.frames.store_u64(at, u64::from(zspage.free) << 1);
        }
    }

    /// Returns the handle of an object, or `None` if it is free.
    #[inline]
    pub(crate) fn handle_of(
        &self,
        zspage: &Zspage,
        spec: &ClassSpec,
        object: u32,
    ) -> Option<Handle> {
        let bits = if spec.is_huge() {
            zspage.huge
        } else {
            let header = self.frames.load_u64(self.offset(zspage, spec, object));
            if header & LIVE_BIT == 0 {
                return None;
            }
            header >> 1
        };
        std::num::NonZeroU64::new(bits).map(Handle::from_bits)
    }

    /// Asserts that the free list of a zspage has exactly its free objects.
    pub(crate) fn check_free_list(&self, zspage: &Zspage, spec: &ClassSpec) {
        if spec.is_huge() {
            return;
        }
        let (mut next, mut free) = (zspage.free, 0);
        while next != FREE_END && free <= spec.objects {
            assert!(next < spec.objects, "free list leaves the zspage");
            let header = self.frames.load_u64(self.offset(zspage, spec, next));
            assert_eq!(header & LIVE_BIT, 0, "live object on the free list");
            (next, free) = ((header >> 1) as u32, free + 1);
        }
        assert_eq!(free + u32::from(zspage.in_use), spec.objects, "free list length");
    }
}
