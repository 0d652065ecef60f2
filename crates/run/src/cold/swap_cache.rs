//! The swap cache: pages that recently left an address space, uncompressed. A fault takes them back
//! without decompression; the oldest go to the store.
//!
//! A batch is the pages that left one address space together. Its bytes are set once, by the thread
//! that moved the pages out, when it no longer has the lock of the space; whoever wants them
//! earlier waits. So that thread takes no lock of a space before it has set them (mover/M4).
//!
//! The memory of pages that are in the store, or back in their space, is given back: part by part
//! while compressed pages take their room from the program ([`SwapCache::give_back`]), otherwise
//! when the batch is retired. The next batch uses it again: to fault new memory in takes a fifth of
//! the evictor's time. The bytes of a page that the table of its space still has in its slot do not
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
use crate::link::{BATCH_BYTES, SpaceId};
use crate::spaces::bytes::{Bytes, PART_BYTES, Part, part_pages};
use crate::spaces::managed::lock;
use zfold_uffd::page::page_len;

/// Bits of a slot that name the page in its batch.
const PAGE_BITS: u32 = 8;
/// Most pages of a batch.
pub(crate) const BATCH: usize = 1 << PAGE_BITS;
/// Batches that can be told apart.
const NUMBERS: u32 = PAYLOADS >> PAGE_BITS;
/// Parts that are kept for the next batches, with their memory: those of two batches where there is
/// room, of one where it is tight, and of half a one where parts are given back one by one.
const SPARE: [usize; 2] = [2 * BATCH_BYTES / PART_BYTES, BATCH_BYTES / PART_BYTES];
const SPARE_OF_PARTS: usize = BATCH_BYTES / 2 / PART_BYTES;

/// Pages of a part of a batch, which stay as they are while this is held.
pub(crate) struct Pages<'a> {
    part: RwLockReadGuard<'a, Option<Part>>,
    /// Their bytes.
    at: Range<usize>,
}

impl Deref for Pages<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let part = self.part.as_ref().expect("a page that is in its slot was not given back");
        &part[self.at.clone()]
    }
}

/// Pages that left an address space at once.
#[derive(Debug)]
pub(crate) struct Batch {
    number: u32,
    /// The space that they left.
    pub space: SpaceId,
    len: usize,
    /// The bytes of all its pages, of each part until it is given back; none if they were lost. A
    /// leaf: no thread waits while it has it, but for the kernel.
    parts: OnceLock<Vec<RwLock<Option<Part>>>>,
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
        assert!(bytes.len() == 0 || bytes.len() == self.len * page_len());
        let is_lost = bytes.len() == 0;
        let parts = if is_lost { Vec::new() } else { bytes.into_parts() };
        let parts = parts.into_iter().map(|part| RwLock::new(Some(part))).collect();
        self.parts.set(parts).expect("they are set once");
    }

    /// Waits for the bytes; returns whether they were lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.parts.wait().is_empty()
    }

    /// Returns the bytes of pages, for which it waits, part by part.
    ///
    /// # Panics
    /// If they were lost.
    pub(crate) fn pages(&self, at: Range<usize>) -> impl Iterator<Item = Pages<'_>> {
        (at.start / part_pages()..at.end.div_ceil(part_pages())).map(move |part| {
            let first = part * part_pages();
            let of = at.start.max(first) - first..at.end.min(first + part_pages()) - first;
            let bytes = of.start * page_len()..of.end * page_len();
            Pages { part: sound(self.parts.wait()[part].read()), at: bytes }
        })
    }

    /// The same for one page.
    pub(crate) fn page(&self, at: usize) -> Pages<'_> {
        self.pages(at..at + 1).next().expect("there is one")
    }

    /// Returns how many of its pages were given back: its first.
    pub(crate) fn given(&self) -> usize {
        // Relaxed: changed by the thread that has taken the batch alone.
        self.given.load(Ordering::Relaxed)
    }

    /// Takes a part out.
    fn take(&self, part: usize) -> Option<Part> {
        self.parts.wait().get(part).and_then(|part| sound(part.write()).take())
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
    spare: Vec<Part>,
}

impl SwapCache {
    /// Returns the number of pages that the batches hold.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Returns no bytes, with memory for so many pages of the next batch, as far as there is any.
    pub(crate) fn buffer(&mut self, pages: usize) -> Bytes {
        let kept = self.spare.len().saturating_sub(pages.div_ceil(part_pages()));
        Bytes::in_parts(self.spare.split_off(kept))
    }

    /// Keeps parts for the next batch, up to `most`; returns the others.
    fn keep(&mut self, parts: impl Iterator<Item = Part>, most: usize) -> Vec<Part> {
        self.spare.extend(parts);
        self.spare.split_off(self.spare.len().min(most))
    }

    /// Adds a batch, whose bytes are to be set; `owners` has the page number of each page.
    pub(crate) fn push(&mut self, space: SpaceId, owners: Vec<PageNo>) -> Arc<Batch> {
        let (len, owners) = (owners.len(), Mutex::new(owners));
        let (parts, given) = (OnceLock::new(), AtomicUsize::new(0));
        let batch = Arc::new(Batch { number: self.next, space, len, parts, owners, given });
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

    /// Gives back the memory of the next part of a batch that this thread has taken and whose slots
    /// no page uses any longer; its pages, `at`, count no longer.
    pub(crate) fn give_back(of: &Mutex<Self>, batch: &Batch, at: &Range<usize>) {
        debug_assert_eq!((at.start, at.start % part_pages()), (batch.given(), 0));
        let part = batch.take(at.start / part_pages());
        // Relaxed: changed by the thread that has taken the batch alone.
        batch.given.fetch_add(at.len(), Ordering::Relaxed);
        let rest = {
            let mut cache = lock(of);
            cache.pages -= at.len();
            cache.keep(part.into_iter(), SPARE_OF_PARTS)
        };
        // The system gets it without the lock.
        drop(rest);
    }

    /// Removes a batch that was taken and whose slots no page uses any longer; returns how many of
    /// its pages had not been given back. The memory of these is kept; the caller drops what is too
    /// much, without the lock.
    pub(crate) fn retire(&mut self, batch: Arc<Batch>, is_tight: bool) -> (usize, Vec<Part>) {
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
        let parts = Arc::try_unwrap(batch).ok().and_then(|batch| batch.parts.into_inner());
        let parts = parts.into_iter().flatten().filter_map(|part| sound(part.into_inner()));
        (pages, self.keep(parts, SPARE[usize::from(is_tight)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::mover::batch_max;

    fn push(cache: &mut SwapCache, fill: u8, pages: usize) -> Arc<Batch> {
        let mut bytes = cache.buffer(pages);
        while bytes.len() < pages * page_len() {
            bytes.grow(page_len()).fill(fill);
        }
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
            for _ in 0..if is_lost { 0 } else { 2 } {
                bytes.grow(page_len()).fill(3);
            }
            batch.set_bytes(bytes);
            assert_eq!(waits.join().unwrap(), (!is_lost).then_some(3));
            assert_eq!((batch.is_lost(), batch.len()), (is_lost, 2));
        }
    }

    #[test]
    fn slots_find_their_page_until_their_batch_retires_in_any_order() {
        let mut cache = SwapCache { next: NUMBERS - 2, ..SwapCache::default() };
        let batches: Vec<_> = (1..=4).map(|fill| push(&mut cache, fill, 3)).collect();
        assert_eq!(cache.pages(), 12);
        let finds = |cache: &SwapCache, expected: [bool; 4]| {
            for (batch, is_there) in batches.iter().zip(expected) {
                let found = cache.find(batch.slot(2));
                let page = found.map(|(found, at)| (u64::from(found.page(at)[0]), at));
                assert_eq!(page, is_there.then_some((batch.space.0, 2)));
            }
        };
        finds(&cache, [true; 4]);
        let (first, second) = (cache.take().unwrap(), cache.take().unwrap());
        assert_eq!(first.number, batches[0].number);
        assert_eq!(cache.retire(second, false).0, 3);
        finds(&cache, [true, false, true, true]);
        assert!(cache.of(SpaceId(2)).is_empty() && cache.of(SpaceId(3)).len() == 1);
        cache.moved(batches[0].slot(1), 77);
        assert_eq!((batches[0].owner(1), cache.pages()), (77, 9));
        cache.retire(first, false);
        assert_eq!((cache.batches.len(), cache.taken), (2, 0));
        // A slot of the oldest is that of the newest that could be.
        finds(&cache, [false, false, true, true]);
        assert_eq!(cache.take().unwrap().number, batches[2].number);
        assert!(cache.take().is_some() && cache.take().is_none());
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
    fn memory_is_used_again_and_where_room_is_tight_less_is_kept() {
        for (is_tight, kept) in [(false, SPARE[0]), (true, SPARE[1])] {
            let mut cache = SwapCache::default();
            (0..3).for_each(|_| drop(push(&mut cache, 1, batch_max())));
            for _ in 0..3 {
                let batch = cache.take().unwrap();
                cache.retire(batch, is_tight);
            }
            let all = (0..3).map(|_| cache.buffer(batch_max()).into_parts().len());
            assert_eq!(all.sum::<usize>(), kept);
        }
    }

    #[test]
    fn parts_that_were_given_back_count_no_longer_and_the_others_stay() {
        let cache = Mutex::new(SwapCache::default());
        let (part, len) = (part_pages(), 2 * part_pages() + 1);
        let batch = push(&mut lock(&cache), 5, len);
        drop(push(&mut lock(&cache), 6, 3));
        let all: Vec<_> = batch.pages(part - 1..len).map(|pages| pages.len()).collect();
        assert_eq!(all, [1, part, 1].map(|pages| pages * page_len()));
        let taken = lock(&cache).take().unwrap();
        SwapCache::give_back(&cache, &taken, &(0..part));
        assert_eq!(lock(&cache).pages(), part + 1 + 3);
        assert!([part, len - 1].iter().all(|&at| batch.page(at)[9] == 5));
        assert_eq!(lock(&cache).buffer(3 * part).into_parts().len(), 1, "it is used again");
        assert_eq!(lock(&cache).retire(taken, false).0, part + 1);
        assert_eq!(lock(&cache).pages(), 3);
    }
}
