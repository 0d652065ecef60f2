//! A growing table of small records that never move, named by index.
//!
//! Records lie in chunks of one page over reserved address space. A chunk's page is committed
//! with its first record and returned with its last, so that a table costs what it holds:
//!
//! ```text
//!   range:   | chunk 0 | chunk 1 | chunk 2 | ...           one page each
//!   index  = chunk * PER_CHUNK + position
//! ```
//!
//! - S1: records at positions below a chunk's `fresh` were written at least once; above it the
//!   bytes are zeros.
//! - S2: a chunk's free records form a list from `free`, through [`Record::next_free`].
//! - S3: a chunk is committed iff `fresh > 0`; one empty chunk may stay committed (`spare`), so
//!   that a table around a chunk's border does not call the system at every step.
//! - S4: chunks with room (`used < PER_CHUNK`) are on `roomy`; full ones are not.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::frames::source::{Reservation, SourceError};
use crate::list::{Links, List, NIL};

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 4 << 10;

/// A record that can lie in a [`Slab`].
///
/// # Safety
/// Any bytes that were once a value of the type, and all zeros, are a valid value; the type needs
/// no drop and its alignment is at most 8.
pub(crate) unsafe trait Record: Copy {
    /// Returns the link that `free` stored, while the record is free.
    fn next_free(&self) -> u32;
    /// Returns a free record that stores the link `next`.
    fn free(next: u32) -> Self;
    /// Returns whether this is not a value that `free` made, and not all zeros.
    fn is_live(&self) -> bool;
}

/// What is known of a chunk besides its records.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    prev: u32,
    next: u32,
    /// Position of the first free record below `fresh`, or [`FREE_END`].
    free: u16,
    used: u16,
    /// Records from this position on were never used.
    fresh: u16,
}

const FREE_END: u16 = u16::MAX;

impl Links for Vec<Chunk> {
    fn links(&self, node: u32) -> (u32, u32) {
        let chunk = &self[node as usize];
        (chunk.prev, chunk.next)
    }
    fn set_prev(&mut self, node: u32, prev: u32) {
        self[node as usize].prev = prev;
    }
    fn set_next(&mut self, node: u32, next: u32) {
        self[node as usize].next = next;
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    range: Arc<dyn Reservation>,
    /// First byte of the range.
    base: NonNull<u8>,
    chunks: Vec<Chunk>,
    chunks_max: usize,
    roomy: List,
    spare: Option<u32>,
    committed_chunks: usize,
    records: PhantomData<T>,
}

// SAFETY: the slab owns the records in its range as a Vec owns its elements, and they are plain
// data; `base` points into the range that `range` keeps alive.
unsafe impl<T: Record + Send> Send for Slab<T> {}

impl<T: Record> Slab<T> {
    const PER_CHUNK: usize = CHUNK_BYTES / size_of::<T>();

    /// Bytes of address space that a table of `records` needs.
    pub(crate) fn range_bytes(records: usize) -> usize {
        records.div_ceil(Self::PER_CHUNK) * CHUNK_BYTES
    }

    /// Returns an empty table over `range`.
    pub(crate) fn new(range: Arc<dyn Reservation>) -> Self {
        const { assert!(align_of::<T>() <= 8 && size_of::<T>() >= 8) };
        let chunks_max = (range.len() / CHUNK_BYTES).min((NIL as usize) / Self::PER_CHUNK);
        Self {
            base: range.base(),
            range,
            chunks: Vec::new(),
            chunks_max,
            roomy: List::EMPTY,
            spare: None,
            committed_chunks: 0,
            records: PhantomData,
        }
    }

    /// Bytes that the table holds.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        (self.committed_chunks * CHUNK_BYTES + self.chunks.capacity() * size_of::<Chunk>()) as u64
    }

    /// Stores `record` and returns its index.
    ///
    /// # Errors
    /// When the source has no memory or the range is used up; nothing changes then.
    #[inline]
    pub(crate) fn insert(&mut self, record: T) -> Result<u32, SourceError> {
        let at = match self.roomy.first() {
            Some(chunk) if self.chunks[chunk as usize].fresh > 0 => chunk,
            found => self.commit_chunk(found)?,
        };
        let first = at * Self::PER_CHUNK as u32;
        let index = match self.chunks[at as usize].free {
            FREE_END => {
                self.chunks[at as usize].fresh += 1;
                first + u32::from(self.chunks[at as usize].fresh) - 1
            }
            free => {
                let index = first + u32::from(free);
                self.chunks[at as usize].free = self.slot(index).next_free() as u16;
                index
            }
        };
        self.chunks[at as usize].used += 1;
        if usize::from(self.chunks[at as usize].used) == Self::PER_CHUNK {
            self.roomy.remove(&mut self.chunks, at);
        }
        if self.spare == Some(at) {
            self.spare = None;
        }
        *self.slot_mut(index) = record;
        Ok(index)
    }

    /// Commits the page of `found`, a chunk without one, or of a new chunk.
    #[cold]
    fn commit_chunk(&mut self, found: Option<u32>) -> Result<u32, SourceError> {
        let at = found.unwrap_or(self.chunks.len() as u32);
        if at as usize >= self.chunks_max {
            return Err(SourceError::Memory { bytes: CHUNK_BYTES });
        }
        self.range.commit(at as usize * CHUNK_BYTES, CHUNK_BYTES)?;
        if found.is_none() {
            self.chunks.push(Chunk { prev: NIL, next: NIL, free: FREE_END, used: 0, fresh: 0 });
            self.roomy.push_front(&mut self.chunks, at);
        }
        self.committed_chunks += 1;
        Ok(at)
    }

    /// Removes the live record at `index`.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        let at = index / Self::PER_CHUNK as u32;
        let position = (index % Self::PER_CHUNK as u32) as u16;
        debug_assert!(self.slot(index).is_live());
        let chunk = &mut self.chunks[at as usize];
        let next = std::mem::replace(&mut chunk.free, position);
        chunk.used -= 1;
        let used = usize::from(chunk.used);
        *self.slot_mut(index) = T::free(next.into());
        if used + 1 == Self::PER_CHUNK {
            self.roomy.push_front(&mut self.chunks, at);
        }
        if used == 0 {
            self.retire(at);
        }
    }

    /// Keeps the empty chunk `at` as the spare one, or returns its page.
    #[cold]
    fn retire(&mut self, at: u32) {
        if self.spare.is_none() {
            self.spare = Some(at);
            return;
        }
        // SAFETY: committed (S3), one whole page, and no record of it is live, so no reference
        // into it exists (`get` borrows the slab).
        unsafe { self.range.release(at as usize * CHUNK_BYTES, CHUNK_BYTES) };
        self.committed_chunks -= 1;
        let chunk = &mut self.chunks[at as usize];
        (chunk.free, chunk.fresh) = (FREE_END, 0);
        // Chunks without a page go last, so that room in committed ones is used first.
        self.roomy.remove(&mut self.chunks, at);
        match self.roomy.last() {
            Some(last) => self.roomy.insert_after(&mut self.chunks, last, at),
            None => self.roomy.push_front(&mut self.chunks, at),
        }
    }

    /// Returns the live record at `index`, or `None` for any other index.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let at = index as usize / Self::PER_CHUNK;
        let position = index as usize % Self::PER_CHUNK;
        if position >= usize::from(self.chunks.get(at)?.fresh) {
            return None;
        }
        Some(self.slot(index)).filter(|record| record.is_live())
    }

    /// Returns the record at `index`, which the caller knows to be live.
    ///
    /// # Panics
    /// If `index` never named a record.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> &T {
        self.check_index(index);
        let record = self.slot(index);
        debug_assert!(record.is_live());
        record
    }

    /// As [`Slab::at`], to change it.
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut T {
        self.check_index(index);
        let record = self.slot_mut(index);
        debug_assert!(record.is_live());
        record
    }

    #[inline]
    fn check_index(&self, index: u32) {
        let (at, position) = (index as usize / Self::PER_CHUNK, index as usize % Self::PER_CHUNK);
        assert!(position < usize::from(self.chunks[at].fresh), "index of a live record");
    }

    /// Returns the indices of all live records, in order. Walks the table.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        let end = (self.chunks.len() * Self::PER_CHUNK) as u32;
        (0..end).filter(|&index| self.get(index).is_some())
    }

    #[inline]
    fn pointer(&self, index: u32) -> *mut T {
        let (chunk, position) =
            (index as usize / Self::PER_CHUNK, index as usize % Self::PER_CHUNK);
        assert!(chunk < self.chunks.len(), "index of a record");
        // SAFETY: chunk < chunks.len() <= chunks_max, which the range has room for, and the
        // position is below PER_CHUNK.
        unsafe { self.base.add(chunk * CHUNK_BYTES + position * size_of::<T>()) }.as_ptr().cast()
    }

    /// The record at `index`, live or free; the chunk must be committed.
    #[inline]
    fn slot(&self, index: u32) -> &T {
        // SAFETY: in bounds, aligned (chunks are page aligned, records at multiples of their
        // size), committed because callers checked `fresh` (S3), and a valid value (S1, zeros
        // and old values are valid by `Record`); `&self` keeps writers away.
        unsafe { &*self.pointer(index) }
    }

    /// As `slot`, to change it.
    #[inline]
    fn slot_mut(&mut self, index: u32) -> &mut T {
        // SAFETY: as in `slot`; `&mut self` makes the access exclusive, and no other value maps
        // this range.
        unsafe { &mut *self.pointer(index) }
    }

    /// Asserts S2, S3 and S4.
    ///
    /// # Panics
    /// If one is broken.
    pub(crate) fn check(&self) {
        let committed = self.chunks.iter().filter(|chunk| chunk.fresh > 0).count();
        assert_eq!(committed, self.committed_chunks, "S3: committed chunks");
        for at in 0..self.chunks.len() {
            let chunk = self.chunks[at];
            let (mut free, mut next) = (0, chunk.free);
            while next != FREE_END {
                assert!(next < chunk.fresh && free < Self::PER_CHUNK, "S2: free list");
                let record = self.slot((at * Self::PER_CHUNK) as u32 + u32::from(next));
                assert!(!record.is_live(), "S2: live record is free");
                (free, next) = (free + 1, record.next_free() as u16);
            }
            assert_eq!(free + usize::from(chunk.used), usize::from(chunk.fresh), "S2: counts");
        }
        let chunks = self.chunks.len();
        let roomy = self.roomy.walk(&self.chunks, chunks);
        let full = |chunk: &Chunk| usize::from(chunk.used) == Self::PER_CHUNK;
        assert!(roomy.iter().all(|&at| !full(&self.chunks[at as usize])), "S4: full on roomy");
        assert_eq!(roomy.len(), self.chunks.iter().filter(|c| !full(c)).count(), "S4");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::source::{FailingPages, HeapPages, PageSource};

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Number(u64, u64);

    // SAFETY: two integers: any bytes are valid, no drop, alignment 8.
    unsafe impl Record for Number {
        fn next_free(&self) -> u32 {
            self.1 as u32
        }
        fn free(next: u32) -> Self {
            Self(0, next.into())
        }
        fn is_live(&self) -> bool {
            self.0 != 0
        }
    }

    fn slab(chunks: usize) -> Slab<Number> {
        Slab::new(HeapPages.reserve(chunks * CHUNK_BYTES).unwrap())
    }

    #[test]
    fn records_keep_their_index_and_value() {
        let mut slab = slab(8);
        let indices: Vec<_> = (1..=1000).map(|n| slab.insert(Number(n, n)).unwrap()).collect();
        for (n, &index) in (1..).zip(&indices) {
            assert_eq!(slab.get(index), Some(&Number(n, n)));
        }
        indices.iter().step_by(2).for_each(|&index| slab.remove(index));
        slab.check();
        assert_eq!(slab.get(indices[0]), None);
        assert_eq!(slab.at(indices[1]), &Number(2, 2));
        assert_eq!(slab.indices().count(), 500);
    }

    #[test]
    fn an_emptied_table_keeps_one_chunk() {
        let mut slab = slab(8);
        let indices: Vec<_> = (1..=2000).map(|n| slab.insert(Number(n, 0)).unwrap()).collect();
        let full = slab.committed_chunks;
        indices.iter().for_each(|&index| slab.remove(index));
        slab.check();
        assert_eq!((full, slab.committed_chunks), (8, 1));
        assert!(indices.iter().all(|&index| slab.get(index).is_none()));
        assert!(slab.insert(Number(5, 5)).is_ok());
        slab.check();
    }

    #[test]
    fn a_full_or_failing_table_refuses_and_keeps_what_it_has() {
        let mut full = slab(1);
        let held = (1..).map_while(|n| full.insert(Number(n, 0)).ok()).count();
        assert_eq!(held, CHUNK_BYTES / size_of::<Number>());
        full.check();

        let source = FailingPages::new(Arc::new(HeapPages), 0);
        let mut failing: Slab<Number> = Slab::new(source.reserve(8 * CHUNK_BYTES).unwrap());
        assert!(failing.insert(Number(1, 1)).is_err());
        failing.check();
        source.allow(1);
        assert!(failing.insert(Number(1, 1)).is_ok());
    }

    #[test]
    fn indices_that_were_never_given_out_name_nothing() {
        let slab = slab(2);
        assert!([0, 1, 511, 100_000, NIL].iter().all(|&index| slab.get(index).is_none()));
    }
}
