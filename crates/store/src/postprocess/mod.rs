//! Work on pages that lie still: marking them idle, writing them back, recompressing them.
//!
//! It goes in three steps, of which only the first and the last hold a slot's lock, one at a time:
//! *choose* a page, copy its bytes and mark its slot; *work* on the copy; *swap* the new form in if
//! the slot still bears the mark. Any use of the page in between, a load too, takes the mark away:
//! a page that is in use is left alone, and no use waits for the work.
//!
//! - P1: one thread at a time processes; marks are only set under [`Processing`]'s lock. So a mark
//!   seen at the swap is the one set at the choice, and the slot holds what was copied. A page that
//!   bears a mark is not chosen again.
//! - P2: work that fails leaves pages as they were, without marks.
//! - P3: the copy is of the page at the choice, and the swap changes its form only: no reader or
//!   writer can tell when it happened.
//!
//! Locking: the processing lock is the outermost; threads that hold a slot's lock never wait for
//! it (K6 of the store).

#[cfg(all(test, loom))]
mod models;
mod recompress;
mod room;
mod writeback;

use std::ops::Range;
use std::sync::MutexGuard;
use std::time::Duration;

use crate::entry::{Entry, Flag, Kind, State};
use crate::slots::SlotGuard;
use crate::store::{Store, is_same_form};

pub use recompress::Recompress;

/// Which pages to work on; always among those in memory that are not same-filled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selection {
    /// All.
    All,
    /// Those marked idle and not used since.
    Idle,
    /// Those kept as they are.
    Huge,
    /// Those kept as they are that are idle.
    HugeIdle,
    /// Those that no codec makes smaller.
    Incompressible,
    /// Those of these keys.
    Keys(Vec<Range<u64>>),
    /// The least recently used, by a clock: its hand goes round the slots, and a page that was
    /// used since it last came by is passed over once.
    Lru,
}

impl From<Range<u64>> for Selection {
    /// Returns the selection of the pages of these keys.
    fn from(keys: Range<u64>) -> Self {
        Self::Keys(std::iter::once(keys).collect())
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Processed {
    /// Pages that have a new form.
    pub pages: u64,
    /// Bytes that they took in the pool before.
    pub bytes_before: u64,
    /// Bytes that they take there now.
    pub bytes_after: u64,
}

/// What processing keeps between two rounds.
#[derive(Debug, Default)]
pub(crate) struct Processing {
    /// The key at which the clock hand stands.
    hand: u64,
    /// Bytes of chosen pages.
    buffer: Vec<u8>,
}

/// A page that was chosen.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    key: u64,
    /// What its slot held.
    entry: Entry,
}

impl Selection {
    fn takes(&self, state: State) -> bool {
        state.in_pool()
            && match self {
                Self::All | Self::Keys(_) => true,
                Self::Idle => state.has(Flag::Idle),
                Self::Huge => state.kind() == Kind::Raw,
                Self::HugeIdle => state.kind() == Kind::Raw && state.has(Flag::Idle),
                Self::Incompressible => state.has(Flag::Incompressible),
                Self::Lru => !state.has(Flag::Referenced),
            }
    }
}

/// Goes over the keys of a selection, those of [`Selection::Lru`] from the clock hand on, twice
/// around at most.
#[derive(Debug)]
struct Scan<'a> {
    selection: &'a Selection,
    /// What is left, the next one last.
    ranges: Vec<Range<u64>>,
}

impl<'a> Scan<'a> {
    fn new(selection: &'a Selection, slots: u64, hand: u64) -> Self {
        let ranges = match selection {
            Selection::Keys(ranges) => ranges.iter().rev().cloned().collect(),
            // The first time around may only take second chances away.
            Selection::Lru => vec![0..hand, hand..slots, 0..hand, hand..slots],
            _ => std::iter::once(0..slots).collect(),
        };
        Self { selection, ranges }
    }

    /// Returns the next key that holds a page that is selected by what its slot says unlocked.
    fn next(&mut self, store: &Store) -> Option<u64> {
        while let Some(range) = self.ranges.last_mut() {
            let Some(key) = store.next_present(range.clone()) else {
                self.ranges.pop();
                continue;
            };
            range.start = key + 1;
            let state = store.slots.state_now(key);
            if self.selection.takes(state) {
                return Some(key);
            }
            if *self.selection == Selection::Lru
                && state.in_pool()
                && let Some(mut slot) = store.slots.try_lock(key)
            {
                // The second chance.
                let state = slot.entry().state;
                slot.set_state(state.without(Flag::Referenced));
            }
        }
        None
    }
}

impl Store {
    /// Marks pages idle that were not used for `age`, or all of them; a page used afterwards is
    /// idle no more. Returns how many are idle now.
    ///
    /// # Cost
    /// A look at every page held.
    pub fn mark_idle(&self, age: Option<Duration>) -> u64 {
        let now = self.second();
        let age = age.map_or(0, |age| u32::try_from(age.as_secs()).unwrap_or(u32::MAX));
        let mut idle = 0;
        for key in self.present(0..self.slots()) {
            // A slot that is locked is in use.
            let Some(mut slot) = self.slots.try_lock(key) else { continue };
            let state = slot.entry().state;
            if state.in_pool() && now.saturating_sub(state.stamp()) >= age {
                slot.set_state(state.with(Flag::Idle));
                idle += 1;
            }
        }
        idle
    }

    fn begin_processing(&self) -> MutexGuard<'_, Processing> {
        self.processing.lock().unwrap_or_else(|poisoned| {
            // A panic has left marks, at worst, which would keep pages from being chosen.
            self.processing.clear_poison();
            for key in self.present(0..self.slots()) {
                let mut slot = self.slots.lock(key);
                let state = slot.entry().state;
                slot.set_state(state.without(Flag::Marked));
            }
            poisoned.into_inner()
        })
    }

    /// Chooses a page if it is still selected and its slot is free: appends its kept bytes to
    /// `buffer` and marks the slot.
    fn choose(&self, key: u64, selection: &Selection, buffer: &mut Vec<u8>) -> Option<Candidate> {
        let mut slot = self.slots.try_lock(key)?;
        let entry = slot.entry();
        // The clock hand comes round again, and ranges of keys may overlap.
        if !selection.takes(entry.state) || entry.state.has(Flag::Marked) {
            return None;
        }
        let object = self.object(key, entry).ok()?;
        buffer.extend_from_slice(self.payload(&object, key).ok()?);
        drop(object);
        slot.set_state(entry.state.with(Flag::Marked));
        Some(Candidate { key, entry })
    }

    /// Locks a chosen slot again if it is as it was marked.
    fn still_marked(&self, chosen: &Candidate) -> Option<SlotGuard<'_>> {
        let slot = self.slots.lock(chosen.key);
        let entry = slot.entry();
        let marked = entry.state.has(Flag::Marked) && is_same_form(entry, chosen.entry);
        marked.then_some(slot)
    }

    /// Takes the mark away from a page that is left as it is.
    fn unmark(&self, chosen: &Candidate, also: impl Fn(State) -> State) {
        if let Some(mut slot) = self.still_marked(chosen) {
            let state = slot.entry().state;
            slot.set_state(also(state.without(Flag::Marked)));
        }
    }
}
