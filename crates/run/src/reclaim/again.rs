//! When to retry pages that could not be moved; [`crate::reclaim::fixed`] says why.

use std::time::{Duration, Instant};

use crate::core::ranges::PageNo;

/// The time between two tries: the first, and the longest, to which it doubles while nothing
/// leaves.
const REST: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(500)];
/// The time that a page that leaves is worth: it takes no longer to be moved and compressed.
const WORTH: Duration = Duration::from_micros(100);
/// The least pause after a try, as a multiple of the time that it took in vain.
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

    /// Records how long a try took, and how many pages left.
    pub(crate) fn done(&mut self, took: Duration, left: usize) {
        self.rest = if left > 0 { REST[0] } else { (self.rest * 2).min(REST[1]) };
        let worth = WORTH * u32::try_from(left).unwrap_or(u32::MAX);
        let vain = took.saturating_sub(worth) * REST_TIMES;
        self.due = Instant::now() + self.rest.max(vain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_that_frees_little_for_its_time_is_followed_by_a_pause() {
        let pause = |took, left| {
            let mut again = Again::default();
            again.done(took, left);
            again.due - Instant::now()
        };
        let second = Duration::from_secs(1);
        assert!(pause(second, 0) > 19 * second);
        assert!(pause(second, 2) > 19 * second, "two pages among those of hundreds of processes");
        assert!(pause(second, 20_000) <= REST[0], "each page took its time");
    }
}
