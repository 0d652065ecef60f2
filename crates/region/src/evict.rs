//! Pages leave: from their places to the staging area, many by one system call, and from there,
//! compressed, to the store; or, protected since they came from there, straight back to it. Never
//! in a thread that touches a page.
//!
//! The mover goes over the pages in the order of their addresses, like the hand of a clock, and
//! spares those that came back soon when they had left (`zfold_uffd::policy`). A page that is
//! touched again soon comes back from the staging area without having been compressed. Neighbours
//! leave together because each call flushes translations on all processors that run this process,
//! which costs more than moving a page.
//!
//! - E1: only the thread that holds the hand moves pages out and fills slots.
//! - E2: nothing here touches the memory of a region; pages are read in the staging area.

use std::ops::Range;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::core::{CHUNK, Core};
use super::ring::Owner;
use super::space::{Space, space_of};
use super::word::{State, Word};
use crate::sys::signal::{Blocked, die};
use zfold_uffd::page::is_zero;
use zfold_uffd::policy::Haste;

/// Time without progress while a thread waits for a page, after which the process is ended.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a background thread must have looked in that time: if the process was stopped, or
/// hardly ran, little progress means nothing.
const LOOKS: u32 = 50;

/// The last progress that a background thread has seen while a thread waited for a page.
#[derive(Debug)]
pub(super) struct Progress {
    done: u64,
    since: Instant,
    looks: u32,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { done: 0, since: Instant::now(), looks: 0 }
    }

    /// Records how much work all threads have done; returns whether that has not grown for long.
    fn is_over(&mut self, done: u64) -> bool {
        if self.done != done {
            *self = Self { done, since: Instant::now(), looks: 0 };
        }
        self.looks += 1;
        self.looks > LOOKS && self.since.elapsed() > PATIENCE
    }
}

/// The right to move pages out (E1).
pub(super) type Hand<'a> = MutexGuard<'a, u32>;

impl Core {
    /// Pages that one batch moves or stores.
    pub(super) fn batch(&self) -> u32 {
        (self.room.limit() / 16).clamp(4, 64)
    }

    /// Pages that the staging area has while there is pressure.
    pub(super) fn staging_target(limit: u32) -> u32 {
        (limit / 8).clamp(8, 1 << 15)
    }

    /// One step towards room; returns whether it did anything.
    pub(super) fn evict(&self, seen: &mut Progress) -> bool {
        let waited = self.room.is_waited_for();
        if self.refused.load(Ordering::Relaxed) {
            if !waited {
                // Pages that the store refuses stay while no thread needs the room.
                return false;
            }
            self.store.compact();
        }
        let (batch, target) = (self.batch(), u64::from(Self::staging_target(self.room.limit())));
        let mut moved = 0;
        if self.ring.waiting() < target
            && let Some(mut hand) = self.hand.try_lock()
        {
            moved = self.move_some(&mut hand, batch * 2);
        }
        let failures = || self.counters.store_failures_total.get();
        let failures_before = failures();
        let stores = self.room.is_low() || self.ring.waiting() >= target;
        let stored = stores && self.store_some(batch.into());
        let refused = stored && failures() > failures_before;
        if waited && refused && self.refused.load(Ordering::Relaxed) && self.room.is_waited_for() {
            die("no room for a page", "the store is full (raise resident_limit or store_limit)");
        }
        let done = self.counters.evictions_total.get() + self.counters.stores_total.get();
        if !waited {
            *seen = Progress::new();
        } else if seen.is_over(done) {
            die("no room for a page", "all pages are pinned or in use by devices");
        }
        moved > 0 || stored
    }

    /// Moves up to `most` pages out, from where the hand is.
    fn move_some(&self, hand: &mut Hand<'_>, most: u32) -> u32 {
        let mut rounds = 0..Haste::ROUNDS;
        let moved = rounds.find_map(|round| {
            let moved = self.move_round(hand, most, Haste::after(round));
            (moved > 0 || self.ring.empty().is_empty()).then_some(moved)
        });
        moved.unwrap_or(0)
    }

    /// The same, in at most one round of the hand.
    fn move_round(&self, hand: &mut Hand<'_>, most: u32, haste: Haste) -> u32 {
        let spaces = self.spaces();
        let mut moved = 0;
        for _ in 0..=self.chunks() {
            if **hand / CHUNK >= self.chunks() {
                **hand = 0;
            }
            let (key, chunk) = (**hand, **hand / CHUNK);
            let end = (chunk + 1) * CHUNK;
            **hand = match space_of(&spaces, key) {
                Some(space) if self.residents(chunk) > 0 => {
                    let keys = key..end.min(space.keys().end);
                    let leaves = |key| !self.spares(key, haste);
                    let (at, some) = self.move_out(hand, space, keys.clone(), most - moved, leaves);
                    moved += some;
                    if at == keys.end { end } else { at }
                }
                _ => end,
            };
            if moved >= most || self.ring.empty().is_empty() {
                break;
            }
        }
        moved
    }

    /// The hand passes a page: returns whether it is spared, if it is there.
    fn spares(&self, key: u32, haste: Haste) -> bool {
        if self.page(key).load().state() != State::Resident {
            return false;
        }
        let (past, rounds) = self.past(key);
        let left = haste.pass(rounds, past, self.clock.now());
        if left.is_some_and(|left| left != rounds) {
            self.remember(key, past, left.unwrap_or(0));
        }
        left.is_some()
    }

    /// Stores the oldest pages of the staging area, up to `most`, and drops them there; returns
    /// whether there were any.
    pub(super) fn store_some(&self, most: u64) -> bool {
        let Some(batch) = self.ring.begin(most) else { return false };
        let slots = self.ring.slots_of(&batch);
        let left = slots.clone().filter(|&slot| self.store_slot(slot)).count();
        self.frames.drop_staged(slots);
        self.room.give(left as u32);
        self.ring.finish(&batch);
        true
    }

    /// Stores the page in a slot, unless it was touched; returns whether the slot still has to be
    /// dropped.
    fn store_slot(&self, slot: usize) -> bool {
        let key = match self.ring.owner(slot) {
            Owner::Nobody => return false,
            Owner::Done => return true,
            Owner::Key(key) => key,
        };
        let number = slot as u32;
        // From here on no other thread drops its copy, or makes one (word/W3).
        let word = loop {
            match self.page(key).change(|word| word.storing(number)) {
                Ok(before) => break before,
                Err(word) if word.state() != State::Staged || word.value() != number => {
                    // It is being copied back.
                    self.await_copied(slot);
                    return true;
                }
                // Its copy is being dropped.
                Err(_) => std::thread::yield_now(),
            }
        };
        let page = self.frames.staged(slot..slot + 1);
        if is_zero(page) {
            self.store.invalidate(key.into());
            self.counters.zero_pages_total.add(1);
            return self.end_storing(key, slot, false);
        }
        let digest = self.digests.of(page);
        if word.is_copied() && self.digests.get(key.into()) == digest {
            self.counters.kept_copies_total.add(1);
            self.set_changed(key, false);
            return self.end_storing(key, slot, true);
        }
        if !self.store_page(key, page) {
            return !self.stay(key, slot);
        }
        // Relaxed: only a hint that it is worth trying.
        self.refused.store(false, Ordering::Relaxed);
        self.counters.stores_total.add(1);
        self.digests.set(key.into(), digest);
        self.set_changed(key, true);
        self.end_storing(key, slot, true)
    }

    /// Stores a page, dropping copies of others if there is no room. Returns whether the store took
    /// it.
    fn store_page(&self, key: u32, page: &[u8]) -> bool {
        while self.store.store(key.into(), page).is_err() {
            if self.drop_copies(self.batch().into()) == 0 {
                // Another thread may have dropped the last copies.
                self.store.compact();
                return self.store.store(key.into(), page).is_ok();
            }
            self.store.compact_if_due();
        }
        true
    }

    /// Marks a page as stored. If it was touched, the bytes that the store `holds` are a copy of
    /// it, or are dropped if the page was given up (word/W4). For zeros it holds nothing: no copy.
    fn end_storing(&self, key: u32, slot: usize, holds: bool) -> bool {
        let end = if holds { Word::stored } else { Word::emptied };
        if let Ok(before) = self.page(key).change(|word| end(word, slot as u32)) {
            self.uncount_copy(before);
            self.stored.fetch_add(holds.into(), Ordering::Relaxed);
            return true;
        }
        match self.page(key).change(|word| word.kept().filter(|_| holds)) {
            Ok(before) => {
                self.copies.fetch_add(u64::from(!before.is_copied()), Ordering::Relaxed);
                if !before.is_listed() {
                    self.list(key);
                }
            }
            Err(_) => {
                self.store.invalidate(key.into());
                self.freed(key);
            }
        }
        self.await_copied(slot);
        true
    }

    /// Puts a page that the store refused back in its place. Returns whether it did.
    fn stay(&self, key: u32, slot: usize) -> bool {
        self.counters.store_failures_total.add(1);
        self.refused.store(true, Ordering::Relaxed);
        // A store that fails leaves nothing under the key.
        self.freed(key);
        let spaces = self.spaces();
        let space = space_of(&spaces, key);
        let in_slot = |word: Word| {
            let here = word.state() == State::Staged && word.value() == slot as u32;
            if here { word.arriving() } else { None }
        };
        if let Some(space) = space
            && self.page(key).change(in_slot).is_ok()
        {
            if !self.frames.take_back(slot, space.address_of(key)) {
                die("cannot put a page back", "its mapping was changed by munmap, mmap or mremap");
            }
            self.count_in(key, 1);
            self.settle(key, State::Resident, 0, false);
            return true;
        }
        drop(spaces);
        self.await_copied(slot);
        false
    }

    /// Waits until the page of a slot has been copied back by the thread in charge of it.
    fn await_copied(&self, slot: usize) {
        while !matches!(self.ring.owner(slot), Owner::Done) {
            std::thread::yield_now();
        }
    }

    /// Moves the pages of a range out and stores them. Returns whether the store took all.
    pub(super) fn pageout(&self, space: &Space, keys: Range<u32>) -> bool {
        // What is still to come ahead of touches would come back.
        self.ahead.forget(&keys);
        let before = self.counters.store_failures_total.get();
        let batch = u64::from(self.batch());
        let mut key = keys.start;
        while key < keys.end {
            // M6: a batch at a time.
            let _blocked = Blocked::new();
            key = self.move_out(&self.hand.lock(), space, key..keys.end, self.batch(), |_| true).0;
            if self.ring.empty().is_empty() && !self.store_some(batch) {
                std::thread::yield_now();
            }
        }
        let end = self.ring.end();
        while !self.ring.is_past(end) {
            let _blocked = Blocked::new();
            if !self.store_some(batch) {
                std::thread::yield_now();
            }
        }
        before == self.counters.store_failures_total.get()
    }

    /// Makes pages of a range missing, wherever they are; they are zeros when touched. Pinned pages
    /// stay. Returns for how many pages room is to be given back.
    pub(super) fn forget(&self, space: &Space, keys: Range<u32>, drop_pages: bool) -> u32 {
        let mut left = 0;
        let mut key = keys.start;
        while key < keys.end {
            // Pages that were in their place are dropped together.
            let first = key;
            while key < keys.end && key - first < CHUNK && self.forget_claim(key) {
                key += 1;
            }
            if first < key {
                if drop_pages {
                    space.drop_pages(first..key);
                }
                for key in first..key {
                    self.count_out(key);
                    self.settle(key, State::Missing, 0, false);
                    self.drop_copy(key);
                }
                left += key - first;
            } else {
                key += 1;
            }
        }
        left
    }

    /// Takes charge of a page that is in its place and returns true; makes any other page missing.
    fn forget_claim(&self, key: u32) -> bool {
        loop {
            let word = self.page(key).load();
            match word.state() {
                State::Missing | State::Pinned => return false,
                State::Leaving | State::Arriving => self.await_page(key),
                State::Resident if self.page(key).step(word, word.claimed()) => return true,
                State::Staged | State::Stored if self.page(key).step(word, word.arriving()) => {
                    if word.state() == State::Staged {
                        self.ring.copied(word.value());
                    } else {
                        self.store.invalidate(key.into());
                        self.stored.fetch_sub(1, Ordering::Relaxed);
                    }
                    self.settle(key, State::Missing, 0, false);
                    self.drop_copy(key);
                    return false;
                }
                _ => {}
            }
        }
    }

    /// Waits until no background thread works on an entry of a range.
    pub(super) fn await_entries(&self, keys: Range<u32>) {
        for key in keys {
            while self.page(key).load().is_storing() {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_only_for_who_has_looked_all_the_time() {
        let since = Instant::now().checked_sub(PATIENCE * 2).expect("it has been up for so long");
        let mut seen = Progress { done: 7, since, looks: 0 };
        assert!((0..LOOKS).all(|_| !seen.is_over(7)), "the process was stopped meanwhile");
        assert!(seen.is_over(7));
        assert!(!seen.is_over(8) && !seen.is_over(8), "somebody got on");
    }
}
