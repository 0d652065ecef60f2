//! The slot table: one dense array of slots, each with its own lock.
//!
//! ```text
//!   slot (16 bytes):  | value | state |
//! ```
//!
//! What the two words say is an [`Entry`]'s matter; one bit of the state is the lock.
//!
//! The table is reserved for all slots and costs memory only where slots are in use: a *group*,
//! the slots of one 4 KiB page, is given back to the system when its last slot is emptied.
//!
//! - T1: `value` and the state are read and written only by the thread that set the lock bit, but
//!   an empty, unlocked state may be read by anyone: it says that the slot was empty.
//! - T2: an all-zero slot is an empty, unlocked one; so a group that was given back, which reads
//!   as zeros, is a group of empty slots.
//! - T3: `live` of a group counts its slots that are not empty, and those that are locked and
//!   announced to be filled; it changes under the lock of the slot concerned. A group is given
//!   back only by a thread that holds the locks of all its slots and finds them empty. Threads
//!   that wait for one of these locks meanwhile read either the locked state or, once the page is
//!   gone, zero; both are right.
//! - T4: one emptied group is left alone until another one is emptied, so that a slot that
//!   comes and goes does not call the system every time.
//!
//! A lock is held for a few microseconds at most (a decompression), by threads that do not
//! block; waiters spin briefly and then yield.

use zfold_pool::source::SourceError;

use crate::entry::{Entry, State};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::{SPINS, yield_now};
use memory::Memory;

/// Bytes of a group.
const GROUP_BYTES: usize = 4 << 10;
/// Slots of a group; two in models, where every slot costs.
const GROUP_SLOTS: u64 = if cfg!(loom) { 2 } else { (GROUP_BYTES / size_of::<Slot>()) as u64 };

/// Bit of a group's word that says that its page was counted as held.
const HELD: u32 = 1 << 31;

/// No group is parked (T4).
const NO_GROUP: u64 = u64::MAX;

#[repr(C)]
struct Slot {
    value: AtomicU64,
    state: AtomicU64,
}

impl Slot {
    /// Takes the lock if it is free; returns the state.
    #[inline]
    fn try_lock(&self) -> Option<State> {
        let word = self.state.load(Ordering::Relaxed);
        let locked = word | State::LOCKED;
        // Acquire pairs with the Release of `unlock`: the holder sees the value and the counts
        // that the previous holder left.
        let taken = word != locked
            && self
                .state
                .compare_exchange_weak(word, locked, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        taken.then(|| State::from_word(word))
    }

    #[inline]
    fn lock(&self) -> State {
        let mut spins = 0;
        loop {
            if let Some(state) = self.try_lock() {
                return state;
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
    fn unlock(&self, state: State) {
        self.state.store(state.word(), Ordering::Release);
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct SlotTable {
    slots: u64,
    memory: Memory,
    held_groups: AtomicU64,
    parked: AtomicU64,
}

impl SlotTable {
    /// Returns a table of `slots` empty slots.
    ///
    /// # Errors
    /// When the address space cannot be reserved.
    pub(crate) fn new(slots: u64) -> Result<Self, SourceError> {
        Ok(Self {
            slots,
            memory: Memory::new(slots)?,
            held_groups: AtomicU64::new(0),
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
        self.held_groups.load(Ordering::Relaxed) * GROUP_BYTES as u64
    }

    #[inline]
    fn slot(&self, index: u64) -> &Slot {
        assert!(index < self.slots, "slot {index} of {}", self.slots);
        self.memory.slot(index)
    }

    #[inline]
    fn group(&self, group: u64) -> &AtomicU32 {
        self.memory.group(group)
    }

    /// Asks the processor to fetch a slot that will be locked soon; a hint.
    #[inline]
    pub(crate) fn prefetch(&self, index: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            let slot = std::ptr::from_ref(self.slot(index)).cast();
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
        SlotGuard::new(self, slot, index, slot.lock())
    }

    /// Locks a slot if nobody else has it locked; may fail for no reason.
    #[inline]
    pub(crate) fn try_lock(&self, index: u64) -> Option<SlotGuard<'_>> {
        let slot = self.slot(index);
        slot.try_lock().map(|state| SlotGuard::new(self, slot, index, state))
    }

    /// Locks a slot unless it is empty, which costs no write.
    #[inline]
    pub(crate) fn lock_present(&self, index: u64) -> Option<SlotGuard<'_>> {
        // Relaxed: only zero is believed (T1); whoever needs more takes the lock.
        if self.slot(index).state.load(Ordering::Relaxed) == 0 {
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
            let group_end = ((index / GROUP_SLOTS + 1) * GROUP_SLOTS).min(end);
            if self.group(index / GROUP_SLOTS).load(Ordering::Relaxed) & !HELD != 0 {
                let word = |index| self.slot(index).state.load(Ordering::Relaxed);
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
        // Relaxed: as in `next_present`.
        State::from_word(self.slot(index).state.load(Ordering::Relaxed))
    }

    /// Counts a slot of a group that is empty no more; its lock is held (T3).
    #[inline]
    fn count_filled(&self, index: u64) {
        let group = self.group(index / GROUP_SLOTS);
        // Relaxed: the counts are read for a decision only under all locks of the group, whose
        // Acquire orders them.
        if group.fetch_add(1, Ordering::Relaxed) & HELD == 0
            && group.fetch_or(HELD, Ordering::Relaxed) & HELD == 0
        {
            self.held_groups.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Uncounts a slot that became empty; its lock is held. Returns whether its group is empty.
    #[inline]
    fn count_emptied(&self, index: u64) -> bool {
        let before = self.group(index / GROUP_SLOTS).fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before & !HELD > 0, "T3: group of an empty slot");
        before & !HELD == 1
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

    /// Returns the page of a group to the system if all its slots are empty and unlocked.
    fn give_back(&self, group: u64) {
        let first = group * GROUP_SLOTS;
        let end = (first + GROUP_SLOTS).min(self.slots);
        let word = self.group(group);
        if word.load(Ordering::Relaxed) != HELD {
            return;
        }
        let locked = (first..end).take_while(|&index| self.try_lock_empty(index)).count() as u64;
        if first + locked < end {
            (first..first + locked).for_each(|index| self.slot(index).unlock(State::EMPTY));
            return;
        }
        // Another thread may have given the group back between the look at its word above and
        // the first lock; then the locks have brought its page into being again, uncounted.
        let before = word.swap(0, Ordering::Relaxed);
        debug_assert_eq!(before & !HELD, 0, "T3: all slots are empty");
        self.held_groups.fetch_sub((before / HELD).into(), Ordering::Relaxed);
        // SAFETY: all slots of the group are empty and locked by this thread. Others only load
        // and compare-exchange the states, and cope with the locked value or zero (T3).
        unsafe { self.memory.release(group) };
    }

    /// Locks a slot if it is empty and unlocked.
    fn try_lock_empty(&self, index: u64) -> bool {
        // Acquire as in `try_lock`; strong, because a spurious failure would waste the attempt.
        let state = &self.slot(index).state;
        state.compare_exchange(0, State::LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// Where slots and group words lie: address space reserved from the system.
#[cfg(not(loom))]
mod memory {
    use std::ptr::NonNull;
    use std::sync::Arc;

    use zfold_pool::source::{PageSource, Reservation, SourceError, SystemPages};

    use super::{AtomicU32, GROUP_BYTES, GROUP_SLOTS, Slot};

    #[derive(Debug)]
    pub(super) struct Memory {
        slots: u64,
        range: Arc<dyn Reservation>,
        groups: Arc<dyn Reservation>,
    }

    impl Memory {
        pub(super) fn new(slots: u64) -> Result<Self, SourceError> {
            let groups = slots / GROUP_SLOTS + 1;
            Ok(Self {
                slots,
                range: reserve(slots.max(1), size_of::<Slot>())?,
                groups: reserve(groups, size_of::<AtomicU32>())?,
            })
        }

        #[inline]
        pub(super) fn slot(&self, index: u64) -> &Slot {
            assert!(index < self.slots);
            let slots: NonNull<Slot> = self.range.base().cast();
            // SAFETY: index < slots, and the range was made to hold that many.
            let slot = unsafe { slots.add(index as usize) };
            // SAFETY: committed when the table was made, aligned (the base is page aligned),
            // only ever accessed as atomics, zero-initialised which is a valid slot (T2); it
            // lives as long as `self`.
            unsafe { slot.as_ref() }
        }

        #[inline]
        pub(super) fn group(&self, group: u64) -> &AtomicU32 {
            assert!(group <= self.slots / GROUP_SLOTS);
            let groups: NonNull<AtomicU32> = self.groups.base().cast();
            // SAFETY: one word was reserved for each of slots / GROUP_SLOTS + 1 groups.
            let word = unsafe { groups.add(group as usize) };
            // SAFETY: as in `slot`.
            unsafe { word.as_ref() }
        }

        /// Gives the page of a group back; its slots read as zeros afterwards.
        ///
        /// # Safety
        /// The slots' contents are given up, and other threads reach them only through atomics
        /// that cope with the old value and with zero.
        pub(super) unsafe fn release(&self, group: u64) {
            // SAFETY: committed when the table was made, page aligned; the rest is the caller's.
            unsafe { self.range.release(group as usize * GROUP_BYTES, GROUP_BYTES) };
        }
    }

    fn reserve(count: u64, size: usize) -> Result<Arc<dyn Reservation>, SourceError> {
        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
        let bytes = bytes.and_then(|bytes| bytes.checked_next_multiple_of(64 << 10));
        let bytes = bytes.ok_or(SourceError::AddressSpace { bytes: usize::MAX })?;
        let range = SystemPages.reserve(bytes)?;
        range.commit(0, bytes)?;
        Ok(range)
    }
}

/// For models: slots and group words that loom watches.
#[cfg(loom)]
mod memory {
    use zfold_pool::source::SourceError;

    use super::{AtomicU32, AtomicU64, GROUP_SLOTS, Ordering, Slot};

    #[derive(Debug)]
    pub(super) struct Memory {
        slots: Vec<Slot>,
        groups: Vec<AtomicU32>,
    }

    impl Memory {
        pub(super) fn new(slots: u64) -> Result<Self, SourceError> {
            let slot = |_| Slot { value: AtomicU64::new(0), state: AtomicU64::new(0) };
            let groups = (0..=slots / GROUP_SLOTS).map(|_| AtomicU32::new(0)).collect();
            Ok(Self { slots: (0..slots).map(slot).collect(), groups })
        }

        pub(super) fn slot(&self, index: u64) -> &Slot {
            &self.slots[index as usize]
        }

        pub(super) fn group(&self, group: u64) -> &AtomicU32 {
            &self.groups[group as usize]
        }

        /// As the system does it: the whole page becomes zeros, in no particular order; Release,
        /// because taking a page away is a barrier for all processors that had it.
        pub(super) unsafe fn release(&self, group: u64) {
            let first = (group * GROUP_SLOTS) as usize;
            for slot in &self.slots[first..first + GROUP_SLOTS as usize] {
                slot.value.store(0, Ordering::Relaxed);
                slot.state.store(0, Ordering::Release);
            }
        }
    }
}

/// A locked slot; unlocks it when dropped.
#[derive(Debug)]
pub(crate) struct SlotGuard<'a> {
    table: &'a SlotTable,
    slot: &'a Slot,
    index: u64,
    state: State,
    /// Whether the slot's group counts it (T3).
    counted: bool,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = State::from_word(self.state.load(Ordering::Relaxed));
        f.debug_tuple("Slot").field(&state).finish()
    }
}

impl<'a> SlotGuard<'a> {
    #[inline]
    fn new(table: &'a SlotTable, slot: &'a Slot, index: u64, state: State) -> Self {
        SlotGuard { table, slot, index, state, counted: !state.is_empty() }
    }

    /// Says that this slot, if it is empty, will be filled, before the caller looks at what a
    /// sweep over the slots changes when it begins: either the caller then sees the change, or
    /// the sweep finds the slot with [`SlotTable::next_in_use`].
    #[inline]
    pub(crate) fn announce(&mut self) {
        if !self.counted {
            self.counted = true;
            self.table.count_filled(self.index);
            // The lock bit and the count come before the look, as the sweep's change comes before
            // its look at both: one of two SeqCst fences is first, and the other one's thread
            // sees what was written before it.
            fence(Ordering::SeqCst);
        }
    }

    /// Returns what the slot holds.
    #[inline]
    pub(crate) fn entry(&self) -> Entry {
        // Relaxed: ordered by the lock (T1).
        Entry { state: self.state, value: self.slot.value.load(Ordering::Relaxed) }
    }

    /// Changes flags or stamp of what the slot holds, not its kind.
    #[inline]
    pub(crate) fn set_state(&mut self, state: State) {
        debug_assert_eq!(state.kind(), self.state.kind());
        self.state = state;
    }

    /// Puts `entry` into the slot and unlocks it; returns what it held.
    #[inline]
    pub(crate) fn replace(mut self, entry: Entry) -> Entry {
        let old = self.entry();
        self.slot.value.store(entry.value, Ordering::Relaxed);
        self.state = entry.state;
        let (table, index) = (self.table, self.index);
        let group_emptied = match (self.counted, !entry.state.is_empty()) {
            (false, true) => {
                table.count_filled(index);
                false
            }
            (true, false) => table.count_emptied(index),
            _ => false,
        };
        self.counted = !entry.state.is_empty();
        drop(self);
        if group_emptied {
            table.park(index / GROUP_SLOTS);
        }
        old
    }
}

impl Drop for SlotGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.counted && self.state.is_empty() {
            // Announced, and left empty after all.
            self.table.count_emptied(self.index);
        }
        self.slot.unlock(self.state);
    }
}

/// Models of T3: groups are given back while their slots are filled and emptied. Loom explores
/// all interleavings of two or three threads over groups of two slots, up to two preemptions.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn entry(value: u64) -> Entry {
        Entry::same(value)
    }

    fn model(run: impl Fn(Arc<SlotTable>) + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(move || run(Arc::new(SlotTable::new(2).unwrap())));
    }

    #[test]
    fn a_slot_filled_while_its_group_is_given_back_keeps_its_entry() {
        model(|table| {
            table.lock(0).replace(entry(1));
            table.lock(0).replace(Entry::EMPTY);
            let giver = Arc::clone(&table);
            let giver = thread::spawn(move || giver.give_back(0));
            table.lock(1).replace(entry(7));
            giver.join().unwrap();
            assert_eq!(table.lock(1).entry(), entry(7));
            assert_eq!(table.bytes(), GROUP_BYTES as u64);
        });
    }

    #[test]
    fn a_group_given_back_by_two_threads_is_uncounted_once() {
        model(|table| {
            table.lock(0).replace(entry(1));
            table.lock(0).replace(Entry::EMPTY);
            let givers = [0; 2].map(|_| {
                let table = Arc::clone(&table);
                thread::spawn(move || table.give_back(0))
            });
            givers.into_iter().for_each(|giver| giver.join().unwrap());
            assert_eq!(table.bytes(), 0);
            table.lock(0).replace(entry(2));
            assert_eq!(table.bytes(), GROUP_BYTES as u64);
        });
    }

    #[test]
    fn two_threads_on_one_slot_take_turns() {
        model(|table| {
            let other = Arc::clone(&table);
            let other = thread::spawn(move || other.lock(0).replace(entry(1)));
            let before = table.lock(0).replace(entry(2));
            let other_before = other.join().unwrap();
            let last = table.lock(0).entry();
            let orders = [(Entry::EMPTY, entry(2), entry(1)), (entry(1), Entry::EMPTY, entry(2))];
            assert!(orders.contains(&(before, other_before, last)));
        });
    }

    /// The twin: gives back without taking the slots' locks.
    #[test]
    #[should_panic(expected = "an entry was lost")]
    fn a_twin_that_gives_back_without_the_locks_is_caught() {
        model(|table| {
            table.lock(0).replace(entry(1));
            table.lock(0).replace(Entry::EMPTY);
            let giver = Arc::clone(&table);
            let giver = thread::spawn(move || {
                if giver.group(0).load(Ordering::Relaxed) == HELD {
                    giver.group(0).store(0, Ordering::Relaxed);
                    // SAFETY: none: this is the bug that the model must see.
                    unsafe { giver.memory.release(0) };
                }
            });
            table.lock(1).replace(entry(7));
            giver.join().unwrap();
            assert_eq!(table.lock(1).entry(), entry(7), "an entry was lost");
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn entry(value: u64) -> Entry {
        Entry::same(value)
    }

    #[test]
    fn slots_keep_what_was_put_in() {
        let table = SlotTable::new(10_000).unwrap();
        for index in (0..10_000).step_by(3) {
            assert_eq!(table.lock(index).replace(entry(index)), Entry::EMPTY);
        }
        for index in 0..10_000 {
            let found = table.lock_present(index).map(|slot| slot.entry());
            assert_eq!(found, (index % 3 == 0).then(|| entry(index)));
        }
    }

    #[test]
    fn groups_cost_memory_only_while_they_hold_something() {
        let table = SlotTable::new(1 << 40).unwrap();
        assert_eq!(table.bytes(), 0);
        for index in [0, 1, 1 << 30, (1 << 40) - 1] {
            table.lock(index).replace(entry(1));
        }
        assert_eq!(table.bytes(), 3 * GROUP_BYTES as u64);
        for index in [0, 1, 1 << 30, (1 << 40) - 1] {
            table.lock(index).replace(Entry::EMPTY);
        }
        assert_eq!(table.bytes(), GROUP_BYTES as u64, "one group is parked");
        table.trim();
        assert_eq!(table.bytes(), 0);
        table.lock(1).replace(entry(5));
        assert_eq!(table.lock(1).entry(), entry(5));
    }

    #[test]
    fn an_absent_slot_is_seen_without_a_write() {
        let table = SlotTable::new(1 << 20).unwrap();
        assert!(table.lock_present(77).is_none());
        assert_eq!(table.bytes(), 0);
    }

    #[test]
    #[should_panic(expected = "slot 8 of 8")]
    fn a_slot_beyond_the_end_panics() {
        let _ = SlotTable::new(8).unwrap().lock(8);
    }

    #[test]
    fn a_table_that_cannot_be_reserved_is_an_error() {
        assert!(SlotTable::new(u64::MAX).is_err());
        assert!(SlotTable::new(u64::MAX / 64).is_err());
    }

    /// Threads fill and empty slots of the same few groups, so that groups are given back all
    /// the time; no update may be lost.
    #[test]
    fn groups_given_back_under_traffic_lose_nothing() {
        let table = SlotTable::new(4 * GROUP_SLOTS).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let table = &table;
                scope.spawn(move || {
                    for round in 1..30_000 {
                        // Each thread has its own slot in every group.
                        let index = (round % 4) * GROUP_SLOTS + thread;
                        let put = entry(thread << 32 | round);
                        assert_eq!(table.lock(index).replace(put), Entry::EMPTY);
                        assert_eq!(table.lock(index).replace(Entry::EMPTY), put);
                    }
                });
            }
        });
        table.trim();
        assert!(table.bytes() <= 4 * GROUP_BYTES as u64);
        (0..table.len()).for_each(|index| assert!(table.lock_present(index).is_none()));
    }
}
