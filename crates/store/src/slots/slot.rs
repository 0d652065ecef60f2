//! One slot and its lock, and where its parts lie.
//!
//! Here alone is known whether a slot is wide or narrow, and here its lock bit is set and cleared,
//! but for the table's look for empty slots. An acquire of the bit pairs with the release of
//! `unlock`; by that pair, and nothing else, value and stamp, which are accessed as relaxed
//! atomics, belong to the thread that has the bit (T1). A caller of `value`, `with_state`, `put` or
//! `unlock` has it.

use super::code::{self, CODE_SHIFT};
use super::form::{Form, Place};
use super::memory::Memory;
use crate::entry::{Entry, State};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{SPINS, yield_now};

/// A slot: its word, and by way of the table's memory all else.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    memory: &'a Memory,
    pub(super) word: &'a AtomicU64,
    pub(super) place: Place,
}

impl<'a> Slot<'a> {
    #[inline]
    pub(super) fn of(memory: &'a Memory, index: u64) -> Self {
        let place = memory.place(index);
        Self { memory, word: memory.word(place), place }
    }

    /// Takes the lock if it is free; returns the word. Fails only if another thread has it, or
    /// had it a moment ago.
    #[inline]
    pub(super) fn try_lock(self) -> Option<u64> {
        let word = self.word.load(Ordering::Relaxed);
        let locked = word | State::LOCKED;
        // Acquire pairs with the Release of `unlock`: the holder sees the value and the counts that
        // the previous holder left. Strong, because a caller that only tries takes a failure for
        // use.
        let taken = word != locked
            && self
                .word
                .compare_exchange(word, locked, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        taken.then_some(word)
    }

    #[inline]
    pub(super) fn lock(self) -> u64 {
        let mut spins = 0;
        loop {
            if let Some(word) = self.try_lock() {
                return word;
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                yield_now();
            }
        }
    }

    #[inline]
    pub(super) fn unlock(self, word: u64) {
        self.word.store(word, Ordering::Release);
    }

    /// Returns the state that `word`, the slot's, begins with; its stamp is exact only under the
    /// lock.
    #[inline]
    pub(super) fn state(self, word: u64) -> State {
        if self.memory.form() == Form::Wide {
            return State::from_word(word);
        }
        let facts = State::from_facts(word);
        if facts.is_empty() {
            return State::EMPTY;
        }
        // Relaxed: ordered by the lock (T1).
        facts.stamped(self.memory.stamp(self.place).load(Ordering::Relaxed))
    }

    /// Returns the value of a slot in this state, whose word is `word`; the lock is held.
    #[inline]
    pub(super) fn value(self, state: State, word: u64) -> u64 {
        let told = match self.memory.form() {
            Form::Wide => None,
            Form::Narrow => code::value(state, word >> CODE_SHIFT),
        };
        // Relaxed: ordered by the lock (T1).
        told.unwrap_or_else(|| self.memory.value(self.place).load(Ordering::Relaxed))
    }

    /// Returns `word`, the slot's, with another state of the same kind; the lock is held.
    #[inline]
    pub(super) fn with_state(self, word: u64, state: State) -> u64 {
        match self.memory.form() {
            Form::Wide => state.word(),
            Form::Narrow => {
                self.put_stamp(state);
                word >> CODE_SHIFT << CODE_SHIFT | state.facts()
            }
        }
    }

    #[inline]
    fn put_stamp(self, state: State) {
        // Relaxed: ordered by the lock (T1).
        self.memory.stamp(self.place).store(state.stamp(), Ordering::Relaxed);
    }

    /// Writes the part of `entry` that is not in the slot's word; returns that word, and whether
    /// the value lies beside the group now. The lock is held.
    #[inline]
    pub(super) fn put(self, entry: Entry) -> (u64, bool) {
        let put_value = || {
            // Relaxed: ordered by the lock (T1).
            self.memory.value(self.place).store(entry.value, Ordering::Relaxed);
        };
        match self.memory.form() {
            Form::Wide => {
                put_value();
                (entry.state.word(), false)
            }
            Form::Narrow if entry.state.is_empty() => (0, false),
            Form::Narrow => {
                self.put_stamp(entry.state);
                let code = code::of(entry);
                if code.is_none() {
                    put_value();
                }
                let word = code.unwrap_or(code::BESIDE) << CODE_SHIFT | entry.state.facts();
                (word, code.is_none())
            }
        }
    }
}
