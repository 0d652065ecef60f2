//! How often a space is asked for that needs a helper.
//!
//! Who needs one asks until there is one: the watcher at each of its looks, the evictor each half
//! millisecond. For each request, the tracer stops a thread, and has to receive that stop while
//! further requests come; with more of them than it can carry out, it would do nothing else.
//!
//! - Q1: a request that the tracer has not taken yet is not made again.
//! - Q2: a space is asked for again after half a millisecond at least for each space that is asked
//!   for, so all of them together at most 2,000 times a second; and after twice the time of before,
//!   up to 50 ms, so that one that cannot have a helper for long is disturbed rarely.
//! - Q3: nothing is kept of a space that has got its helper, or is not asked for any longer.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use crate::link::SpaceId;

/// The shortest pause between two requests for a space, and the longest to which it doubles.
const REST: [Duration; 2] = [Duration::from_micros(500), Duration::from_millis(50)];
/// After so many pauses a space is not asked for any longer.
const FORGOTTEN: u32 = 4;

/// The spaces that are asked for.
#[derive(Debug, Default)]
pub(super) struct Asks(BTreeMap<SpaceId, Ask>);

#[derive(Debug)]
struct Ask {
    /// The tracer has not taken it.
    waits: bool,
    /// When it was made or taken.
    since: Instant,
    rest: Duration,
}

impl Asks {
    /// Returns whether the request for a space is to be made.
    pub(super) fn ask(&mut self, space: SpaceId, now: Instant) -> bool {
        let least = self.least();
        match self.0.entry(space) {
            Entry::Vacant(entry) => {
                entry.insert(Ask { waits: true, since: now, rest: REST[0] });
            }
            Entry::Occupied(mut entry) => {
                let ask = entry.get_mut();
                if ask.waits || now.duration_since(ask.since) < ask.rest.max(least) {
                    return false;
                }
                *ask = Ask { waits: true, since: now, rest: (ask.rest * 2).min(REST[1]) };
            }
        }
        true
    }

    /// The tracer has taken all requests.
    pub(super) fn taken(&mut self, now: Instant) {
        let longest = FORGOTTEN * self.least().max(REST[1]);
        self.0.retain(|_, ask| ask.waits || now.duration_since(ask.since) < longest);
        for ask in self.0.values_mut().filter(|ask| ask.waits) {
            (ask.waits, ask.since) = (false, now);
        }
    }

    /// A space has its helper.
    pub(super) fn forget(&mut self, space: SpaceId) {
        self.0.remove(&space);
    }

    fn least(&self) -> Duration {
        REST[0] * self.0.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has everybody ask at each 0.1 ms of a second, and the tracer take the requests at each
    /// `taken_after`; returns how many it found.
    fn requests(spaces: u64, taken_after: u64) -> usize {
        let (mut asks, began, mut found) = (Asks::default(), Instant::now(), 0);
        for tick in 0..10_000 {
            let now = began + Duration::from_micros(100) * tick as u32;
            found += (0..spaces).filter(|&id| asks.ask(SpaceId(id), now)).count();
            if tick % taken_after == taken_after - 1 {
                asks.taken(now);
            }
        }
        found
    }

    #[test]
    fn a_space_among_many_is_asked_for_rarely() {
        // Without a helper for a second: at 0, 0.5, 1.5, 3.5 ms and so on, then each 50 ms.
        assert!((20..30).contains(&requests(1, 1)), "{}", requests(1, 1));
        for spaces in [10, 100, 1000] {
            let found = requests(spaces, 1);
            assert!(found <= 2_000 + spaces as usize, "{spaces}: {found}");
        }
    }

    #[test]
    fn a_busy_tracer_finds_each_space_once() {
        assert_eq!(requests(100, 10_001), 100);
    }

    #[test]
    fn a_space_that_has_lost_its_helper_is_asked_for_at_once() {
        let (mut asks, now) = (Asks::default(), Instant::now());
        assert!(asks.ask(SpaceId(7), now) && !asks.ask(SpaceId(7), now));
        asks.taken(now);
        assert!(!asks.ask(SpaceId(7), now));
        asks.forget(SpaceId(7));
        assert!(asks.ask(SpaceId(7), now));
    }

    #[test]
    fn nothing_is_kept_of_spaces_that_are_gone() {
        let (mut asks, now) = (Asks::default(), Instant::now());
        assert!((0..1000).all(|id| asks.ask(SpaceId(id), now)));
        asks.taken(now);
        asks.taken(now + Duration::from_secs(1));
        assert_eq!(asks.0.len(), 1000);
        asks.taken(now + Duration::from_secs(2));
        assert!(asks.0.is_empty());
    }
}
