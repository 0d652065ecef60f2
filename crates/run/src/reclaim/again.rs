//! When to retry pages that could not be moved; [`crate::reclaim::fixed`] says why.

use std::time::{Duration, Instant};

use crate::core::ranges::PageNo;

/// The time between two tries: the first, and the longest, to which it doubles while nothing
/// leaves.
const REST: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(500)];
/// The least pause after a try without success, as a multiple of the time that it took.
const REST_TIMES: u32 = 20;

/// When pages are tried again.
#[derive(Debug)]
pub(crate) struct Again {
    /// When the next try is due.
    pub(crate) due: Instant,
    rest: Duration,
    /// The number of times that threads were asked to stand still, and where the last of these
    /// ended.
    pub(crate) turn: u64,
    /// Same as above.
    pub(crate) hand: PageNo,
    /// The limit at the last try: a new limit is a reason to try again.
    limit: usize,
}

impl Default for Again {
    fn default() -> Self {
        Self { due: Instant::now(), rest: REST[0], turn: 0, hand: 0, limit: 0 }
    }
}

impl Again {
    /// Returns whether it is time, at this limit.
    pub(crate) fn is_due(&mut self, limit: usize) -> bool {
        if std::mem::replace(&mut self.limit, limit) != limit {
            self.rest = REST[0];
            return true;
        }
        self.due <= Instant::now()
    }

    /// Records how long a try took, and whether any page left.
    pub(crate) fn done(&mut self, took: Duration, left: bool) {
        self.rest = if left { REST[0] } else { (self.rest * 2).min(REST[1]) };
        // The pages that left took time to be compressed.
        let vain = if left { Duration::ZERO } else { took * REST_TIMES };
        self.due = Instant::now() + self.rest.max(vain);
    }
}
