//! Picks pages that leave: the hand of a clock goes through the spaces.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::core::ranges::{Pages, Ranges};
use crate::faults::answer::enter;
use crate::reclaim::evictor::Evictor;
use crate::reclaim::marks::accessed;
use crate::reclaim::mover::batch_max;
use crate::spaces::access::Refused;
use crate::spaces::books::RELATIVES;
use crate::spaces::managed::Managed;
use crate::spaces::maps::marked_of;
use zfold_uffd::policy::Haste;

/// Most pages of a batch where a thread had to wait for the lock during the last one: to move 128
/// takes half a millisecond. Fewer at a time cost more, a third where pages come in sequence.
const SHORT_BATCH: usize = 32;

impl Evictor {
    /// Advances the hand until it has found pages that leave; returns whether any left.
    pub(super) fn evict(&mut self, spaces: &[Arc<Managed>]) -> bool {
        // Of thousands of spaces, most may have nothing left: each costs a few nanoseconds here.
        // Those in which all is shared by many are looked at again from time to time.
        let is_crowd = self.shared.budget.sharers() > RELATIVES;
        let has_some = |space: &&Arc<Managed>| {
            space.present() > if is_crowd { space.fixed() } else { 0 } && space.is_attached()
        };
        let full: Vec<_> = spaces.iter().filter(has_some).collect();
        if full.is_empty() {
            return false;
        }
        let mut at = full.iter().position(|s| s.id >= self.hand.0).unwrap_or(0);
        if full[at].id != self.hand.0 {
            self.hand = (full[at].id, 0);
        }
        // Pages that leave go to the swap cache first, and free no memory until they are
        // compressed.
        let wanted =
            self.shared.budget.excess().clamp(32, self.shared.cold.swap_cache_max().max(32));
        // A search that goes on does not begin anew: each round looks at all pages of the crowd.
        let first = if is_crowd { self.round } else { 0 };
        let mut passes = first * full.len();
        while passes < full.len() * Haste::ROUNDS {
            let managed = full[at];
            self.reconcile(managed);
            let max = wanted.min(self.most_of(managed));
            let hand = self.hand.1;
            let haste = Haste::after(passes / full.len());
            let look = |pages: &Pages| accessed(managed, pages);
            let (out, next) = self.move_out(managed, None, |space, kept, victims| {
                space.pick(hand, max, haste, kept, look, victims)
            });
            match next {
                Some(next) => self.hand.1 = next,
                None => {
                    passes += 1;
                    at = (at + 1) % full.len();
                    self.hand = (full[at].id, 0);
                }
            }
            if out > 0 {
                self.round = passes / full.len();
                self.move_out_of_others(managed);
                return true;
            }
        }
        self.round = 0;
        false
    }

    /// Returns the most pages that are moved under one hold of the lock of a space.
    fn most_of(&self, managed: &Managed) -> usize {
        // Where compressed pages take room from the program, faults come one by one, and are many.
        let waits = managed.take_held_up() && self.shared.budget.is_together();
        if waits { SHORT_BATCH.min(batch_max()) } else { batch_max() }
    }

    /// In a child of fork, forgets ranges that its parent had unmapped before the fork and whose
    /// messages came later; and if one of several processes with the same memory was killed, ranges
    /// that it unmapped last, which the kernel does not report.
    pub(super) fn reconcile(&mut self, managed: &Arc<Managed>) {
        let Some(access) = managed.access().filter(|_| managed.is_attached()) else { return };
        if managed.doubt.swap(false, Ordering::Acquire) {
            managed.lock().set_unsure();
        }
        while managed.lock().is_unsure() && !managed.is_dead() {
            let told = enter(&self.shared, managed, |space| {
                let mappings = marked_of(managed).ok()?.into_iter();
                let registered = mappings.filter(|mapping| mapping.registered);
                let registered: Ranges = registered.map(|mapping| mapping.pages).collect();
                // A change that was made before the mappings were read may still be unread: there
                // is none if this is not refused.
                let spare = space.helpers().spare;
                let told = access.zero(&(spare..spare + 1)).1 != Some(Refused::Again);
                if told {
                    space.retain(&registered);
                }
                Some(told)
            });
            match told {
                None => return,
                Some(true) => {}
                Some(false) => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }
}
