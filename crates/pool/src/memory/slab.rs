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
//! A table has two sides. [`Slab`] hands out indices and takes them back; it has one owner at a
//! time. [`Records`] finds the record of an index; any thread may use it at any time, because
//! records consist of atomics and a chunk that was committed once can be read for ever (as zeros,
//! once its page is returned).
//!
//! - S1: records at positions below a chunk's `fresh` were handed out at least once; above it the
//!   bytes are zeros.
//! - S2: a chunk's free records form a list from `free`, through [`Record::next_free`].
//! - S3: a chunk is committed iff `fresh > 0`; one empty chunk may stay committed (`spare`), so
//!   that a table around a chunk's border does not call the system at every step.
//! - S4: chunks with room (`used < PER_CHUNK`) are on `roomy`; full ones are not, nor are those
//!   whose page is on its way back to the system (`retired`, then in a [`Retired`] and counted as
//!   `in_flight`).
//! - S5: no thread reads the list of a chunk in flight: its links turn to zeros at any moment.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::memory::list::{Links, List, NIL};
use crate::memory::source::{Reservation, SourceError};

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 4 << 10;

/// A record that can lie in a [`Slab`].
///
/// # Safety
/// All zeros are a valid value; the type consists of atomics only (so that shared references may
/// live while the bytes change, also to zeros); it needs no drop, its alignment is at most 8 and
/// its size a power of two from 8 bytes up.
pub(crate) unsafe trait Record: Sync {
    /// Returns the link that `set_free` stored, while the record is free.
    fn next_free(&self) -> u32;
    /// Makes this a free record that stores the link `next`.
    fn set_free(&self, next: u32);
    /// Returns whether this is in use: not what `set_free` made, and not all zeros.
    fn is_live(&self) -> bool;
}

/// The records of a table, for all threads.
#[derive(Debug)]
pub(crate) struct Records<T> {
    range: Arc<dyn Reservation>,
    /// First byte of the range.
    base: NonNull<u8>,
    /// Records in chunks that were committed at least once: these can be read.
    opened: AtomicU32,
    records: PhantomData<T>,
}

// SAFETY: `base` points into the range that `range` keeps alive, and the records there are `Sync`.
unsafe impl<T: Record> Send for Records<T> {}
// SAFETY: as for Send.
unsafe impl<T: Record> Sync for Records<T> {}

impl<T: Record> Records<T> {
    /// Returns the record at `index`, live or free, or `None` if there never was one.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        // Acquire pairs with the Release in `commit_chunk`: the chunk can be read.
        if index >= self.opened.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: below `opened`, so inside the range.
        let record = unsafe { self.base.add(index as usize * size_of::<T>()) }.cast::<T>();
        // SAFETY: committed once and readable since (see the module documentation), aligned
        // (chunks are page aligned, sizes powers of two), and any state of the bytes is a valid
        // value that may change under a shared reference (`Record`).
        Some(unsafe { record.as_ref() })
    }

    /// As [`Records::get`], of an index that was handed out.
    ///
    /// # Panics
    /// If it never was.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> &T {
        self.get(index).expect("index of a record")
    }

    /// Returns the indices of all live records, in order. Walks the table.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        let end = self.opened.load(Ordering::Acquire);
        (0..end).filter(|&index| self.at(index).is_live())
    }
}

/// The state of a chunk besides its records.
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

/// The owner's side of a table. See the module documentation.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    records: Arc<Records<T>>,
    chunks: Vec<Chunk>,
    chunks_max: usize,
    roomy: List,
    spare: Option<u32>,
    /// Empty chunks whose page waits to be returned.
    retired: Vec<u32>,
    /// Chunks in batches that [`Slab::end_release`] has not got back yet; still committed.
    in_flight: usize,
    committed_chunks: usize,
    /// A chunk was committed or retired since [`Slab::note_size`].
    resized: bool,
}

impl<T: Record> Slab<T> {
    const PER_CHUNK: usize = CHUNK_BYTES / size_of::<T>();

    /// Bytes of address space that a table of `records` needs.
    pub(crate) fn range_bytes(records: usize) -> usize {
        records.div_ceil(Self::PER_CHUNK) * CHUNK_BYTES
    }

    /// Returns an empty table over `range`.
    pub(crate) fn new(range: Arc<dyn Reservation>) -> Self {
        #[cfg(not(loom))]
        const {
            assert!(align_of::<T>() <= 8 && size_of::<T>() >= 8);
            assert!(size_of::<T>().is_power_of_two() && size_of::<T>() <= CHUNK_BYTES);
        }
        let chunks_max = (range.len() / CHUNK_BYTES).min((NIL as usize) / Self::PER_CHUNK);
        let (base, opened) = (range.base(), AtomicU32::new(0));
        Self {
            records: Arc::new(Records { range, base, opened, records: PhantomData }),
            chunks: Vec::new(),
            chunks_max,
            roomy: List::EMPTY,
            spare: None,
            retired: Vec::new(),
            in_flight: 0,
            committed_chunks: 0,
            resized: false,
        }
    }

    /// Returns the side of the table that all threads may use.
    #[inline]
    pub(crate) fn records(&self) -> &Arc<Records<T>> {
        &self.records
    }

    /// Bytes that the table holds.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        (self.committed_chunks * CHUNK_BYTES + self.chunks.capacity() * size_of::<Chunk>()) as u64
    }

    /// Returns whether a chunk was committed or retired since [`Slab::note_size`].
    #[inline]
    pub(crate) fn is_resized(&self) -> bool {
        self.resized
    }

    /// Notes that its size is known.
    pub(crate) fn note_size(&mut self) {
        self.resized = false;
    }

    /// Hands out the index of a record, which is not live until the caller makes it so.
    ///
    /// # Errors
    /// When the source has no memory or the range is used up; nothing changes then.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<u32, SourceError> {
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
                self.chunks[at as usize].free = self.records.at(index).next_free() as u16;
                index
            }
        };
        self.chunks[at as usize].used += 1;
        if usize::from(self.chunks[at as usize].used) == Self::PER_CHUNK {
            self.roomy.remove(&mut self.chunks, at);
        }
        self.spare = self.spare.filter(|&spare| spare != at);
        Ok(index)
    }

    /// Commits the page of `found`, a chunk without one, or of a new chunk.
    #[cold]
    fn commit_chunk(&mut self, found: Option<u32>) -> Result<u32, SourceError> {
        let at = found.unwrap_or(self.chunks.len() as u32);
        if at as usize >= self.chunks_max {
            return Err(SourceError::Memory { bytes: CHUNK_BYTES });
        }
        self.records.range.commit(at as usize * CHUNK_BYTES, CHUNK_BYTES)?;
        if found.is_none() {
            self.chunks.push(Chunk { prev: NIL, next: NIL, free: FREE_END, used: 0, fresh: 0 });
            self.roomy.push_front(&mut self.chunks, at);
            // Release pairs with the Acquire in `get`. Opened chunks stay open after a trim.
            let opened = self.chunks.len() * Self::PER_CHUNK;
            self.records.opened.fetch_max(opened as u32, Ordering::Release);
        }
        self.committed_chunks += 1;
        self.resized = true;
        Ok(at)
    }

    /// Takes back the index of a record that is no longer used.
    #[inline]
    pub(crate) fn put(&mut self, index: u32) {
        let at = index / Self::PER_CHUNK as u32;
        let position = (index % Self::PER_CHUNK as u32) as u16;
        let chunk = &mut self.chunks[at as usize];
        let next = std::mem::replace(&mut chunk.free, position);
        chunk.used -= 1;
        let used = usize::from(chunk.used);
        self.records.at(index).set_free(next.into());
        if used + 1 == Self::PER_CHUNK {
            self.roomy.push_front(&mut self.chunks, at);
        }
        if used == 0 {
            self.retire(at);
        }
    }

    /// Keeps the empty chunk `at` as the spare one, or retires it.
    #[cold]
    fn retire(&mut self, at: u32) {
        if self.spare.is_none() {
            self.spare = Some(at);
            return;
        }
        self.roomy.remove(&mut self.chunks, at);
        self.retired.push(at);
        self.resized = true;
    }

    /// Returns whether pages wait to be returned.
    #[inline]
    pub(crate) fn release_due(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Takes the retired chunks out, so that their pages can be returned without a lock.
    pub(crate) fn begin_release(&mut self) -> Retired<T> {
        let chunks = std::mem::take(&mut self.retired);
        for &at in &chunks {
            let chunk = &mut self.chunks[at as usize];
            (chunk.free, chunk.fresh) = (FREE_END, 0);
        }
        self.in_flight += chunks.len();
        Retired { records: Arc::clone(&self.records), chunks }
    }

    /// Takes back the chunks of a batch that has been released.
    pub(crate) fn end_release(&mut self, batch: Retired<T>) {
        self.in_flight -= batch.chunks.len();
        self.committed_chunks -= batch.chunks.len();
        for at in batch.chunks {
            // Chunks without a page go last, so that room in committed ones is used first.
            match self.roomy.last() {
                Some(last) => self.roomy.insert_after(&mut self.chunks, last, at),
                None => self.roomy.push_front(&mut self.chunks, at),
            }
        }
    }

    /// Gives back the descriptors of the last chunks without a page, unless a batch is on its way.
    pub(crate) fn trim(&mut self) {
        if self.in_flight == 0 {
            while self.chunks.last().is_some_and(|chunk| chunk.fresh == 0) {
                let last = self.chunks.len() as u32 - 1;
                self.roomy.remove(&mut self.chunks, last);
                self.chunks.pop();
            }
            self.chunks.shrink_to_fit();
        }
    }

    /// Asserts S2, S3 and S4; batches may be on their way.
    ///
    /// # Panics
    /// If one is broken.
    pub(crate) fn check(&self) {
        let committed = self.chunks.iter().filter(|chunk| chunk.fresh > 0).count();
        assert_eq!(committed + self.in_flight, self.committed_chunks, "S3: committed chunks");
        for at in 0..self.chunks.len() {
            let chunk = self.chunks[at];
            let (mut free, mut next) = (0, chunk.free);
            while next != FREE_END {
                assert!(next < chunk.fresh && free < Self::PER_CHUNK, "S2: free list");
                let record = self.records.at((at * Self::PER_CHUNK) as u32 + u32::from(next));
                assert!(!record.is_live(), "S2: live record is free");
                (free, next) = (free + 1, record.next_free() as u16);
            }
            assert_eq!(free + usize::from(chunk.used), usize::from(chunk.fresh), "S2: counts");
        }
        let chunks = self.chunks.len();
        let roomy = self.roomy.walk(&self.chunks, chunks);
        let full = |chunk: &Chunk| usize::from(chunk.used) == Self::PER_CHUNK;
        assert!(roomy.iter().all(|&at| !full(&self.chunks[at as usize])), "S4: full on roomy");
        let with_room = self.chunks.iter().filter(|chunk| !full(chunk)).count();
        assert_eq!(roomy.len() + self.retired.len() + self.in_flight, with_room, "S4");
    }
}

/// Empty chunks on their way back to the system; see [`Slab::begin_release`].
#[derive(Debug)]
pub(crate) struct Retired<T> {
    records: Arc<Records<T>>,
    chunks: Vec<u32>,
}

impl<T: Record> Retired<T> {
    /// Returns the chunks' pages to the system. Needs no lock.
    pub(crate) fn release(&self) {
        for &at in &self.chunks {
            // SAFETY: committed (S3), one whole page, off every list (S4), so no record of it is
            // handed out; a thread that still reads by a stale index copes with zeros (`Record`).
            unsafe { self.records.range.release(at as usize * CHUNK_BYTES, CHUNK_BYTES) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::source::PageSource;
    use crate::sync::plain::Plain64;
    use crate::testing::{FailingPages, HeapPages};

    #[derive(Debug, Default)]
    #[repr(C)]
    struct Number(Plain64, Plain64);

    // SAFETY: two atomic integers: zeros are valid, no drop, alignment 8, 16 bytes.
    unsafe impl Record for Number {
        fn next_free(&self) -> u32 {
            self.1.get() as u32
        }
        fn set_free(&self, next: u32) {
            self.0.set(0);
            self.1.set(next.into());
        }
        fn is_live(&self) -> bool {
            self.0.get() != 0
        }
    }

    impl Slab<Number> {
        fn insert(&mut self, number: u64) -> Result<u32, SourceError> {
            let index = self.take()?;
            self.records.at(index).0.set(number);
            Ok(index)
        }

        fn number(&self, index: u32) -> Option<u64> {
            self.records.get(index).filter(|record| record.is_live()).map(|record| record.0.get())
        }

        fn release(&mut self) {
            let batch = self.begin_release();
            batch.release();
            self.end_release(batch);
        }
    }

    fn slab(chunks: usize) -> Slab<Number> {
        Slab::new(HeapPages.reserve(chunks * CHUNK_BYTES).unwrap())
    }

    #[test]
    fn records_keep_their_index_and_value() {
        let mut slab = slab(8);
        let indices: Vec<_> = (1..=1000).map(|n| slab.insert(n).unwrap()).collect();
        for (n, &index) in (1..).zip(&indices) {
            assert_eq!(slab.number(index), Some(n));
        }
        indices.iter().step_by(2).for_each(|&index| slab.put(index));
        slab.check();
        assert_eq!(slab.number(indices[0]), None);
        assert_eq!(slab.number(indices[1]), Some(2));
        assert_eq!(slab.records.indices().count(), 500);
    }

    #[test]
    fn an_emptied_table_keeps_one_chunk() {
        let mut slab = slab(8);
        let indices: Vec<_> = (1..=2000).map(|n| slab.insert(n).unwrap()).collect();
        let full = slab.committed_chunks;
        indices.iter().for_each(|&index| slab.put(index));
        slab.check();
        assert!(slab.release_due());
        assert_eq!((full, slab.committed_chunks), (8, 8));
        slab.release();
        slab.check();
        assert_eq!((slab.committed_chunks, slab.release_due()), (1, false));
        assert!(indices.iter().all(|&index| slab.number(index).is_none()));
        slab.trim();
        slab.check();
        assert_eq!(slab.chunks.len(), 1, "the spare chunk");
        assert!(slab.insert(5).is_ok());
        slab.check();
    }

    #[test]
    fn a_trimmed_table_forgets_its_last_chunks_and_grows_again() {
        let mut slab = slab(8);
        let indices: Vec<_> = (1..=2000).map(|n| slab.insert(n).unwrap()).collect();
        indices.iter().skip(300).for_each(|&index| slab.put(index));
        let batch = slab.begin_release();
        slab.trim();
        assert_eq!(slab.chunks.len(), 8, "not while a batch is on its way");
        batch.release();
        slab.end_release(batch);
        slab.trim();
        slab.check();
        assert_eq!(slab.chunks.len(), 3, "two with records and the spare one");
        assert_eq!(slab.number(indices[1999]), None, "a stale index still finds zeros");
        let again: Vec<_> = (1..=1700).map(|n| slab.insert(n).unwrap()).collect();
        slab.check();
        assert!(again.iter().all(|&index| slab.number(index).is_some()));
        assert_eq!((slab.chunks.len(), slab.committed_chunks), (8, 8));
    }

    #[test]
    fn a_table_can_be_checked_while_a_batch_is_on_its_way() {
        let mut slab = slab(8);
        let indices: Vec<_> = (1..=2000).map(|n| slab.insert(n).unwrap()).collect();
        indices.iter().for_each(|&index| slab.put(index));
        let batch = slab.begin_release();
        slab.check();
        batch.release();
        slab.check();
        assert_eq!((slab.committed_chunks, slab.in_flight), (8, 7));
        slab.end_release(batch);
        slab.check();
        assert_eq!((slab.committed_chunks, slab.in_flight), (1, 0));
    }

    #[test]
    fn a_full_or_failing_table_refuses_and_keeps_what_it_has() {
        let mut full = slab(1);
        let held = (1..).map_while(|n| full.insert(n).ok()).count();
        assert_eq!(held, CHUNK_BYTES / size_of::<Number>());
        full.check();

        let source = FailingPages::new(Arc::new(HeapPages), 0);
        let mut failing: Slab<Number> = Slab::new(source.reserve(8 * CHUNK_BYTES).unwrap());
        assert!(failing.insert(1).is_err());
        failing.check();
        source.allow(1);
        assert!(failing.insert(1).is_ok());
    }

    #[test]
    fn indices_that_were_never_given_out_name_nothing() {
        let slab = slab(2);
        assert!([0, 1, 511, 100_000, NIL].iter().all(|&index| slab.number(index).is_none()));
    }
}
