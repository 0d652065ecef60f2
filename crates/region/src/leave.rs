//! Pages leave their places: those that equal their copies are dropped there, those of a chunk by
//! one call; the others are moved to the staging area, a call for each run of neighbours.
//!
//! Only the thread that holds the hand does so (evict/E1).
//!
//! - L1: a page is dropped in its place only if the kernel protects it. That is asked after the
//!   word (`dropping`), so no thread allows writes meanwhile, and after the pages were taken out of
//!   merging (KSM), by which alone the kernel forgets protection (docs/design/marks.md): what is
//!   protected then faults until it is dropped. The others stay, with their copies, and are moved
//!   and compared.

use std::ops::Range;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use zfold_uffd::policy::{Era, Returns};

use super::core::Core;
use super::evict::Hand;
use super::space::Space;
use super::word::{State, Word};

/// Pages in ascending order, as few ranges as possible.
#[derive(Debug, Default)]
struct Runs {
    runs: Vec<Range<u32>>,
    pages: u32,
}

/// Returns whether an address lies in one of some ranges in ascending order.
fn is_in(ranges: &[Range<usize>], address: usize) -> bool {
    let behind = ranges.partition_point(|range| range.start <= address);
    ranges[..behind].last().is_some_and(|range| range.contains(&address))
}

impl Runs {
    fn keys(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().cloned().flatten()
    }

    /// Returns the pages for which `is_first` holds, and the others.
    fn split(&self, is_first: impl Fn(u32) -> bool) -> (Self, Self) {
        let mut both = (Self::default(), Self::default());
        for key in self.keys() {
            if is_first(key) { both.0.push(key) } else { both.1.push(key) }
        }
        both
    }

    fn push(&mut self, key: u32) {
        self.pages += 1;
        match self.runs.last_mut() {
            Some(last) if last.end == key => last.end += 1,
            _ => self.runs.push(key..key + 1),
        }
    }
}

impl Core {
    /// Moves out up to `most` pages of a range that are not spared, as far as there are slots;
    /// returns where it stopped, and how many it moved.
    pub(super) fn move_out(
        &self,
        _hand: &Hand<'_>,
        space: &Space,
        keys: Range<u32>,
        most: u32,
        may: impl Fn(u32) -> bool,
    ) -> (u32, u32) {
        let (mut drops, mut moves) = (Runs::default(), Runs::default());
        let slots = self.ring.empty().len() as u32;
        let mut key = keys.start;
        while key < keys.end && drops.pages + moves.pages < most && moves.pages < slots {
            if may(key) {
                match self.page(key).change(Word::dropping) {
                    Ok(_) => drops.push(key),
                    Err(word) if word.leaving().is_some() => moves.push(key),
                    Err(_) => {}
                }
            }
            key += 1;
        }
        if drops.pages + moves.pages == 0 {
            return (key, 0);
        }
        // The copies are the pages, unless they stay.
        self.copies.fetch_sub(drops.pages.into(), Ordering::Relaxed);
        self.stored.fetch_add(drops.pages.into(), Ordering::Relaxed);
        // L1: in this order, after the words.
        let span = space.addresses_of(&(keys.start..key));
        let apart = self.frames.part(&span);
        let asks = apart && drops.pages > 0;
        let protected = if asks { self.frames.protected(&span) } else { Vec::new() };
        let (drops, doubtful) = drops.split(|key| is_in(&protected, space.address_of(key)));
        let mut gone = self.drop_runs(space, &drops.runs);
        for key in doubtful.keys() {
            self.frames.unprotected(space.address_of(key));
            self.keep(key);
            if moves.pages < slots {
                moves.push(key);
            }
        }
        for run in moves.runs {
            gone += self.move_leaving(space, run);
        }
        self.counters.evictions_total.add(u64::from(gone));
        self.clock.advance(gone as usize, self.room.limit() as usize);
        (key, gone)
    }

    /// Moves out the pages of a range that can still leave; returns how many went. There are as
    /// many slots, which only this thread fills (evict/E1).
    fn move_leaving(&self, space: &Space, keys: Range<u32>) -> u32 {
        let stays = |key: &u32| self.page(*key).change(Word::leaving).is_err();
        let (mut first, mut moved) = (keys.start, 0);
        while first < keys.end {
            let end = (first..keys.end).find(stays).unwrap_or(keys.end);
            if first < end {
                moved += self.move_run(space, first..end, self.ring.empty().start);
            }
            first = end + 1;
        }
        moved
    }

    /// A page that this thread has begun to drop stays, and so does its copy.
    fn keep(&self, key: u32) {
        self.settle(key, State::Resident, 0, true);
    }

    /// Drops pages where they are, which this thread has begun to drop (L1); returns how many went.
    fn drop_runs(&self, space: &Space, runs: &[Range<u32>]) -> u32 {
        if runs.is_empty() {
            return 0;
        }
        let mut gone = 0;
        for (keys, dropped) in runs.iter().zip(self.drop_places(space, runs)) {
            if dropped {
                keys.clone().for_each(|key| self.dropped(key));
                gone += keys.len() as u32;
                continue;
            }
            // A part of them may be gone: the owner has split the mapping.
            let pages: Vec<_> = keys.clone().map(|key| key..key + 1).collect();
            for (key, dropped) in keys.clone().zip(self.drop_places(space, &pages)) {
                if dropped {
                    self.dropped(key);
                    gone += 1;
                } else {
                    self.counters.busy_pages_total.add(1);
                    self.keep(key);
                }
            }
        }
        self.counters.kept_copies_total.add(gone.into());
        self.earn(gone.cast_signed());
        self.room.give(gone);
        gone
    }

    fn drop_places(&self, space: &Space, runs: &[Range<u32>]) -> Vec<bool> {
        let addresses: Vec<_> = runs.iter().map(|keys| space.addresses_of(keys)).collect();
        self.frames.drop_places(&addresses)
    }

    /// A page was dropped in its place.
    fn dropped(&self, key: u32) {
        self.remember_left(key, self.clock.now());
        self.count_out(key);
        self.settle(key, State::Stored, 0, false);
    }

    /// A page leaves.
    fn remember_left(&self, key: u32, now: Era) {
        // Relaxed: a hint.
        let mut returns = Returns::from_bits(self.returns.load(Ordering::Relaxed));
        let past = returns.left(self.past(key).0, key.into(), now);
        self.returns.store(returns.bits(), Ordering::Relaxed);
        self.remember(key, past, 0);
    }

    /// Moves pages that this thread is in charge of to slots from `slot` on; returns how many
    /// went.
    fn move_run(&self, space: &Space, keys: Range<u32>, slot: usize) -> u32 {
        let (mut key, mut to, now) = (keys.start, slot, self.clock.now());
        while key < keys.end {
            let count_left = (keys.end - key) as usize;
            let moved = self.frames.take_out(space.address_of(key), to..to + count_left);
            for _ in 0..moved.done {
                self.remember_left(key, now);
                self.ring.fill(to, key);
                self.count_out(key);
                self.settle(key, State::Staged, to as u32, false);
                (key, to) = (key + 1, to + 1);
            }
            match moved.why {
                None => {}
                Some(Errno::NOENT) => {
                    self.count_out(key);
                    self.settle(key, State::Missing, 0, false);
                    self.room.give(1);
                    key += 1;
                }
                Some(_) => {
                    self.counters.busy_pages_total.add(1);
                    self.settle(key, State::Resident, 0, false);
                    key += 1;
                }
            }
        }
        self.ring.advance(to - slot);
        (to - slot) as u32
    }
}
