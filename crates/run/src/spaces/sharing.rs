//! Spaces that share pages since a fork, and how many there are.

use std::sync::Arc;
use std::time::Instant;

use crate::spaces::budget::Budget;

/// The state of the pages that forks share, which the program's writes make its own.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// When it is measured next.
    pub due: Instant,
    /// Faults that the kernel had served alone, and pages that were open, at the last look after
    /// the last measurement.
    pub seen: Option<(usize, usize)>,
    /// Counts as one that shares as long as this lives.
    _counted: Arc<()>,
}

impl Sharing {
    /// Returns the state of a space that may share pages from now on.
    pub(crate) fn new(budget: &Budget, due: Instant, seen: Option<(usize, usize)>) -> Self {
        Self { due, seen, _counted: budget.sharer() }
    }

    /// Records the current values; returns how many pages may have been copied since the last look:
    /// each copy is a fault, and so is each new page.
    pub(crate) fn copies(&mut self, faults: usize, open: usize) -> usize {
        let (faults_before, open_before) =
            self.seen.replace((faults, open)).unwrap_or((faults, open));
        let grown = open.saturating_sub(open_before);
        faults.saturating_sub(faults_before).saturating_sub(grown)
    }
}
