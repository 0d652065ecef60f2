//! Slots as the owners of objects in a pool, for its compaction: T5.
//!
//! What it does to a slot is what a store does: it takes the lock, looks at the entry, and puts
//! another value in. The models are in `move_models`.

use zfold_pool::{Address, Owners};

use super::slot::Slot;
use super::table::SlotTable;
use crate::entry::{Entry, Flag};
use crate::sync::atomic::Ordering;

// SAFETY: a slot is held by its lock, under which alone its entry is read and changed (T1), and the
// object of an entry read and the entry taken out to free it (objects/J1, J2).
// `try_lock` is Acquire and `unlock` Release.
unsafe impl Owners for SlotTable {
    fn try_hold(&self, key: u32, at: Address) -> bool {
        let index = u64::from(key);
        if index >= self.len() {
            return false;
        }
        let slot = Slot::of(&self.memory, index);
        // Relaxed: a hint. A slot that is tried in error may be empty: it costs no write then.
        if slot.word.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let Some(word) = slot.try_lock() else { return false };
        let state = slot.state(word);
        let entry = Entry { state, value: slot.value(state, word) };
        let held = entry.address() == Some(at) && !state.has(Flag::Marked);
        if !held {
            slot.unlock(word);
        }
        held
    }

    fn publish(&self, key: u32, at: Address) {
        let slot = Slot::of(&self.memory, key.into());
        // Relaxed: this thread has the lock (T1).
        let state = slot.state(slot.word.load(Ordering::Relaxed));
        slot.unlock(self.put(slot, Entry::of_address(state, at)));
    }
}
