//! Limits how many callers do one kind of work at a time: a gate that any number may pass, or one.
//!
//! The gate guards no data; it only keeps a second caller from doing the same work again.

use std::sync::atomic::{AtomicBool, Ordering};

/// Lets any number of callers in, or one at a time.
#[derive(Debug)]
pub(crate) struct Gate {
    single: bool,
    taken: AtomicBool,
}

impl Gate {
    /// Returns a gate that lets one caller in at a time, or any number.
    pub(crate) fn new(single: bool) -> Self {
        Self { single, taken: AtomicBool::new(false) }
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
        for single in [true, false] {
            let gate = Gate::new(single);
            let first = gate.enter();
            assert!(first.is_some());
            assert_eq!(gate.enter().is_some(), !single);
            drop(first);
            assert!(gate.enter().is_some());
        }
    }

    #[test]
    fn a_panic_leaves_the_gate_open() {
        let gate = Gate::new(true);
        let panicked = std::panic::catch_unwind(|| {
            let _inside = gate.enter();
            panic!("inside");
        });
        assert!(panicked.is_err());
        assert!(gate.enter().is_some());
    }
}
