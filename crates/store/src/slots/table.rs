//! The table of slots, and a slot that is locked.
//!
//! A [`SlotGuard`] is the one way to an entry: it exists while its slot's bit is set by this thread
//! (T1), and others see what it wrote when it unlocks. Whatever else looks at a slot gets a hint.
//!
//! The table counts, in a word for each group, its slots in use (T3), and whether the pages of the
//! group and of the values beside it were counted as held. These words order nothing by themselves:
//! all but the look ahead of `give_back` are changed under the lock of a slot of the group, or of
//! all of them. A group is returned to the system only in `give_back`, which tries all locks and
//! waits for none.

use zfold_pool::source::SourceError;

use super::form::{Form, GROUP_BYTES};
use super::memory::Memory;
use super::slot::Slot;
use crate::entry::{Entry, State};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Bit of a group's word that says that its page was counted as held.
pub(super) const HELD: u32 = 1 << 31;

/// Bit of a group's word that says that a page of values beside it was counted as held.
const HELD_BESIDE: u32 = 1 << 30;

/// Returns how many slots a group's word counts (T3).
#[inline]
fn live(word: u32) -> u32 {
    word & !(HELD | HELD_BESIDE)
}

/// No group is parked (T4).
const NO_GROUP: u64 = u64::MAX;

/// The slots of all keys; see the [module](super).
#[derive(Debug)]
pub(crate) struct SlotTable {
    slots: u64,
    pub(super) memory: Memory,
    /// Pages of groups and of values beside them.
    held_pages: AtomicU64,
    parked: AtomicU64,
}

impl SlotTable {
    /// Returns a table of `slots` empty slots of a form.
    ///
    /// # Errors
    /// When the address space cannot be reserved.
    pub(crate) fn new(slots: u64, form: Form) -> Result<Self, SourceError> {
        Ok(Self {
            slots,
            memory: Memory::new(slots, form)?,
            held_pages: AtomicU64::new(0),
            parked: AtomicU64::new(NO_GROUP),
        })
    }

    /// Number of slots.
    pub(crate) fn len(&self) -> u64 {
        self.slots
    }

    /// Bytes that the table holds.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        // Relaxed: a gauge.
        self.held_pages.load(Ordering::Relaxed) * GROUP_BYTES as u64
    }

    #[inline]
    fn slot(&self, index: u64) -> Slot<'_> {
        assert!(index < self.slots, "slot {index} of {}", self.slots);
        Slot::of(&self.memory, index)
    }

    #[inline]
    pub(super) fn group(&self, group: u64) -> &AtomicU32 {
        self.memory.group(group)
    }

    /// Asks the processor to fetch a slot that will be locked soon; a hint.
    #[inline]
    pub(crate) fn prefetch(&self, index: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            let slot = std::ptr::from_ref(self.slot(index).word).cast();
            // SAFETY: a hint; it reads and writes nothing.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(slot) };
        }
        let _ = index;
    }

    /// Locks a slot.
    ///
    /// # Panics
    /// If there is no such slot.
    #[inline]
    pub(crate) fn lock(&self, index: u64) -> SlotGuard<'_> {
        let slot = self.slot(index);
        SlotGuard::new(self, slot, slot.lock())
    }

    /// Locks a slot if no other thread has it locked.
    #[inline]
    pub(crate) fn try_lock(&self, index: u64) -> Option<SlotGuard<'_>> {
        let slot = self.slot(index);
        slot.try_lock().map(|word| SlotGuard::new(self, slot, word))
    }

    /// Locks a slot unless it is empty, which costs no write.
    #[inline]
    pub(crate) fn lock_present(&self, index: u64) -> Option<SlotGuard<'_>> {
        // Relaxed: only zero is believed (T1); a caller that needs more takes the lock.
        if self.slot(index).word.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(self.lock(index)).filter(|slot| !slot.state.is_empty())
    }

    /// Returns the first key of `from..end` that holds something; reads, but locks nothing.
    ///
    /// # Cost
    /// A word for each group without entries, a word for each slot of the others.
    pub(crate) fn next_present(&self, from: u64, end: u64) -> Option<u64> {
        self.next(from, end, |slot| !State::from_word(slot).is_empty())
    }

    /// Returns the first key of `from..end` whose slot holds something or is locked. None is
    /// missed that was [announced](SlotGuard::announce) before the caller's last `SeqCst` fence,
    /// if the one that announced it did not see what the caller wrote before the fence.
    ///
    /// # Cost
    /// That of [`next_present`](Self::next_present).
    pub(crate) fn next_in_use(&self, from: u64, end: u64) -> Option<u64> {
        self.next(from, end, |slot| slot != 0)
    }

    fn next(&self, from: u64, end: u64, wanted: impl Fn(u64) -> bool) -> Option<u64> {
        let end = end.min(self.slots);
        let mut index = from;
        while index < end {
            // Relaxed: whoever filled a slot before this call is seen through whatever ordered
            // the two calls; a slot filled meanwhile may or may not be.
            let group = self.memory.place(index).group;
            let group_end = ((group + 1) * self.memory.form().group_slots()).min(end);
            if live(self.group(group).load(Ordering::Relaxed)) != 0 {
                let word = |index| self.slot(index).word.load(Ordering::Relaxed);
                if let Some(found) = (index..group_end).find(|&index| wanted(word(index))) {
                    return Some(found);
                }
            }
            index = group_end;
        }
        None
    }

    /// Returns the state of a slot at this moment, without its lock.
    #[inline]
    pub(crate) fn state_now(&self, index: u64) -> State {
        let slot = self.slot(index);
        // Relaxed: as in `next_present`.
        slot.state(slot.word.load(Ordering::Relaxed))
    }

    /// Counts a slot of a group that is empty no more; its lock is held (T3).
    #[inline]
    fn count_filled(&self, group: u64) {
        let group = self.group(group);
        // Relaxed: the counts are read for a decision only under all locks of the group, whose
        // Acquire orders them.
        if group.fetch_add(1, Ordering::Relaxed) & HELD == 0
            && group.fetch_or(HELD, Ordering::Relaxed) & HELD == 0
        {
            self.held_pages.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Puts an entry into a locked slot; returns the word that says so once it is the slot's.
    #[inline]
    pub(super) fn put(&self, slot: Slot<'_>, entry: Entry) -> u64 {
        let (word, beside) = slot.put(entry);
        if beside {
            self.count_beside(slot.place.group);
        }
        word
    }

    /// Counts the page of values beside a group; the lock of a slot of it is held (T3).
    #[cold]
    fn count_beside(&self, group: u64) {
        // Relaxed: as in `count_filled`.
        if self.group(group).fetch_or(HELD_BESIDE, Ordering::Relaxed) & HELD_BESIDE == 0 {
            self.held_pages.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Uncounts a slot that became empty; its lock is held. Returns whether its group is empty.
    #[inline]
    fn count_emptied(&self, group: u64) -> bool {
        let before = self.group(group).fetch_sub(1, Ordering::Relaxed);
        debug_assert!(live(before) > 0, "T3: group of an empty slot");
        live(before) == 1
    }

    /// Parks an emptied group, and gives the one parked before back.
    #[cold]
    fn park(&self, group: u64) {
        // Relaxed: a hint for whom to give back; giving back checks for itself.
        let before = self.parked.swap(group, Ordering::Relaxed);
        if before != group && before != NO_GROUP {
            self.give_back(before);
        }
    }

    /// Gives the parked group back, too, if it is still empty.
    pub(crate) fn trim(&self) {
        let parked = self.parked.swap(NO_GROUP, Ordering::Relaxed);
        if parked != NO_GROUP {
            self.give_back(parked);
        }
    }

    /// Returns the pages of a group to the system if all its slots are empty and unlocked.
    pub(super) fn give_back(&self, group: u64) {
        let slots = self.memory.form().group_slots();
        let first = group * slots;
        let end = (first + slots).min(self.slots);
        let word = self.group(group);
        if word.load(Ordering::Relaxed) & !HELD_BESIDE != HELD {
            return;
        }
        let locked = (first..end).take_while(|&index| self.try_lock_empty(index)).count() as u64;
        if first + locked < end {
            (first..first + locked).for_each(|index| self.slot(index).unlock(0));
            return;
        }
        // Another thread may have given the group back between the look at its word above and
        // the first lock; then the locks have brought its page into being again, uncounted.
        let before = word.swap(0, Ordering::Relaxed);
        debug_assert_eq!(live(before), 0, "T3: all slots are empty");
        let pages = (before & (HELD | HELD_BESIDE)).count_ones();
        self.held_pages.fetch_sub(pages.into(), Ordering::Relaxed);
        // The values first: with the page of the slots, their locks go.
        if before & HELD_BESIDE != 0 {
            // SAFETY: all slots of the group are empty and locked by this thread.
            unsafe { self.memory.release_beside(group) };
        }
        // SAFETY: all slots of the group are empty and locked by this thread. Others only load
        // and compare-exchange the words, and cope with the locked value or zero (T3).
        unsafe { self.memory.release(group) };
    }

    /// Locks a slot if it is empty and unlocked.
    fn try_lock_empty(&self, index: u64) -> bool {
        // Acquire as in `try_lock`; strong, because a spurious failure would waste the attempt.
        let word = self.slot(index).word;
        word.compare_exchange(0, State::LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// A locked slot; unlocks it when dropped.
#[derive(Debug)]
pub(crate) struct SlotGuard<'a> {
    table: &'a SlotTable,
    slot: Slot<'a>,
    /// What it will be when it is unlocked.
    word: u64,
    /// The state in the word and the stamp.
    state: State,
    /// Whether the slot's group counts it (T3).
    counted: bool,
}

impl<'a> SlotGuard<'a> {
    #[inline]
    fn new(table: &'a SlotTable, slot: Slot<'a>, word: u64) -> Self {
        let state = slot.state(word);
        SlotGuard { table, slot, word, state, counted: !state.is_empty() }
    }

    /// Says that this slot, if it is empty, will be filled, before the caller looks at what a
    /// sweep over the slots changes when it begins: either the caller then sees the change, or
    /// the sweep finds the slot with [`SlotTable::next_in_use`].
    #[inline]
    pub(crate) fn announce(&mut self) {
        if !self.counted {
            self.counted = true;
            self.table.count_filled(self.slot.place.group);
            // The lock bit and the count come before the look, as the sweep's change comes before
            // its look at both: one of two SeqCst fences is first, and the other one's thread
            // sees what was written before it.
            fence(Ordering::SeqCst);
        }
    }

    /// Returns what the slot holds.
    #[inline]
    pub(crate) fn entry(&self) -> Entry {
        Entry { state: self.state, value: self.slot.value(self.state, self.word) }
    }

    /// Changes flags or stamp of the slot's entry, not its kind.
    #[inline]
    pub(crate) fn set_state(&mut self, state: State) {
        debug_assert_eq!(state.kind(), self.state.kind());
        self.word = self.slot.with_state(self.word, state);
        self.state = state;
    }

    /// Puts `entry` into the slot and unlocks it; returns what it held.
    #[inline]
    pub(crate) fn replace(mut self, entry: Entry) -> Entry {
        let old = self.entry();
        let (table, group) = (self.table, self.slot.place.group);
        self.word = table.put(self.slot, entry);
        self.state = entry.state;
        let group_emptied = match (self.counted, !entry.state.is_empty()) {
            (false, true) => {
                table.count_filled(group);
                false
            }
            (true, false) => table.count_emptied(group),
            _ => false,
        };
        self.counted = !entry.state.is_empty();
        drop(self);
        if group_emptied {
            table.park(group);
        }
        old
    }
}

impl Drop for SlotGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.counted && self.state.is_empty() {
            // Announced, and left empty after all.
            self.table.count_emptied(self.slot.place.group);
        }
        self.slot.unlock(self.word);
    }
}
