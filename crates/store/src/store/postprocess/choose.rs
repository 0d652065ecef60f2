//! Choosing pages, one slot at a time, and the marks of those that were chosen.

use std::ops::Range;
use std::sync::MutexGuard;
use std::time::Duration;

use super::rounds::Processing;
use super::selection::Selection;
use crate::entry::{Entry, Flag, State};
use crate::slots::SlotGuard;
use crate::store::Store;

/// A page that was chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) key: u64,
    /// The entry that its slot held.
    pub(super) entry: Entry,
}

/// Goes over the keys of a selection, those of [`Selection::Lru`] from the clock hand on, twice
/// around at most.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    pub(super) selection: &'a Selection,
    /// The remaining ones, the next one last.
    ranges: Vec<Range<u64>>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(selection: &'a Selection, slots: u64, hand: u64) -> Self {
        let ranges = match selection {
            Selection::Keys(ranges) => ranges.iter().rev().cloned().collect(),
            // The first time around may only take second chances away.
            Selection::Lru => vec![0..hand, hand..slots, 0..hand, hand..slots],
            _ => std::iter::once(0..slots).collect(),
        };
        Self { selection, ranges }
    }

    /// Returns the next key that holds a page that is selected by what its slot says unlocked.
    pub(super) fn next(&mut self, store: &Store) -> Option<u64> {
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

    pub(super) fn begin_processing(&self) -> MutexGuard<'_, Processing> {
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
    pub(super) fn choose(
        &self,
        key: u64,
        selection: &Selection,
        buffer: &mut Vec<u8>,
    ) -> Option<Candidate> {
        let mut slot = self.slots.try_lock(key)?;
        let entry = slot.entry();
        if !selection.takes(entry.state) {
            return None;
        }
        debug_assert!(!entry.state.has(Flag::Marked), "P1: chosen twice");
        let object = self.pages.object(key, entry).ok()?;
        buffer.extend_from_slice(self.pages.payload(&object, key).ok()?);
        drop(object);
        slot.set_state(entry.state.with(Flag::Marked));
        Some(Candidate { key, entry })
    }

    /// Locks a chosen slot again if it is as it was marked.
    pub(super) fn still_marked(&self, chosen: &Candidate) -> Option<SlotGuard<'_>> {
        let slot = self.slots.lock(chosen.key);
        let entry = slot.entry();
        let marked = entry.state.has(Flag::Marked) && entry.is_form_of(chosen.entry);
        marked.then_some(slot)
    }

    /// Takes the mark away from a page that is left as it is.
    pub(super) fn unmark(&self, chosen: &Candidate, also: impl Fn(State) -> State) {
        if let Some(mut slot) = self.still_marked(chosen) {
            let state = slot.entry().state;
            slot.set_state(also(state.without(Flag::Marked)));
        }
    }
}
