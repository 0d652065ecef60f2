//! When the mappings of a space are read again.

use std::time::{Duration, Instant};

/// A survey of all mappings, which is expensive if there are many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Survey {
    /// When it ended, and how long it took.
    pub at: Instant,
    /// Same as above.
    pub took: Duration,
    /// How many pages it left open.
    pub left: usize,
    /// The pause until the next, as a multiple of the time that it took.
    pub rest: u32,
}

impl Survey {
    /// Returns whether the next is due, with so many pages open, among so many spaces.
    pub(crate) fn is_due(&self, open: usize, spaces: usize) -> bool {
        let crowd = (spaces / CROWD).max(1) as u32;
        // In a crowd, a space that opens nothing stays as it is.
        let may = crowd == 1 || open > self.left;
        may && self.at.elapsed() >= self.took * (self.rest * crowd)
    }
}

/// A number of spaces from which on each is surveyed less often the more there are, so that all
/// surveys together do not take longer.
pub(crate) const CROWD: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_of_a_crowd_are_surveyed_when_they_grow_and_more_rarely() {
        let second = Duration::from_secs(1);
        let Some(at) = Instant::now().checked_sub(second) else { return };
        let survey = Survey { at, took: second / 1000, left: 10, rest: 10 };
        assert!(survey.is_due(10, 1) && survey.is_due(11, 16 * 50));
        assert!(!survey.is_due(10, 16 * 2) && !survey.is_due(11, 16 * 200));
    }
}
