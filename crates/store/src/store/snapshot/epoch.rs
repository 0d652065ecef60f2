//! The epoch, and the entries that were replaced before a snapshot had written them.

use std::sync::atomic::AtomicU64;

use zfold_pool::Lock;

use crate::entry::Entry;
use crate::sync::atomic::{AtomicBool, Ordering, fence};

/// The state that a snapshot in progress, or the next one, needs.
#[derive(Debug, Default)]
pub(crate) struct Saving {
    /// One snapshot at a time.
    pub(super) turn: Lock<()>,
    epoch: AtomicBool,
    preserved: Lock<Vec<(u64, Entry)>>,
    /// How many there are.
    preserved_count: AtomicU64,
}

impl Saving {
    /// Returns the epoch's bit; the caller has locked a slot (S2).
    #[inline]
    pub(crate) fn epoch(&self) -> bool {
        // Acquire pairs with the turn: a thread that sees the new epoch comes after everything that
        // led to it.
        self.epoch.load(Ordering::Acquire)
    }

    /// Keeps an entry that leaves its slot, whose lock the caller holds, for the snapshot (S1).
    #[cold]
    pub(crate) fn preserve(&self, key: u64, entry: Entry) {
        let mut preserved = self.preserved.lock();
        preserved.push((key, entry));
        // Relaxed: a gauge; under the lock, so that no thread uncounts the entry before.
        self.preserved_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the bytes of the list of preserved entries; what they refer to counts where it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.preserved_count.load(Ordering::Relaxed) * size_of::<(u64, Entry)>() as u64
    }

    /// Turns the epoch over; returns the new one's bit.
    pub(super) fn turn_over(&self) -> bool {
        // Release pairs with `epoch`.
        let epoch = !self.epoch.fetch_xor(true, Ordering::AcqRel);
        // Pairs with `SlotGuard::announce`: the sweep looks at the slots only now.
        fence(Ordering::SeqCst);
        epoch
    }

    /// Takes a preserved entry from the list, which gives its memory back with the last.
    pub(super) fn next_preserved(&self) -> Option<(u64, Entry)> {
        let mut preserved = self.preserved.lock();
        let next = preserved.pop();
        self.preserved_count.fetch_sub(next.is_some().into(), Ordering::Relaxed);
        if preserved.is_empty() {
            *preserved = Vec::new();
        }
        next
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn the_list_is_never_shorter_than_nothing() {
        let (saving, rounds) = (Saving::default(), 300_000);
        thread::scope(|scope| {
            scope.spawn(|| (0..rounds).for_each(|key| saving.preserve(key, Entry::same(key))));
            let taker = scope.spawn(|| {
                let mut taken = 0;
                while taken < rounds {
                    taken += u64::from(saving.next_preserved().is_some());
                }
            });
            while !taker.is_finished() {
                let count = saving.preserved_count.load(Ordering::Relaxed);
                assert!(count <= rounds, "{count} entries");
            }
        });
        assert_eq!(saving.bytes(), 0);
    }
}
