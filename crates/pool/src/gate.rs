//! The gate of compaction: how many callers compact at a time.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::locking::Contexts;

/// Lets everybody in, or one caller at a time, as [`Contexts`] says.
#[derive(Debug)]
pub(crate) struct CompactionGate {
    one_only: bool,
    busy: AtomicBool,
}

impl CompactionGate {
    pub(crate) fn new(contexts: Contexts) -> Self {
        Self { one_only: contexts != Contexts::Concurrent, busy: AtomicBool::new(false) }
    }

    /// Enters the gate until the guard is dropped; `None` if it is closed.
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        // Acquire pairs with the Release in `drop`: one compaction follows another.
        let entered = !self.one_only || !self.busy.swap(true, Ordering::Acquire);
        entered.then(|| Entered(self))
    }
}

/// A compaction is under way.
#[derive(Debug)]
pub(crate) struct Entered<'a>(&'a CompactionGate);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_enters_at_a_time_unless_any_number_may() {
        for contexts in [Contexts::Single, Contexts::Parallel] {
            let gate = CompactionGate::new(contexts);
            let first = gate.enter().expect("the gate is open");
            assert!(gate.enter().is_none());
            assert!(gate.enter().is_none(), "a refused caller opens nothing");
            drop(first);
            assert!(gate.enter().is_some());
        }
        let gate = CompactionGate::new(Contexts::Concurrent);
        let _first = gate.enter().expect("open");
        assert!(gate.enter().is_some());
    }
}
