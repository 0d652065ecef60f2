//! The state of a guest's pages that can leave, and of the batch that is about to leave.
//!
//! Nothing reports how often a resident page is touched. The hand of a clock decides which pages
//! leave, by how soon they came back (`zfold_uffd::policy`), as for regions and runs.

use std::ops::Range;

use zfold_uffd::policy::{Era, Haste, Past, Returns};

/// Most units of a batch, and most units from its first to its last.
pub(super) const RUN: usize = 64;
const SPAN: u64 = 512;

/// Most stretches of a batch: each is protected by a call, and taken out by another one.
const STRETCHES: usize = 16;

/// Most absent units between two units of a stretch.
const GAP: u64 = 32;

/// Units that the hand passes in one search.
const SEARCH: u64 = 4096;

/// A set of units.
#[derive(Debug, Default)]
struct Set {
    words: Vec<u64>,
    len: u64,
}

impl Set {
    fn new(units: u64) -> Self {
        Self { words: vec![0; units.div_ceil(64) as usize], len: 0 }
    }

    fn has(&self, unit: u64) -> bool {
        self.words[(unit / 64) as usize] >> (unit % 64) & 1 == 1
    }

    fn set(&mut self, unit: u64, on: bool) {
        let (had, bit) = (self.has(unit), 1 << (unit % 64));
        let word = &mut self.words[(unit / 64) as usize];
        *word = if on { *word | bit } else { *word & !bit };
        self.len = self.len + u64::from(on && !had) - u64::from(had && !on);
    }
}

/// Units that are about to leave: they were protected one shortly after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    /// In order.
    pub(super) units: Vec<u64>,
    /// The place in `units` of the one to copy next.
    pub(super) next: usize,
    /// A bit for each frozen unit: no write to it was allowed (evict/L1).
    frozen: u64,
    /// Of these, units that were kept; units that were copied and not kept equal the image's.
    kept: u64,
}

impl Batch {
    fn new(units: Vec<u64>) -> Self {
        let frozen = u64::MAX >> (RUN - units.len());
        Self { units, next: 0, frozen, kept: 0 }
    }

    fn bit(&self, unit: u64) -> u64 {
        self.units.binary_search(&unit).map_or(0, |place| 1 << place)
    }

    pub(super) fn is_frozen(&self, unit: u64) -> bool {
        self.frozen & self.bit(unit) != 0
    }

    pub(super) fn is_kept(&self, unit: u64) -> bool {
        self.kept & self.bit(unit) != 0
    }

    pub(super) fn keep(&mut self, unit: u64) {
        self.kept |= self.bit(unit);
    }

    /// Returns the units that are still frozen.
    pub(super) fn frozen(&self) -> impl Iterator<Item = u64> {
        let places = self.units.iter().enumerate();
        places.filter(|(place, _)| self.frozen >> place & 1 == 1).map(|(_, unit)| *unit)
    }

    /// Returns the places of the next adjacent units that are frozen and not copied, at most `most`
    /// of them.
    pub(super) fn run(&self, most: usize) -> Option<Range<usize>> {
        let is_frozen = |place: &usize| self.frozen >> place & 1 == 1;
        let first = (self.next..self.units.len()).find(is_frozen)?;
        let is_next = |place: &usize| {
            is_frozen(place) && self.units[*place] - self.units[first] == (place - first) as u64
        };
        let len = (first..self.units.len().min(first + most)).take_while(is_next).count();
        Some(first..first + len)
    }
}

/// Returns the stretches of units: from the first to the last of neighbours between which nothing
/// but a few units are that `is_absent` returns.
pub(super) fn stretches(
    units: impl Iterator<Item = u64>,
    is_absent: impl Fn(u64) -> bool,
) -> Vec<Vec<u64>> {
    let mut all: Vec<Vec<u64>> = Vec::new();
    for unit in units {
        match all.last_mut() {
            Some(stretch) if is_joined(stretch[stretch.len() - 1], unit, &is_absent) => {
                stretch.push(unit);
            }
            _ => all.push(vec![unit]),
        }
    }
    all
}

/// Returns whether a unit belongs to the stretch that ends with the one `before`.
fn is_joined(before: u64, unit: u64, is_absent: impl Fn(u64) -> bool) -> bool {
    unit - before <= GAP + 1 && (before + 1..unit).all(is_absent)
}

/// What the hand has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Units that leave, in order.
    Units(Vec<u64>),
    /// None yet.
    More,
    /// None is asked for, or the hand spares all that are left.
    Nothing,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Leaving {
    /// Units that are in the file, as far as zfold has put them there.
    resident: Set,
    /// Units that were found to differ from the image.
    changed: Set,
    pasts: Vec<Past>,
    returns: Returns,
    /// Rounds for which the hand spares a unit.
    rounds: Vec<u8>,
    hand: u64,
    /// Units that are asked for, and units that the hand has passed since.
    asked: u64,
    passed: u64,
    /// Times in a row that fewer units were found than asked for.
    tries: usize,
    pub(super) batch: Option<Batch>,
    /// Nothing leaves: another process puts pages into the file, too.
    pub(crate) is_shared: bool,
    /// There was no room to keep a page, or pages cannot leave for another reason.
    pub(crate) is_stuck: bool,
    #[cfg(test)]
    pub(super) broken: super::evict::Broken,
}

impl Leaving {
    pub(super) fn new(units: u64) -> Self {
        Self {
            resident: Set::new(units),
            changed: Set::new(units),
            pasts: vec![Past::UNKNOWN; units as usize],
            returns: Returns::default(),
            rounds: vec![0; units as usize],
            hand: 0,
            asked: 0,
            passed: 0,
            tries: 0,
            batch: None,
            is_shared: false,
            is_stuck: false,
            #[cfg(test)]
            broken: super::evict::Broken::Nothing,
        }
    }

    /// Returns how many units are in the file.
    pub(crate) fn resident(&self) -> u64 {
        self.resident.len
    }

    /// Asks for so many units to leave.
    pub(crate) fn ask(&mut self, units: u64) {
        (self.asked, self.passed) = (units, 0);
    }

    /// Returns whether units are asked for, or about to leave.
    pub(crate) fn is_busy(&self) -> bool {
        self.asked > 0 || self.batch.is_some()
    }

    /// Stops pages from leaving: there is no room.
    pub(super) fn stuck(&mut self) {
        (self.asked, self.is_stuck) = (0, true);
    }

    pub(super) fn is_resident(&self, unit: u64) -> bool {
        self.resident.has(unit)
    }

    pub(super) fn is_changed(&self, unit: u64) -> bool {
        self.changed.has(unit)
    }

    pub(super) fn change(&mut self, unit: u64) {
        self.changed.set(unit, true);
    }

    /// Records that a unit is resident; does nothing if that was known.
    pub(super) fn came(&mut self, unit: u64, now: Era) {
        if !self.is_resident(unit) {
            self.resident.set(unit, true);
            let past = self.returns.back(self.pasts[unit as usize], unit, now);
            (self.pasts[unit as usize], self.rounds[unit as usize]) = (past, past.rounds());
        }
    }

    /// Records that a unit has left.
    pub(super) fn left(&mut self, unit: u64, now: Era) {
        self.resident.set(unit, false);
        self.pasts[unit as usize] = self.pasts[unit as usize].left(now);
    }

    /// Records that a unit was given up: the page that comes next is another one.
    pub(super) fn gone(&mut self, unit: u64) {
        self.resident.set(unit, false);
        self.pasts[unit as usize] = Past::UNKNOWN;
    }

    /// Takes a unit out of the batch; returns whether it was kept already, if it was in it.
    pub(super) fn stay(&mut self, unit: u64) -> Option<bool> {
        let batch = self.batch.as_mut().filter(|batch| batch.is_frozen(unit))?;
        batch.frozen &= !batch.bit(unit);
        Some(batch.is_kept(unit))
    }

    /// Makes a batch of units.
    pub(super) fn freeze(&mut self, units: Vec<u64>) {
        self.batch = Some(Batch::new(units));
    }

    /// Has the hand look for units to leave, near each other and within one region; `end_of`
    /// returns its end, and `is_absent` whether a unit that is not resident is not in the file.
    pub(super) fn search(
        &mut self,
        end_of: impl Fn(u64) -> u64,
        is_absent: impl Fn(u64) -> bool,
        now: Era,
    ) -> Found {
        let units = self.pasts.len() as u64;
        if self.asked == 0 || self.is_shared {
            self.asked = 0;
            return Found::Nothing;
        }
        for _ in 0..SEARCH {
            if self.passed >= units {
                (self.asked, self.tries) = (0, self.tries + 1);
                return Found::Nothing;
            }
            let first = self.hand;
            if !self.leaves(now) {
                continue;
            }
            let end = end_of(first).min(first + SPAN);
            let most = RUN.min(self.asked as usize);
            let (mut found, mut parts) = (vec![first], 1);
            while found.len() < most && (first + 1..end).contains(&self.hand) && parts < STRETCHES {
                let unit = self.hand;
                if self.passed >= units {
                    break;
                }
                if self.leaves(now) {
                    let is_absent = |unit| !self.is_resident(unit) && is_absent(unit);
                    parts += usize::from(!is_joined(found[found.len() - 1], unit, is_absent));
                    found.push(unit);
                }
            }
            self.asked -= found.len() as u64;
            if self.asked == 0 {
                self.tries = 0;
            }
            return Found::Units(found);
        }
        Found::More
    }

    /// Moves the hand over a unit; returns whether that unit leaves.
    fn leaves(&mut self, now: Era) -> bool {
        let at = self.hand as usize;
        self.hand = (self.hand + 1) % self.pasts.len() as u64;
        self.passed += 1;
        if !self.is_resident(at as u64) {
            return false;
        }
        let spared = Haste::after(self.tries).pass(self.rounds[at], self.pasts[at], now);
        self.rounds[at] = spared.unwrap_or(0);
        spared.is_none()
    }
}

#[cfg(test)]
mod tests {
    use zfold_uffd::policy::Clock;

    use super::*;

    fn search(leaving: &mut Leaving, clock: &Clock) -> Found {
        let end = |unit| if unit < 100 { 100 } else { 1300 };
        leaving.search(end, |unit| unit != 150, clock.now())
    }

    #[test]
    fn a_batch_lies_in_one_region_and_has_what_is_there_alone() {
        let (mut leaving, clock) = (Leaving::new(1300), Clock::default());
        (90..110).chain([200]).for_each(|unit| leaving.came(unit, clock.now()));
        clock.advance(100, 100);
        assert_eq!(search(&mut leaving, &clock), Found::Nothing, "nobody asks");
        leaving.ask(15);
        let mut found = Vec::new();
        while let Found::Units(units) = search(&mut leaving, &clock) {
            units.iter().for_each(|unit| leaving.left(*unit, clock.now()));
            found.push(units);
        }
        assert_eq!(found, [(90..100).collect::<Vec<_>>(), (100..105).collect()]);
        leaving.ask(100);
        let rest: Vec<_> = (105..110).chain([200]).collect();
        assert_eq!(search(&mut leaving, &clock), Found::Units(rest.clone()));
        rest.into_iter().for_each(|unit| leaving.left(unit, clock.now()));
        assert_eq!(search(&mut leaving, &clock), Found::Nothing, "none is left");
        assert!(leaving.resident() == 0 && !leaving.is_busy());
    }

    #[test]
    fn a_batch_ends_with_its_span_its_units_or_its_stretches() {
        let clock = Clock::default();
        let found = |units: Vec<u64>| {
            let mut leaving = Leaving::new(1300);
            units.into_iter().for_each(|unit| leaving.came(unit, clock.now()));
            clock.advance(100, 100);
            leaving.ask(1000);
            let Found::Units(units) = search(&mut leaving, &clock) else { panic!("none") };
            (units.len(), units[units.len() - 1])
        };
        assert_eq!(found((200..400).collect()), (64, 263));
        assert_eq!(found((200..900).step_by(20).collect()), (26, 700), "in one stretch");
        assert_eq!(found((200..900).step_by(40).collect()), (13, 680), "in as many stretches");
        assert_eq!(found((200..1300).step_by(34).collect()), (16, 710), "too many");
    }

    #[test]
    fn stretches_go_over_what_is_absent() {
        let is_absent = |unit: u64| !(50..=100).contains(&unit);
        let of = |units: &[u64]| stretches(units.iter().copied(), is_absent);
        assert_eq!(of(&[1, 2, 9, 42, 76]), [&[1, 2, 9, 42][..], &[76]]);
        assert_eq!(of(&[49, 50, 51, 53]), [&[49, 50, 51][..], &[53]]);
        assert_eq!(of(&[101, 134, 168]), [&[101, 134][..], &[168]]);
    }

    #[test]
    fn what_comes_back_at_once_stays_longer_than_what_did_not() {
        let (mut leaving, clock) = (Leaving::new(64), Clock::default());
        (0..64).for_each(|unit| leaving.came(unit, clock.now()));
        clock.advance(64, 64);
        leaving.left(7, clock.now());
        leaving.came(7, clock.now());
        clock.advance(64, 64);
        leaving.ask(63);
        let mut left = 0;
        while let Found::Units(units) = search(&mut leaving, &clock) {
            assert!(!units.contains(&7));
            left += units.len();
            units.into_iter().for_each(|unit| leaving.left(unit, clock.now()));
        }
        assert_eq!(left, 63);
        // In the end it leaves, too (policy/P1).
        let found = (0..20).any(|_| {
            leaving.ask(1);
            search(&mut leaving, &clock) == Found::Units(vec![7])
        });
        assert!(found);
    }

    #[test]
    fn what_stays_is_not_in_the_batch() {
        let mut leaving = Leaving::new(400);
        leaving.freeze((64..100).chain(200..228).collect());
        let stays = [70, 70, 150].map(|unit| leaving.stay(unit));
        assert_eq!(stays, [Some(false), None, None]);
        let batch = leaving.batch.as_mut().expect("begun");
        batch.keep(227);
        assert_eq!(batch.run(16), Some(0..6));
        batch.next = 6;
        assert_eq!(batch.run(16), Some(7..23));
        batch.next = 30;
        assert_eq!(batch.run(16), Some(30..36), "until the next one is elsewhere");
        batch.next = 64;
        assert_eq!((batch.run(16), batch.frozen().count()), (None, 63));
        assert!(batch.is_frozen(226) && leaving.stay(227) == Some(true));
    }
}
