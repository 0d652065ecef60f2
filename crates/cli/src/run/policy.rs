//! The limit that `--limit auto` chooses: how it follows what is left, stalls and refaults. Numbers
//! in, a number out; measuring is done elsewhere.
//!
//! ```text
//!   the limit of the cgroup, or what the machine has
//!   |<------------------------------------------------------->|
//!   | others, store | resident                        | left  |
//!                   |<------------- room ------------------->|
//!                   |<-- the limit ->|<- withheld ->|reserve |
//! ```
//!
//! - A1: the limit is what the program has resident and what is left, without the reserve. So it
//!   falls as compressed pages take more, and there is always something left: the kernel kills a
//!   process that needs memory when none is left.
//! - A2: what is withheld besides goes to the page cache and to others. Where the kernel counts
//!   stalls, it grows while tasks wait for memory, and shrinks while none does. Where it does not,
//!   refaults decide: it grows while little is left and pages that left rarely come back, and
//!   shrinks while they often do.
//! - A3: the limit begins at half of what is left. A program may touch memory faster than anybody
//!   looks, until its memory is closed; with half, it is closed while there is room. From then on
//!   the limit rises by its own size each second, and falls at once.

use std::time::Duration;

use crate::control::state::LIMIT_MIN;

const MIB: u64 = 1 << 20;

/// The memory kept free, as a part of what there was at the start, and its bounds.
const RESERVE_PART: u64 = 6;
const RESERVE_MIN: u64 = 12 * MIB;
const RESERVE_MAX: u64 = 512 * MIB;

/// Pages that come back each second from which on they count as often needed.
const OFTEN: f64 = 200.0;

/// How much more is withheld in a second, at most, and how much less, as parts of the room.
const TAKEN: f64 = 1.0 / 8.0;
const GIVEN: f64 = 1.0 / 32.0;

/// Most that is withheld, as a part of the room.
const WITHHELD_MAX: f64 = 0.5;

/// How much a limit rises in a second, as a part of it.
const RISE: f64 = 1.0;

/// As fast as what is left is taken to go, in bytes a second, and the bounds of the time between
/// two looks that follow from that.
const TAKES: u64 = 1 << 30;
const LOOKS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Bytes that can be had, below the limit of the cgroup and of the machine.
    pub(super) left: u64,
    /// Bytes of the program that are resident.
    pub(super) resident: u64,
    /// How much tasks wait for memory, from 0 to 1; none if the kernel does not count.
    pub(super) stalls: Option<f64>,
    /// Pages that left and came back, each second.
    pub(super) refaults: f64,
    /// Since the last time.
    pub(super) elapsed: Duration,
}

/// The policy and its state.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Policy {
    reserve: u64,
    withheld: f64,
    limit: u64,
    least: u64,
    most: u64,
}

impl Policy {
    /// Returns the policy for a program that is about to start, when this many bytes are left.
    pub(super) fn new(left: u64) -> Self {
        let reserve = (left / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX);
        let limit = left.saturating_sub(reserve).min(left / 2).max(LIMIT_MIN);
        Self { reserve, withheld: 0.0, limit, least: limit, most: limit }
    }

    /// Returns the limit in bytes.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the least and the most that it was.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.least, self.most)
    }

    /// Returns whether little more is left than is to be kept free.
    fn is_tight(&self, left: u64) -> bool {
        left < self.reserve.saturating_mul(2)
    }

    /// Returns when to look again.
    pub(super) fn next_look(left: u64) -> Duration {
        Duration::from_millis(left.saturating_mul(1000) / TAKES).clamp(LOOKS[0], LOOKS[1])
    }

    /// Takes a measurement into account and returns the limit.
    pub(super) fn follow(&mut self, now: &Measured) -> u64 {
        let seconds = now.elapsed.as_secs_f64();
        let room = now.resident.saturating_add(now.left).saturating_sub(self.reserve);
        let change = match now.stalls {
            Some(stalls) if stalls > 0.0 => TAKEN * stalls.min(1.0),
            Some(_) => -GIVEN,
            None if now.refaults > OFTEN => -GIVEN,
            None if self.is_tight(now.left) => TAKEN / 8.0,
            None => 0.0,
        };
        let withheld = self.withheld + change * room as f64 * seconds;
        self.withheld = withheld.clamp(0.0, room as f64 * WITHHELD_MAX);
        let wanted = room.saturating_sub(self.withheld as u64).max(LIMIT_MIN);
        let risen = self.limit.saturating_add((self.limit as f64 * RISE * seconds) as u64);
        self.limit = wanted.min(risen);
        (self.least, self.most) = (self.least.min(self.limit), self.most.max(self.limit));
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn measured(left: u64, resident: u64) -> Measured {
        let (stalls, refaults) = (Some(0.0), 0.0);
        Measured { left: left * MIB, resident: resident * MIB, stalls, refaults, elapsed: SECOND }
    }

    #[test]
    fn it_begins_with_half_of_what_is_left() {
        for (left, limit) in [(96, 48), (64, 32), (32, 16), (20, 8), (10, 4), (0, 4), (8192, 4096)]
        {
            assert_eq!(Policy::new(left * MIB).limit(), limit * MIB, "{left}");
        }
    }

    #[test]
    fn it_falls_at_once_by_what_compressed_pages_take() {
        let mut policy = Policy::new(96 * MIB);
        assert_eq!(policy.follow(&measured(16, 80)), 80 * MIB, "nothing is stored yet");
        assert_eq!(policy.follow(&measured(2, 80)), 66 * MIB, "fourteen are");
        assert_eq!(policy.follow(&measured(0, 10)), LIMIT_MIN, "there is no less");
        assert_eq!(policy.range(), (LIMIT_MIN, 80 * MIB));
    }

    #[test]
    fn it_rises_step_by_step() {
        let mut policy = Policy::new(96 * MIB);
        policy.follow(&measured(2, 62));
        assert_eq!(policy.limit(), 48 * MIB);
        let soon = Measured { elapsed: SECOND / 8, ..measured(90, 6) };
        assert_eq!(policy.follow(&soon), 54 * MIB);
        (0..10).for_each(|_| _ = policy.follow(&measured(90, 6)));
        assert_eq!(policy.limit(), 80 * MIB, "and no further");
    }

    #[test]
    fn stalls_take_memory_from_it_and_calm_gives_it_back() {
        let mut policy = Policy::new(96 * MIB);
        let stalled = Measured { stalls: Some(1.0), ..measured(16, 80) };
        let limits: Vec<u64> = (0..20).map(|_| policy.follow(&stalled) / MIB).collect();
        assert!(limits.is_sorted_by(|a, b| a >= b) && limits[0] < 80, "{limits:?}");
        assert_eq!(limits[19], 40, "half of the room is never withheld");
        let calm: Vec<u64> = (0..40).map(|_| policy.follow(&measured(16, 80)) / MIB).collect();
        assert!(calm.is_sorted() && calm[39] == 80, "{calm:?}");
    }

    #[test]
    fn without_counted_stalls_refaults_tell() {
        let mut policy = Policy::new(96 * MIB);
        let cold = Measured { stalls: None, ..measured(14, 82) };
        let first = policy.follow(&cold);
        assert!((0..9).all(|_| policy.follow(&cold) < first), "little is left, and nobody asks");
        let hot = Measured { refaults: 5000.0, ..cold };
        (0..60).for_each(|_| _ = policy.follow(&hot));
        assert_eq!(policy.limit(), 80 * MIB, "what it needs comes back");
        let plenty = Measured { stalls: None, ..measured(60, 36) };
        assert_eq!(policy.follow(&plenty), 80 * MIB, "nothing is withheld where much is left");
    }

    #[test]
    fn the_less_is_left_the_sooner_it_looks_again() {
        let looks = [0, 12, 128, 1 << 20].map(|left| Policy::next_look(left * MIB).as_millis());
        assert_eq!(looks, [10, 11, 125, 250]);
    }

    #[test]
    fn any_measurement_gives_a_limit_that_works() {
        let mut policy = Policy::new(u64::MAX);
        for (left, resident) in [(u64::MAX, u64::MAX), (0, u64::MAX), (u64::MAX, 0), (0, 0)] {
            let (stalls, refaults) = (Some(f64::INFINITY), f64::NAN);
            let wild = Measured { left, resident, stalls, refaults, elapsed: Duration::MAX };
            assert!(policy.follow(&wild) >= LIMIT_MIN);
        }
    }
}
