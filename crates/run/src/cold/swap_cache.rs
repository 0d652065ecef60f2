//! The swap cache: pages that recently left an address space, uncompressed. A fault takes them back
//! without decompression; the oldest go to the store.
//!
//! A batch is the pages that left one address space together. Its bytes are set once, by the thread
//! that moved the pages out, when it no longer has the lock of the space; whoever wants them
//! earlier waits. So that thread takes no lock of a space before it has set them (mover/M4).
//!
//! The memory of pages that are in the store, or back in their space, is given back: in parts while
//! compressed pages take their room from the program ([`SwapCache::give_back`]), otherwise when the
//! batch is retired. The bytes of a page that the table of its space still has in its slot do not
//! change: only the thread that has taken the batch gives memory back, of pages for which it has
//! seen under the lock of the space that none is in its slot any longer. A page counts until its
//! memory is given back.

use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, RwLockReadGuard};

use zfold_pool::sound;

use crate::core::pages::{PAYLOADS, SlotNo};
use crate::core::ranges::PageNo;
use crate::link::SpaceId;
use crate::spaces::bytes::Bytes;
use crate::spaces::managed::lock;
use zfold_uffd::page::page_len;

/// Bits of a slot that name the page in its batch.
const PAGE_BITS: u32 = 8;
/// Most pages of a batch.
pub(crate) const BATCH: usize = 1 << PAGE_BITS;
/// Batches that can be told apart.
const NUMBERS: u32 = PAYLOADS >> PAGE_BITS;
/// Buffers that are kept for the next batches, with their memory: where there is room, and where it
/// is tight.
const SPARE: [usize; 2] = [2, 1];

/// Pages of a batch, which stay as they are while this is held.
pub(crate) struct Pages<'a> {
    bytes: RwLockReadGuard<'a, Bytes>,
    at: Range<usize>,
}

impl Deref for Pages<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.at.start * page_len()..self.at.end * page_len()]
    }
}

/// Pages that left an address space at once.
#[derive(Debug)]
pub(crate) struct Batch {
    number: u32,
    /// The space that they left.
    pub space: SpaceId,
    len: usize,
    /// Those of all its pages; none if they were lost. A leaf: no thread waits while it has it,
    /// but for the kernel.
    bytes: OnceLock<RwLock<Bytes>>,
    /// The page that each belongs to; changes when a mapping is moved.
    owners: Mutex<Vec<PageNo>>,
    /// How many of its pages were given back: its first.
    given: AtomicUsize,
}

impl Batch {
    /// Returns the slot of a page of this batch.
    pub(crate) fn slot(&self, at: usize) -> SlotNo {
        debug_assert!(at < BATCH);
        self.number << PAGE_BITS | at as u32
    }

    /// Sets the bytes of its pages, or none, if they were lost.
    ///
    /// # Panics
    /// If they are set.
    pub(crate) fn set_bytes(&self, bytes: Bytes) {
        assert!(bytes.is_empty() || bytes.len() == self.len * page_len());
        self.bytes.set(RwLock::new(bytes)).expect("they are set once");
    }

    fn bytes(&self) -> RwLockReadGuard<'_, Bytes> {
        sound(self.bytes.wait().read())
    }

    /// Waits for the bytes; returns whether they were lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.bytes().is_empty()
    }

    /// Returns the bytes of pages, for which it waits.
    ///
    /// # Panics
    /// If they were lost.
    pub(crate) fn pages(&self, at: Range<usize>) -> Pages<'_> {
        let bytes = self.bytes();
        assert!(at.end * page_len() <= bytes.len(), "{at:?} of {} bytes", bytes.len());
        Pages { bytes, at }
    }

    /// The same for one page.
    pub(crate) fn page(&self, at: usize) -> Pages<'_> {
        self.pages(at..at + 1)
    }

    /// Returns how many of its pages were given back: its first.
    pub(crate) fn given(&self) -> usize {
        // Relaxed: changed by the thread that has taken the batch alone.
        self.given.load(Ordering::Relaxed)
    }

    /// Gives back the memory of pages.
    fn release(&self, at: &Range<usize>) {
        let mut bytes = sound(self.bytes.wait().write());
        if !bytes.is_empty() {
            bytes.release(at.start * page_len()..at.end * page_len());
        }
    }

    /// Returns the number of pages.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the page that it is now.
    pub(crate) fn owner(&self, at: usize) -> PageNo {
        lock(&self.owners)[at]
    }
}

/// The buffer.
#[derive(Debug, Default)]
pub(crate) struct SwapCache {
    /// The oldest first, numbered without gaps; `None` for batches that retired before older ones.
    batches: VecDeque<Option<Arc<Batch>>>,
    /// How many of the oldest were taken to be compressed, and how many of these are not done.
    taken: usize,
    in_work: usize,
    /// Batches that were taken and found no room.
    given_up: Vec<Arc<Batch>>,
    next: u32,
    pages: usize,
    spare: Vec<Bytes>,
}

impl SwapCache {
    /// Returns the number of pages that the batches hold.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Returns an empty buffer for the next batch.
    pub(crate) fn buffer(&mut self) -> Bytes {
        self.spare.pop().unwrap_or_default()
    }

    /// Adds a batch, whose bytes are to be set; `owners` has the page number of each page.
    pub(crate) fn push(&mut self, space: SpaceId, owners: Vec<PageNo>) -> Arc<Batch> {
        let (len, owners) = (owners.len(), Mutex::new(owners));
        let (bytes, given) = (OnceLock::new(), AtomicUsize::new(0));
        let batch = Arc::new(Batch { number: self.next, space, len, bytes, owners, given });
        self.next = (self.next + 1) % NUMBERS;
        self.pages += batch.len();
        self.batches.push_back(Some(Arc::clone(&batch)));
        batch
    }

    /// Returns the batch that a slot is in and the place in it, if it is not retired.
    pub(crate) fn find(&self, slot: SlotNo) -> Option<(Arc<Batch>, usize)> {
        let batch = self.batches.get(self.place(slot >> PAGE_BITS))?.as_ref()?;
        Some((Arc::clone(batch), slot as usize % BATCH))
    }

    /// Returns the position of a batch.
    fn place(&self, number: u32) -> usize {
        let oldest = self.next.wrapping_sub(self.batches.len() as u32);
        (number.wrapping_sub(oldest) % NUMBERS) as usize
    }

    /// Records that the page in a slot was moved with its mapping.
    pub(crate) fn moved(&self, slot: SlotNo, to: PageNo) {
        if let Some((batch, at)) = self.find(slot) {
            lock(&batch.owners)[at] = to;
        }
    }

    /// Takes the oldest batch that is not taken; it stays until [`retire`](Self::retire).
    pub(crate) fn take(&mut self) -> Option<Arc<Batch>> {
        if let Some(batch) = self.given_up.pop() {
            self.in_work += 1;
            return Some(batch);
        }
        let batch = self.batches.get(self.taken)?.clone().expect("it was not taken");
        self.taken += 1;
        self.in_work += 1;
        Some(batch)
    }

    /// Puts back a batch that was taken and whose pages found no room: it is the next to be taken.
    pub(crate) fn give_up(&mut self, batch: Arc<Batch>) {
        self.in_work -= 1;
        self.given_up.push(batch);
    }

    /// Returns whether a batch is about to retire.
    pub(crate) fn is_in_work(&self) -> bool {
        self.in_work > 0
    }

    /// Returns all batches of a space, the oldest first.
    pub(crate) fn of(&self, space: SpaceId) -> Vec<Arc<Batch>> {
        self.batches.iter().flatten().filter(|batch| batch.space == space).cloned().collect()
    }

    /// Gives back the memory of the next pages of a batch that this thread has taken and whose
    /// slots no page uses any longer; they count no longer.
    pub(crate) fn give_back(of: &Mutex<Self>, batch: &Batch, at: &Range<usize>) {
        debug_assert_eq!(at.start, batch.given());
        batch.release(at);
        // Relaxed: changed by the thread that has taken the batch alone.
        batch.given.fetch_add(at.len(), Ordering::Relaxed);
        lock(of).pages -= at.len();
    }

    /// Removes a batch that was taken and whose slots no page uses any longer; returns how many of
    /// its pages had not been given back. Its buffer is kept, unless there are enough.
    pub(crate) fn retire(&mut self, batch: Arc<Batch>, is_tight: bool) -> usize {
        let place = self.place(batch.number);
        drop(self.batches[place].take().expect("it retires once"));
        while let Some(None) = self.batches.front() {
            self.batches.pop_front();
            self.taken -= 1;
        }
        self.in_work -= 1;
        let pages = batch.len() - batch.given();
        self.pages -= pages;
        // A thread that still has it keeps the memory instead.
        if let Ok(batch) = Arc::try_unwrap(batch)
            && self.spare.len() < SPARE[usize::from(is_tight)]
            && let Some(bytes) = batch.bytes.into_inner()
        {
            let mut bytes = sound(bytes.into_inner());
            bytes.truncate(0);
            self.spare.push(bytes);
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::mover::batch_max;

    fn push(cache: &mut SwapCache, fill: u8, pages: usize) -> Arc<Batch> {
        let mut bytes = cache.buffer();
        bytes.grow(pages * page_len()).fill(fill);
        let batch = cache.push(SpaceId(u64::from(fill)), (0..pages).collect());
        batch.set_bytes(bytes);
        batch
    }

    #[test]
    fn who_wants_bytes_waits_until_they_are_there_or_lost() {
        let mut cache = SwapCache::default();
        for is_lost in [false, true] {
            let batch = cache.push(SpaceId(1), vec![7, 8]);
            let (found, at) = cache.find(batch.slot(1)).unwrap();
            let waits = std::thread::spawn(move || (!found.is_lost()).then(|| found.page(at)[0]));
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(!waits.is_finished());
            let mut bytes = Bytes::default();
            if !is_lost {
                bytes.grow(2 * page_len()).fill(3);
            }
            batch.set_bytes(bytes);
            assert_eq!(waits.join().unwrap(), (!is_lost).then_some(3));
            assert_eq!((batch.is_lost(), batch.len()), (is_lost, 2));
        }
    }

    #[test]
    fn slots_find_their_page_until_the_batch_retires() {
        let mut cache = SwapCache { next: NUMBERS - 2, ..SwapCache::default() };
        let batches: Vec<_> = (1..=4).map(|fill| push(&mut cache, fill, 3)).collect();
        assert_eq!(cache.pages(), 12);
        for (fill, batch) in (1..).zip(&batches) {
            let (found, at) = cache.find(batch.slot(2)).unwrap();
            assert_eq!((found.page(at)[0], at), (fill, 2));
        }
        let retired = batches[0].slot(0);
        let oldest = cache.take().unwrap();
        assert_eq!(oldest.number, batches[0].number);
        assert_eq!(cache.retire(oldest, false), 3);
        assert!(cache.find(retired).is_none(), "it is the newest that could be, not the oldest");
        assert_eq!(cache.of(SpaceId(3)).len(), 1);
        cache.moved(batches[1].slot(1), 77);
        assert_eq!(batches[1].owner(1), 77);
        assert_eq!(cache.pages(), 9);
    }

    #[test]
    fn batches_retire_in_any_order() {
        let mut cache = SwapCache { next: NUMBERS - 1, ..SwapCache::default() };
        let batches: Vec<_> = (1..=3).map(|fill| push(&mut cache, fill, 2)).collect();
        let (first, second) = (cache.take().unwrap(), cache.take().unwrap());
        cache.retire(second, false);
        assert_eq!(cache.pages(), 4);
        assert!(cache.find(batches[1].slot(0)).is_none());
        assert!(cache.of(SpaceId(2)).is_empty());
        for at in [0, 2] {
            let (found, _) = cache.find(batches[at].slot(1)).unwrap();
            assert_eq!(found.page(1)[0], at as u8 + 1);
        }
        cache.retire(first, false);
        assert_eq!((cache.batches.len(), cache.taken), (1, 0));
        assert_eq!(cache.take().unwrap().number, batches[2].number);
        assert!(cache.take().is_none());
    }

    #[test]
    fn a_batch_that_found_no_room_is_the_next_to_be_taken() {
        let mut cache = SwapCache::default();
        let batches: Vec<_> = (1..=3).map(|fill| push(&mut cache, fill, 2)).collect();
        let first = cache.take().unwrap();
        cache.give_up(first);
        assert!(!cache.is_in_work());
        let again = cache.take().unwrap();
        assert_eq!((again.number, cache.is_in_work()), (batches[0].number, true));
        cache.retire(again, false);
        assert_eq!(cache.take().unwrap().number, batches[1].number);
    }

    #[test]
    fn memory_is_used_again() {
        let mut cache = SwapCache::default();
        drop(push(&mut cache, 1, batch_max()));
        let batch = cache.take().unwrap();
        cache.retire(batch, false);
        assert!(cache.buffer().has_memory());
    }

    #[test]
    fn where_room_is_tight_fewer_buffers_are_kept() {
        for (is_tight, kept) in [(false, 2), (true, 1)] {
            let mut cache = SwapCache::default();
            (0..3).for_each(|_| drop(push(&mut cache, 1, 4)));
            for _ in 0..3 {
                let batch = cache.take().unwrap();
                cache.retire(batch, is_tight);
            }
            assert_eq!((0..3).filter(|_| cache.buffer().has_memory()).count(), kept);
        }
    }

    #[test]
    fn pages_that_were_given_back_count_no_longer_and_the_others_stay() {
        let cache = Mutex::new(SwapCache::default());
        let batch = push(&mut lock(&cache), 5, 8);
        drop(push(&mut lock(&cache), 6, 3));
        let taken = lock(&cache).take().unwrap();
        SwapCache::give_back(&cache, &taken, &(0..4));
        assert_eq!(lock(&cache).pages(), 7);
        assert_eq!([3, 4].map(|at| batch.page(at)[9]), [0, 5]);
        assert_eq!(lock(&cache).retire(taken, false), 4);
        assert_eq!(lock(&cache).pages(), 3);
    }
}
