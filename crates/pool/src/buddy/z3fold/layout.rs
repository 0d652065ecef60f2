//! The layout of a page of z3fold: which objects it has, where they lie, where another one fits.
//! All of it is in the page's header.

use crate::buddy::chunks::{CHUNKS, Field, HEADER_OWN, Headers, chunk_bytes};
use crate::memory::frames::Frames;
use crate::memory::list::NIL;
use crate::units::{FrameIndex, PageSize};

/// Bytes of the kernel's page header on 64-bit machines, which decide the header's chunks.
const KERNEL_HEADER_BYTES: usize = 88;

/// Where an object lies in its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Buddy {
    First = 0,
    Middle = 1,
    Last = 2,
    Headless = 3,
}

impl Buddy {
    /// The places in a page with a header, in the order in which reclaim evicts them.
    pub(super) const BUDDIES: [Self; 3] = [Self::Middle, Self::First, Self::Last];

    pub(super) const fn record_field(self) -> Field {
        Field(HEADER_OWN + 4 * self as usize)
    }

    const fn chunks_field(self) -> Field {
        Field(HEADER_OWN + 12 + 4 * self as usize)
    }
}

/// Chunk at which the middle object starts.
const MIDDLE_START: Field = Field(HEADER_OWN + 24);
/// The reason why a page with room is not on the lists of free chunks: one of the values below.
const STATE: Field = Field(HEADER_OWN + 28);

pub(super) const LISTED: u32 = 0;
pub(super) const WAITING: u32 = 1;
pub(super) const RECLAIM: u32 = 2;

const _: () = assert!(STATE.0 + 4 <= KERNEL_HEADER_BYTES, "the header fits its chunks");

/// How pages of one size are laid out, with access to their headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) headers: Headers,
    /// Bytes of a chunk.
    pub(super) chunk: usize,
    pub(super) header_chunks: usize,
}

impl Layout {
    pub(super) fn new(frames: Frames, page_size: PageSize) -> Self {
        let chunk = chunk_bytes(page_size);
        let header_chunks = KERNEL_HEADER_BYTES.div_ceil(chunk);
        Self { headers: Headers { frames, page_size }, chunk, header_chunks }
    }

    /// Writes the header of a page without objects.
    pub(super) fn init(&self, page: u32) {
        for place in Buddy::BUDDIES {
            self.headers.set(page, place.record_field(), NIL);
            self.headers.set(page, place.chunks_field(), 0);
        }
        self.headers.set(page, MIDDLE_START, 0);
        self.headers.set(page, STATE, LISTED);
    }

    pub(super) fn set_state(&self, page: u32, state: u32) {
        self.headers.set(page, STATE, state);
    }

    pub(super) fn set_middle_start(&self, page: u32, chunk: u32) {
        self.headers.set(page, MIDDLE_START, chunk);
    }

    /// Longest object in bytes that shares a page: it leaves at least one chunk.
    pub(super) fn shared_len_max(&self) -> usize {
        (CHUNKS - self.header_chunks - 1) * self.chunk
    }

    pub(super) fn record(&self, page: u32, place: Buddy) -> Option<u32> {
        Some(self.headers.get(page, place.record_field())).filter(|&index| index != NIL)
    }

    pub(super) fn chunks(&self, page: u32, place: Buddy) -> usize {
        self.headers.get(page, place.chunks_field()) as usize
    }

    pub(super) fn middle_start(&self, page: u32) -> usize {
        self.headers.get(page, MIDDLE_START) as usize
    }

    pub(super) fn buddies(&self, page: u32) -> impl Iterator<Item = Buddy> + '_ {
        Buddy::BUDDIES.into_iter().filter(move |&place| self.record(page, place).is_some())
    }

    /// First chunk of an object in a page with a header.
    pub(super) fn start_chunk(&self, page: u32, place: Buddy) -> usize {
        match place {
            Buddy::First => self.header_chunks,
            Buddy::Middle => self.middle_start(page),
            Buddy::Last => CHUNKS - self.chunks(page, Buddy::Last),
            Buddy::Headless => 0,
        }
    }

    pub(super) fn offset(&self, page: u32, place: Buddy) -> usize {
        let start = FrameIndex(page).offset(self.headers.page_size);
        start + self.start_chunk(page, place) * self.chunk
    }

    /// Chunks of the largest gap that another object can take; meaningless if there are three.
    pub(super) fn free_chunks(&self, page: u32) -> usize {
        let empty = |place| self.record(page, place).is_none();
        if empty(Buddy::Middle) {
            let used = self.chunks(page, Buddy::First) + self.chunks(page, Buddy::Last);
            return CHUNKS - self.header_chunks - used;
        }
        let (start, len) = (self.middle_start(page), self.chunks(page, Buddy::Middle));
        let before = if empty(Buddy::First) { start - self.header_chunks } else { 0 };
        let after = if empty(Buddy::Last) { CHUNKS - start - len } else { 0 };
        before.max(after)
    }

    /// Chooses the place of an object of `chunks` in a page that has room for it.
    pub(super) fn choose_place(&self, page: u32, chunks: usize) -> Buddy {
        let empty = |place| self.record(page, place).is_none();
        if empty(Buddy::Middle) {
            return match (empty(Buddy::First), empty(Buddy::Last)) {
                (true, _) => Buddy::First,
                (false, true) => Buddy::Last,
                (false, false) => Buddy::Middle,
            };
        }
        let before = self.middle_start(page) - self.header_chunks;
        if empty(Buddy::First) && chunks <= before { Buddy::First } else { Buddy::Last }
    }

    /// Writes an object of `chunks` into the header of a page that has room; returns its place.
    pub(super) fn put_object(&self, page: u32, chunks: usize, index: u32) -> Buddy {
        let place = self.choose_place(page, chunks);
        debug_assert!(self.record(page, place).is_none());
        if place == Buddy::Middle {
            let start = self.header_chunks + self.chunks(page, Buddy::First);
            self.headers.set(page, MIDDLE_START, start as u32);
        }
        self.headers.set(page, place.record_field(), index);
        self.headers.set(page, place.chunks_field(), chunks as u32);
        place
    }

    pub(super) fn take_object(&self, page: u32, place: Buddy) {
        self.headers.set(page, place.record_field(), NIL);
        self.headers.set(page, place.chunks_field(), 0);
    }

    pub(super) fn has_room(&self, page: u32) -> bool {
        (1..3).contains(&self.buddies(page).count())
    }

    pub(super) fn is_in(&self, state: u32, page: u32) -> bool {
        self.headers.get(page, STATE) == state
    }

    /// Asserts F3 for a page with a header.
    pub(super) fn check_overlap(&self, page: u32) {
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
}
