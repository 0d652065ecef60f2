//! The slots of the staging area: a ring that pages enter in the order in which they leave their
//! places, and leave in the same order for the store. A page that is touched meanwhile is copied
//! back, and its slot is dropped when its turn comes.
//!
//! ```text
//!        head            next            tail
//!   .....|===============|###############|......
//!         in work         full            empty
//! ```
//!
//! - G1: slots from `tail` on, up to `head` once around, are empty and belong to the one mover.
//! - G2: a batch of slots, from `next` on, belongs to the background thread that has begun it. It
//!   drops a page only when the owner's word says that the page is no longer in the slot, and no
//!   thread copies from it (`DONE`).
//! - G3: an owner is a key plus one: of the page that was moved there. The faulting thread that
//!   has copied the page back sets it to `DONE`.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use zfold_pool::Lock;

use crate::sys::map::Words;

const NEVER: u32 = 0;
const DONE: u32 = u32::MAX;

/// The contents of a slot of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// No page came here.
    Nobody,
    /// A page that has been copied back.
    Done,
    /// The page of this key, or a page that is being copied back.
    Key(u32),
}

#[derive(Debug)]
pub(super) struct Ring {
    slots: u64,
    owners: Words,
    tail: AtomicU64,
    head: AtomicU64,
    next: AtomicU64,
    batches: Lock<VecDeque<Batch>>,
}

/// Slots that one thread works on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    start: u64,
    len: u64,
    done: bool,
}

impl Ring {
    /// A ring of `slots` slots, a power of two.
    ///
    /// # Errors
    /// The system's, if there is no address space.
    pub(super) fn new(slots: u32) -> io::Result<Self> {
        assert!(slots.is_power_of_two());
        Ok(Self {
            slots: slots.into(),
            owners: Words::new(slots as usize)?,
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            next: AtomicU64::new(0),
            batches: Lock::default(),
        })
    }

    /// The next consecutive empty slots, for the mover.
    pub(super) fn empty(&self) -> Range<usize> {
        let tail = self.tail.load(Ordering::Relaxed);
        // Acquire pairs with the Release in `finish`: the slots have been dropped.
        let free = self.slots - (tail - self.head.load(Ordering::Acquire));
        let first = tail % self.slots;
        first as usize..(first + free.min(self.slots - first)) as usize
    }

    /// Records that a page was moved to a slot; the mover calls this before it changes the page's
    /// word.
    pub(super) fn fill(&self, slot: usize, key: u32) {
        self.owners[slot].store(key + 1, Ordering::Relaxed);
    }

    /// Records that the next `count` empty slots are full, as far as pages came.
    pub(super) fn advance(&self, count: usize) {
        // Release pairs with the Acquire in `begin`: owners and pages are seen.
        self.tail.fetch_add(count as u64, Ordering::Release);
    }

    /// Records that the page of a slot was copied back.
    pub(super) fn copied(&self, slot: u32) {
        // Release pairs with the Acquire in `owner`: the copy comes before the drop.
        self.owners[slot as usize].store(DONE, Ordering::Release);
    }

    /// The contents of a slot.
    pub(super) fn owner(&self, slot: usize) -> Owner {
        match self.owners[slot].load(Ordering::Acquire) {
            NEVER => Owner::Nobody,
            DONE => Owner::Done,
            key => Owner::Key(key - 1),
        }
    }

    /// Slots that no thread has begun.
    pub(super) fn waiting(&self) -> u64 {
        let next = self.next.load(Ordering::Relaxed);
        self.tail.load(Ordering::Relaxed).saturating_sub(next)
    }

    /// Slots that are not empty.
    pub(super) fn held(&self) -> u64 {
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Relaxed).saturating_sub(head)
    }

    /// Position after the last page that came; `is_past` says when all before it have left.
    pub(super) fn end(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// Whether all slots before `end` have been dropped.
    pub(super) fn is_past(&self, end: u64) -> bool {
        self.head.load(Ordering::Acquire) >= end
    }

    /// Begins the oldest slots that no thread has begun, up to `most` (G2).
    pub(super) fn begin(&self, most: u64) -> Option<Batch> {
        let mut batches = self.batches.lock();
        let start = self.next.load(Ordering::Relaxed);
        let full = self.tail.load(Ordering::Acquire) - start;
        let len = full.min(most).min(self.slots - start % self.slots);
        if len == 0 {
            return None;
        }
        self.next.store(start + len, Ordering::Relaxed);
        let batch = Batch { start, len, done: false };
        batches.push_back(batch);
        Some(batch)
    }

    /// The slots of a batch.
    pub(super) fn slots_of(&self, batch: &Batch) -> Range<usize> {
        let first = (batch.start % self.slots) as usize;
        first..first + batch.len as usize
    }

    /// Records that the slots of a batch were dropped.
    pub(super) fn finish(&self, batch: &Batch) {
        for slot in self.slots_of(batch) {
            self.owners[slot].store(NEVER, Ordering::Relaxed);
        }
        let mut batches = self.batches.lock();
        if let Some(same) = batches.iter_mut().find(|other| other.start == batch.start) {
            same.done = true;
        }
        while let Some(first) = batches.pop_front() {
            if !first.done {
                batches.push_front(first);
                break;
            }
            self.head.store(first.start + first.len, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_in_order_and_again_when_all_before_are_dropped() {
        let ring = Ring::new(8).unwrap();
        assert_eq!(ring.empty(), 0..8);
        (0..6).for_each(|slot| ring.fill(slot, slot as u32));
        ring.advance(6);
        let (first, second) = (ring.begin(4).unwrap(), ring.begin(4).unwrap());
        assert_eq!((ring.slots_of(&first), ring.slots_of(&second)), (0..4, 4..6));
        assert!(ring.begin(4).is_none());
        ring.copied(1);
        assert_eq!(
            [0, 1, 7].map(|slot| ring.owner(slot)),
            [Owner::Key(0), Owner::Done, Owner::Nobody]
        );
        ring.finish(&second);
        assert_eq!((ring.empty(), ring.is_past(6)), (6..8, false), "the first is in work");
        ring.finish(&first);
        assert!(ring.is_past(6));
        ring.advance(2);
        assert_eq!(ring.empty(), 0..6, "around the end");
        assert_eq!(ring.slots_of(&ring.begin(9).unwrap()), 6..8, "a batch ends there");
    }
}
