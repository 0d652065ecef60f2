//! The order of locks, which debug builds assert.
//!
//! - N4: a thread takes locks in the order of their [`Rank`], those of one rank in the order of
//!   their addresses.

pub(super) use held::{assert_next, given_back, taken};

/// The lock order: a thread that holds a lock takes only locks of a higher rank (N4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// zsmalloc, hierarchical: the pool's lock against migration.
    Migrate,
    /// A pool's only lock, or that of a heap or shard.
    Heap,
    /// Where heaps get pages and cells from.
    Depot,
    /// The counters of a watched reader-writer lock.
    Counters,
}

/// Keeps the locks that a thread holds, and asserts N4.
#[cfg(all(debug_assertions, not(loom)))]
mod held {
    use super::Rank;
    use std::cell::RefCell;

    thread_local! {
        static TAKEN: RefCell<Vec<(Rank, usize)>> = const { RefCell::new(Vec::new()) };
    }

    pub(in crate::sync) fn assert_next(rank: Rank, lock: usize) {
        // A thread whose locals are gone takes no second lock.
        let _ = TAKEN.try_with(|taken| {
            let highest = taken.borrow().iter().copied().max();
            let fits = highest.is_none_or(|highest| highest < (rank, lock));
            assert!(fits, "lock order: {:?} after {highest:?}", (rank, lock));
        });
    }

    pub(in crate::sync) fn taken(rank: Rank, lock: usize) {
        let _ = TAKEN.try_with(|taken| taken.borrow_mut().push((rank, lock)));
    }

    pub(in crate::sync) fn given_back(rank: Rank, lock: usize) {
        let _ = TAKEN.try_with(|taken| {
            let mut taken = taken.borrow_mut();
            let at = taken.iter().rposition(|&held| held == (rank, lock));
            at.map(|at| taken.swap_remove(at));
        });
    }
}

#[cfg(not(all(debug_assertions, not(loom))))]
mod held {
    use super::Rank;

    #[inline]
    pub(in crate::sync) fn assert_next(_: Rank, _: usize) {}
    #[inline]
    pub(in crate::sync) fn taken(_: Rank, _: usize) {}
    #[inline]
    pub(in crate::sync) fn given_back(_: Rank, _: usize) {}
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::spin::SpinLock;

    #[test]
    #[should_panic(expected = "lock order")]
    fn taking_locks_in_the_wrong_order_is_caught() {
        let (heap, depot) = (SpinLock::new(()), SpinLock::ranked((), Rank::Depot));
        let _depot = depot.lock();
        let _heap = heap.lock();
    }
}
