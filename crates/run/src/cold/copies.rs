//! How many copies the store may keep of pages that came back from it.
//!
//! A copy saves the compression of a page that leaves unchanged, and keeps taking its memory. So
//! copies count against the limit, as the swap cache does: a run holds no more in total than
//! without them. They may take a third of the limit if all copies that were recently checked were
//! useful, and less in proportion: if pages compress to half, a third is a copy of each resident
//! page. No copies are kept of pages that come while the store is short of room.
//!
//! Only pages that come together, in a sequence, leave copies. If a sequence is longer than the
//! limit, none of its pages is resident when it comes round again, however many may be resident. If
//! pages come one by one, a quarter less resident memory was measured to cause a quarter more
//! faults, which cost more than the compressions that copies save. So where room is tight
//! ([`Budget::is_tight`]), only pages of a sequence leave copies that is longer than the limit.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use zfold_store::Store;

use crate::spaces::budget::Budget;
use zfold_uffd::page::page_len;

/// The largest and the smallest share of the limit that copies may take: a few are always kept, to
/// measure whether more would be useful.
const MOST: usize = 3;
const LEAST: usize = 64;

/// The number of recent checks that count.
const LOOKS: u32 = 1024;

/// The share when all of them were useful.
const ALL: u32 = 1 << 16;

/// The state that decides whether copies are kept. Relaxed throughout: each number is used on its
/// own, and need not be exact.
#[derive(Debug)]
pub(crate) struct Copies {
    /// Of [`ALL`], the share of recent checks that found a page equal to its copy.
    useful: AtomicU32,
    /// The store has little room.
    short: AtomicBool,
}

impl Default for Copies {
    fn default() -> Self {
        Self { useful: AtomicU32::new(ALL), short: AtomicBool::new(false) }
    }
}

impl Copies {
    /// Records that of `pages` pages that were checked, `kept` equalled their copies.
    pub(crate) fn looked(&self, pages: usize, kept: usize) {
        if pages == 0 {
            return;
        }
        let weight = (pages as u32).min(LOOKS);
        let found = (kept as u64 * u64::from(ALL) / pages as u64) as u32;
        let before = u64::from(self.useful.load(Ordering::Relaxed));
        let sum = before * u64::from(LOOKS - weight) + u64::from(found) * u64::from(weight);
        self.useful.store((sum / u64::from(LOOKS)) as u32, Ordering::Relaxed);
    }

    /// Records whether the store has little room.
    pub(crate) fn set_short(&self, short: bool) {
        self.short.store(short, Ordering::Relaxed);
    }

    /// Returns whether pages that come from the store now leave copies there; they belong to a
    /// sequence of `reach` pages so far.
    pub(crate) fn keeps(&self, budget: &Budget, reach: usize) -> bool {
        (!budget.is_tight() || reach > budget.limit())
            && !self.short.load(Ordering::Relaxed)
            && budget.copies() < self.most(budget.limit())
    }

    /// Returns how many pages of memory copies may take.
    fn most(&self, limit: usize) -> usize {
        let useful = self.useful.load(Ordering::Relaxed) as usize;
        (limit / MOST * useful / ALL as usize).max(limit / LEAST)
    }
}

/// Returns the average bytes of a page in the store. The memory that the store holds would say
/// less: it stays for a while after pages are freed.
pub(crate) fn copy_bytes(store: &Store) -> usize {
    let bytes = store.payload_bytes().div_ceil(store.len().max(1));
    usize::try_from(bytes).unwrap_or(page_len()).min(page_len())
}

#[cfg(test)]
mod tests {
    use zfold_store::{CodecKind, StoreOptions};
    use zfold_testing::random::Random;

    use super::*;

    #[test]
    fn a_copy_costs_no_more_when_others_are_given_up() {
        let options = StoreOptions::new(4096, CodecKind::Lz4.into());
        let store = crate::spaces::tests::store(&options);
        let mut random = Random::new(1);
        for key in 0..4096 {
            store.store(key, &random.half_noise(page_len())).unwrap();
        }
        let before = copy_bytes(&store);
        assert!((page_len() / 4..page_len()).contains(&before), "{before}");
        // One of sixteen is left, here and there, so that little of what is held can be given back.
        assert!((0..4096).filter(|key| key % 16 > 0).all(|key| store.invalidate(key)));
        let after = copy_bytes(&store);
        assert!(after.abs_diff(before) < before / 16, "{before} before, {after} now");
        assert_eq!(store.invalidate_range(0..4096), 4096 / 16);
        assert_eq!(copy_bytes(&store), 0);
    }

    #[test]
    fn copies_that_are_of_use_may_take_more() {
        let (copies, budget) = (Copies::default(), Budget::new(64 << 20, true));
        let limit = budget.limit();
        assert_eq!(copies.most(limit), limit / 3);
        (0..100).for_each(|_| copies.looked(128, 64));
        assert!(copies.most(limit).abs_diff(limit / 6) < 8, "{copies:?}");
        (0..100).for_each(|_| copies.looked(128, 0));
        assert_eq!(copies.most(limit), limit / 64);
        (0..100).for_each(|_| copies.looked(1, 1));
        assert!((limit / 64..limit / 6).contains(&copies.most(limit)), "it takes some: {copies:?}");
        copies.looked(100_000, 100_000);
        assert_eq!(copies.most(limit), limit / 3);
    }

    #[test]
    fn copies_are_kept_while_there_is_room_here_and_there() {
        let (copies, budget) = (Copies::default(), Budget::new(64 << 20, true));
        let long = budget.limit() + 1;
        assert!(copies.keeps(&budget, long));
        budget.set_copy_bytes(page_len() / 2);
        budget.change_copies(0, budget.limit());
        assert_eq!((budget.copies(), budget.charge()), (budget.limit() / 2, budget.limit() / 2));
        assert!(!copies.keeps(&budget, long));
        budget.change_copies(budget.limit(), 0);
        copies.set_short(true);
        assert!(!copies.keeps(&budget, long));
    }

    #[test]
    fn where_room_is_tight_only_long_sequences_leave_copies() {
        let (copies, large) = (Copies::default(), Budget::new(1 << 30, true));
        assert!(copies.keeps(&large, 2));
        let small = Budget::new(64 << 20, true);
        assert!(!copies.keeps(&small, small.limit()) && copies.keeps(&small, small.limit() + 1));
        // Under `auto` they take their room from the program, whatever the limit.
        large.set_limit(u64::MAX);
        large.set_limit_together(1 << 30);
        assert!(!copies.keeps(&large, 2) && copies.keeps(&large, large.limit() + 1));
    }
}
