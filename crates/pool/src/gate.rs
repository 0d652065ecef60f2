//! How many compactions of a pool are at work: the gate that [`Contexts`] stands for.
//!
//! The gate guards no data; it only keeps a second caller from doing the same work again.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::locking::Contexts;

/// Lets any number of callers in, or one at a time.
#[derive(Debug)]
pub(crate) struct Gate {
    single: bool,
    taken: AtomicBool,
}

impl Gate {
    /// Returns a gate for an allocator without size classes, where `Parallel` is `Single`.
    pub(crate) fn new(contexts: Contexts) -> Self {
        Self { single: contexts != Contexts::Concurrent, taken: AtomicBool::new(false) }
    }

    /// Lets the caller in until what is returned is dropped, also by a panic; `None` if it must
    /// turn back.
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        // Relaxed: the flag guards no data.
        let refused = self.single && self.taken.swap(true, Ordering::Relaxed);
        (!refused).then_some(Inside { gate: self })
    }
}

/// A caller that was let in.
#[derive(Debug)]
pub(crate) struct Inside<'a> {
    gate: &'a Gate,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.gate.taken.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_at_a_time_unless_any_number_may() {
        for contexts in Contexts::ALL {
            let gate = Gate::new(contexts);
            let first = gate.enter();
            assert!(first.is_some());
            assert_eq!(gate.enter().is_some(), contexts == Contexts::Concurrent);
            drop(first);
            assert!(gate.enter().is_some());
        }
    }

    #[test]
    fn a_panic_leaves_the_gate_open() {
        let gate = Gate::new(Contexts::Single);
        let panicked = std::panic::catch_unwind(|| {
            let _inside = gate.enter();
            panic!("inside");
        });
        assert!(panicked.is_err());
        assert!(gate.enter().is_some());
    }
}
