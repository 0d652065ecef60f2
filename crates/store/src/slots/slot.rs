//! One slot and its lock, and how many of them make a group.

use crate::entry::State;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{SPINS, yield_now};

/// Bytes of a group.
pub(super) const GROUP_BYTES: usize = 4 << 10;
/// Slots of a group; two in models, where every slot costs.
pub(super) const GROUP_SLOTS: u64 =
    if cfg!(loom) { 2 } else { (GROUP_BYTES / size_of::<Slot>()) as u64 };

/// The two words of a key.
#[repr(C)]
pub(super) struct Slot {
    pub(super) value: AtomicU64,
    pub(super) state: AtomicU64,
}

impl Slot {
    /// Takes the lock if it is free; returns the state. Fails only if another thread has it, or
    /// had it a moment ago.
    #[inline]
    pub(super) fn try_lock(&self) -> Option<State> {
        let word = self.state.load(Ordering::Relaxed);
        let locked = word | State::LOCKED;
        // Acquire pairs with the Release of `unlock`: the holder sees the value and the counts
        // that the previous holder left. Strong, because who only tries takes a failure for use.
        let taken = word != locked
            && self
                .state
                .compare_exchange(word, locked, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        taken.then(|| State::from_word(word))
    }

    #[inline]
    pub(super) fn lock(&self) -> State {
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
    pub(super) fn unlock(&self, state: State) {
        self.state.store(state.word(), Ordering::Release);
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = State::from_word(self.state.load(Ordering::Relaxed));
        f.debug_tuple("Slot").field(&state).finish()
    }
}
