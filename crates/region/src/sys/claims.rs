//! A few values that threads use exclusively for a moment, also inside a signal handler: no lock,
//! no allocation.
//!
//! - C1: only the thread that has set a bit of `taken` accesses its value.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Up to 64 values.
#[derive(Debug)]
pub(crate) struct Claims<T> {
    taken: AtomicU64,
    values: Box<[UnsafeCell<T>]>,
}

// SAFETY: C1: one thread at a time accesses each value.
unsafe impl<T: Send> Sync for Claims<T> {}

impl<T> Claims<T> {
    /// Keeps `values`, 1 to 64.
    pub(crate) fn new(values: Vec<T>) -> Self {
        assert!((1..=64).contains(&values.len()));
        let none = u64::MAX.checked_shl(values.len() as u32).unwrap_or(0);
        let values = values.into_iter().map(UnsafeCell::new).collect();
        Self { taken: AtomicU64::new(none), values }
    }

    /// Calls `using` with a value that no other thread has; waits while all are taken.
    pub(crate) fn with<R>(&self, using: impl FnOnce(&mut T) -> R) -> R {
        let bit = loop {
            let taken = self.taken.load(Ordering::Relaxed);
            if taken == u64::MAX {
                rustix::thread::sched_yield();
                continue;
            }
            let bit = 1 << (!taken).trailing_zeros();
            // Acquire pairs with the Release below (C1).
            if self.taken.fetch_or(bit, Ordering::Acquire) & bit == 0 {
                break bit;
            }
        };
        let value = self.values[bit.trailing_zeros() as usize].get();
        // SAFETY: C1: this thread has set the bit.
        let result = using(unsafe { &mut *value });
        self.taken.fetch_and(!bit, Ordering::Release);
        result
    }
}
