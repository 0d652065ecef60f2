//! Which pages leave: what is remembered of each page, in 16 bits, when only faults can be seen,
//! and what follows from that. Nothing here locks, allocates or calls the system.
//!
//! Nothing reports how often a resident page is touched. But a page that left and comes back soon
//! was needed more than some that stayed. How soon is counted in pages that left meanwhile, as a
//! share of the resident pages: Linux calls this the refault distance (mm/workingset.c), and makes
//! a page with a short one active, whose accesses it then sees. Here accesses cannot be seen, so
//! refaults are the only evidence. With each refault that is in time a page gains *heat*, and with
//! each late one it loses some. The hand of the clock spares a page for as many rounds as its heat
//! says, twice as many for each degree: a page that has been needed for long is rarely tried, and a
//! page that is no longer needed is found after about as long as it had been needed. Unknown pages
//! have no heat, so a scan passes through without displacing hot pages.
//!
//! - P1: a search for pages to leave ends: after [`Haste::ROUNDS`] rounds no page is spared.
//! - P2: a page that has just come is not taken before others, though it has no heat: it may not
//!   even have been touched, and the hand may move just ahead of a sequence of faults.
//! - P3: all that is remembered is a hint. A wrong hint, because it is too old for eras to be told
//!   apart or belongs to an earlier page at this address, costs one fault.

use std::sync::atomic::{AtomicU64, Ordering};

/// Eras in which as many pages leave as are resident.
const ERAS: u16 = 32;

/// Bits of an era; eras can be told apart while up to 256 times the resident pages leave.
const ERA_BITS: u32 = 13;
const ERA_MASK: u16 = (1 << ERA_BITS) - 1;

/// Bounds, in eras, of returns at once, soon, and in time; after the last, a page is unknown. A
/// page that returned after more pages had left than are resident was needed no more than those
/// that stayed.
const AT_ONCE: u16 = ERAS / 16;
const SOON: u16 = ERAS / 2;
const IN_TIME: u16 = ERAS;
const LOST: u16 = 2 * ERAS;

/// Rounds for which the hand spares a page, by its heat.
const ROUNDS: [u8; 6] = [0, 4, 8, 16, 32, 64];
const HEAT_MAX: u16 = ROUNDS.len() as u16 - 1;

/// Bits of an era's fraction in the clock.
const FRACTION: u32 = 32;

/// A time, counted in pages that left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Era(u16);

impl Era {
    /// Returns how many eras have passed since an earlier one.
    fn since(self, earlier: Self) -> u16 {
        self.0.wrapping_sub(earlier.0) & ERA_MASK
    }
}

/// Counts pages that leave.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// Counts `left` pages that leave while `resident` are resident.
    pub fn advance(&self, left: usize, resident: usize) {
        let share = ((left as u128 * u128::from(ERAS)) << FRACTION) / resident.max(1) as u128;
        // Relaxed: the number is used on its own.
        self.0.fetch_add(share as u64, Ordering::Relaxed);
    }

    /// Returns the current era.
    pub fn now(&self) -> Era {
        Era((self.0.load(Ordering::Relaxed) >> FRACTION) as u16 & ERA_MASK)
    }
}

/// What is remembered of a page: its heat, and when it came or left last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past(u16);

impl Past {
    /// Nothing is remembered.
    pub const UNKNOWN: Self = Self(0);

    fn new(heat: u16, at: Era) -> Self {
        Self(heat << ERA_BITS | at.0)
    }

    fn heat(self) -> u16 {
        self.0 >> ERA_BITS
    }

    fn at(self) -> Era {
        Era(self.0 & ERA_MASK)
    }

    /// Returns what is remembered as bits.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// See [`bits`](Self::bits).
    pub fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// An unknown page comes.
    pub fn first(now: Era) -> Self {
        Self::new(0, now)
    }

    /// The page leaves.
    #[must_use]
    pub fn left(self, now: Era) -> Self {
        Self::new(self.heat(), now)
    }

    /// The page comes back.
    #[must_use]
    pub fn returned(self, now: Era) -> Self {
        if self == Self::UNKNOWN {
            return Self::first(now);
        }
        let heat = match now.since(self.at()) {
            0..AT_ONCE => self.heat() + 3,
            AT_ONCE..SOON => self.heat() + 2,
            SOON..IN_TIME => self.heat() + 1,
            IN_TIME..LOST => self.heat().saturating_sub(2),
            LOST.. => 0,
        };
        Self::new(heat.min(HEAT_MAX), now)
    }

    /// Returns for how many rounds of the hand the page, which has come, is spared.
    pub fn rounds(self) -> u8 {
        ROUNDS[usize::from(self.heat().min(HEAT_MAX))]
    }

    /// Returns whether the page, which is there, has just come (P2).
    fn is_fresh(self, now: Era) -> bool {
        now.since(self.at()) <= 1
    }
}

/// How urgent a search for pages is: the longer it has found none, the fewer pages it spares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Haste(u32);

impl Haste {
    /// Rounds after which a search has looked at each page at least once with nothing spared.
    pub const ROUNDS: usize = 9;

    /// The haste after `rounds` rounds that found nothing.
    pub fn after(rounds: usize) -> Self {
        Self(rounds.saturating_sub(1) as u32)
    }

    /// The hand passes a page that it should spare for `rounds` more rounds. Returns how many are
    /// left, or `None` if the page leaves.
    pub fn pass(self, rounds: u8, past: Past, now: Era) -> Option<u8> {
        let step = 1_u8.checked_shl(self.0).unwrap_or(u8::MAX);
        let spared = rounds > 0 || (self.0 == 0 && past.is_fresh(now));
        spared.then_some(rounds.saturating_sub(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn era(at: u16) -> Era {
        Era(at & ERA_MASK)
    }

    /// The rounds after a page has come back each time after so many eras.
    fn rounds(distances: &[u16]) -> u8 {
        let (mut now, mut past) = (5_u16, Past::first(era(5)));
        for distance in distances {
            past = past.left(era(now));
            now += distance;
            past = past.returned(era(now));
        }
        past.rounds()
    }

    #[test]
    fn a_page_that_comes_back_soon_again_and_again_is_spared_longer_and_longer() {
        assert_eq!(rounds(&[]), 0);
        let in_time: Vec<_> = (1..8).map(|times| rounds(&vec![IN_TIME - 1; times])).collect();
        assert_eq!(in_time, [4, 8, 16, 32, 64, 64, 64]);
        let once = [0, AT_ONCE, SOON, IN_TIME, LOST].map(|distance| rounds(&[distance]));
        assert_eq!(once, [16, 8, 4, 0, 0]);
    }

    #[test]
    fn a_page_that_comes_back_late_is_not_hot_any_more() {
        assert_eq!(rounds(&[0, 0]), 64);
        assert_eq!(rounds(&[0, 0, IN_TIME]), 16);
        assert_eq!(rounds(&[0, 0, IN_TIME, IN_TIME, IN_TIME]), 0);
        assert_eq!(rounds(&[0, 0, LOST]), 0);
        assert_eq!(rounds(&[0, 0, 100 * ERAS]), 0);
        assert_eq!(Past::UNKNOWN.returned(era(1)), Past::first(era(1)));
    }

    #[test]
    fn an_era_ends_when_a_share_of_what_is_resident_has_left() {
        for (left, resident) in [(1, 3200), (128, 3200), (7, 1 << 40)] {
            let clock = Clock::default();
            let steps = resident / left / 1000;
            (0..1000).for_each(|_| clock.advance(left * steps.max(1), resident));
            let expected = (1000 * left * steps.max(1)) as f64 / resident as f64 * f64::from(ERAS);
            assert!((expected - f64::from(clock.now().0)).abs() <= 1.0, "{expected}: {clock:?}");
        }
        let clock = Clock::default();
        (0..300).for_each(|_| clock.advance(1000, 1000));
        assert_eq!(clock.now(), era(300_u16.wrapping_mul(ERAS)), "they begin anew");
        clock.advance(1, 0);
    }

    #[test]
    fn what_has_just_come_stays_for_an_era_unless_there_is_nothing_else() {
        let past = Past::first(era(ERA_MASK));
        assert_eq!(Haste::after(0).pass(0, past, era(ERA_MASK)), Some(0));
        assert_eq!(Haste::after(1).pass(0, past, era(ERA_MASK + 1)), Some(0), "P2");
        assert_eq!(Haste::after(1).pass(0, past, era(ERA_MASK + 2)), None);
        assert_eq!(Haste::after(2).pass(0, past, era(ERA_MASK)), None);
    }

    #[test]
    fn a_search_ends_whatever_is_spared() {
        // Only what lies behind the hand is seen in the first round.
        for first in [0, 1] {
            let mut left = ROUNDS[ROUNDS.len() - 1];
            let past = Past::first(era(0));
            let found = (first..Haste::ROUNDS).find(|&round| {
                let passed = Haste::after(round).pass(left, past, era(0));
                passed.inspect(|rounds| left = *rounds).is_none()
            });
            assert!(found.is_some(), "P1: {left} rounds are left");
        }
        assert_eq!(Haste::after(100).pass(0, Past::default(), era(0)), None);
    }
}
