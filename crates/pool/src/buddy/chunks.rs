//! The common part of zbud and z3fold: pages cut into 64 chunks, described by a header in the page
//! itself, and lists of pages by their free chunks.

use crate::memory::frames::Frames;
use crate::memory::list::{Links, List};
use crate::units::{FrameIndex, PageSize};

/// Chunks of a page, of 64 bytes on a 4 KiB page.
pub(crate) const CHUNKS: usize = 64;

/// Returns the bytes of a chunk.
pub(crate) const fn chunk_bytes(page_size: PageSize) -> usize {
    page_size.bytes() / CHUNKS
}

/// A half-word of a page header, by its byte offset in the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field(pub(crate) usize);

/// Links of the list by free chunks lie in the first two half-words of every header.
const PREV: Field = Field(0);
const NEXT: Field = Field(4);
/// First byte of a header that its allocator may use as it likes.
pub(crate) const HEADER_OWN: usize = 8;

/// Access to the headers of pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    pub(crate) frames: Frames,
    pub(crate) page_size: PageSize,
}

impl Headers {
    fn at(&self, page: u32, offset: usize) -> usize {
        FrameIndex(page).offset(self.page_size) + offset
    }

    #[inline]
    pub(crate) fn get(&self, page: u32, field: Field) -> u32 {
        self.frames.load_u32(self.at(page, field.0))
    }

    #[inline]
    pub(crate) fn set(&self, page: u32, field: Field, value: u32) {
        self.frames.store_u32(self.at(page, field.0), value);
    }
}

impl Links for Headers {
    fn links(&self, node: u32) -> (u32, u32) {
        (self.get(node, PREV), self.get(node, NEXT))
    }
    fn set_prev(&mut self, node: u32, prev: u32) {
        self.set(node, PREV, prev);
    }
    fn set_next(&mut self, node: u32, next: u32) {
        self.set(node, NEXT, next);
    }
}

/// Pages with room ("unbuddied"), listed by how many free chunks they have.
#[derive(Debug)]
pub(crate) struct FreeLists {
    lists: [List; CHUNKS],
    /// Bit i: `lists[i]` has a page.
    filled: u64,
}

impl FreeLists {
    pub(crate) fn new() -> Self {
        Self { lists: [List::EMPTY; CHUNKS], filled: 0 }
    }

    /// Returns the most recently listed page of the fullest ones that have `chunks` free.
    #[inline]
    pub(crate) fn find(&self, chunks: usize) -> Option<(u32, usize)> {
        let fitting = self.filled & (u64::MAX << chunks);
        let free = fitting.trailing_zeros() as usize;
        Some((self.lists.get(free)?.first()?, free))
    }

    #[inline]
    pub(crate) fn push(&mut self, mut headers: Headers, page: u32, free: usize) {
        self.lists[free].push_front(&mut headers, page);
        self.filled |= 1 << free;
    }

    #[inline]
    pub(crate) fn remove(&mut self, mut headers: Headers, page: u32, free: usize) {
        self.lists[free].remove(&mut headers, page);
        if self.lists[free].first().is_none() {
            self.filled &= !(1 << free);
        }
    }

    /// Walks all lists; returns (page, free chunks) of each entry.
    ///
    /// # Panics
    /// If links or the bit set disagree.
    pub(crate) fn walk(&self, headers: Headers, limit: usize) -> Vec<(u32, usize)> {
        let mut pages = Vec::new();
        for (free, list) in self.lists.iter().enumerate() {
            let nodes = list.walk(&headers, limit);
            assert_eq!(nodes.is_empty(), self.filled >> free & 1 == 0, "bit of list {free}");
            pages.extend(nodes.into_iter().map(|page| (page, free)));
        }
        pages
    }
}
