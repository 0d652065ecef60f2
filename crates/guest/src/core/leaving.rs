//! The state of a guest's pages that can leave, and of the batch that is about to leave.
//!
//! Nothing reports how often a resident page is touched. The hand of a clock decides which pages
//! leave, by how soon they came back (`zfold_uffd::policy`), as for regions and runs.

use std::ops::Range;

use zfold_uffd::policy::{Era, Haste, Past};

/// Most units of a batch: they are protected by one call, and taken out by few.
pub(super) const RUN: u64 = 64;

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

/// Adjacent units that are about to leave: they were protected together.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) units: Range<u64>,
    /// The unit to copy next.
    pub(super) next: u64,
    /// A bit for each frozen unit: no write to it was allowed (evict/L1).
    frozen: u64,
    /// Of these, units that were kept; units that were copied and not kept equal the image's.
    kept: u64,
}

impl Batch {
    fn new(units: Range<u64>) -> Self {
        let len = units.end - units.start;
        let frozen = u64::MAX >> (64 - len);
        Self { next: units.start, units, frozen, kept: 0 }
    }

    fn bit(&self, unit: u64) -> u64 {
        1 << (unit - self.units.start)
    }

    pub(super) fn is_frozen(&self, unit: u64) -> bool {
        self.units.contains(&unit) && self.frozen & self.bit(unit) != 0
    }

    pub(super) fn is_kept(&self, unit: u64) -> bool {
        self.kept & self.bit(unit) != 0
    }

    pub(super) fn keep(&mut self, unit: u64) {
        self.kept |= self.bit(unit);
    }

    /// Returns the first run of frozen units from `from` on, at most `most` of them.
    pub(super) fn run(&self, from: u64, most: u64) -> Option<Range<u64>> {
        let first = (from..self.units.end).find(|unit| self.is_frozen(*unit))?;
        let len =
            (first..self.units.end.min(first + most)).take_while(|unit| self.is_frozen(*unit));
        Some(first..first + len.count() as u64)
    }
}

/// What the hand has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Units that leave.
    Units(Range<u64>),
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
            let past = self.pasts[unit as usize].returned(now);
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

    /// Returns whether a unit is frozen.
    pub(super) fn is_frozen(&self, unit: u64) -> bool {
        self.batch.as_ref().is_some_and(|batch| batch.is_frozen(unit))
    }

    /// Takes a unit out of the batch; returns whether it was kept already, if it was in it.
    pub(super) fn stay(&mut self, unit: u64) -> Option<bool> {
        let batch = self.batch.as_mut().filter(|batch| batch.is_frozen(unit))?;
        batch.frozen &= !batch.bit(unit);
        Some(batch.is_kept(unit))
    }

    /// Makes a batch of units.
    pub(super) fn freeze(&mut self, units: Range<u64>) {
        self.batch = Some(Batch::new(units));
    }

    /// Has the hand look for adjacent units to leave, within one region; `end_of` returns its end.
    pub(super) fn search(&mut self, end_of: impl Fn(u64) -> u64, now: Era) -> Found {
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
            let end = end_of(first).min(first + RUN.min(self.asked));
            while self.hand > first && self.hand < end && self.leaves(now) {}
            // The hand may have passed a unit that stays.
            let len =
                (first..end).take_while(|unit| self.rounds[*unit as usize] == u8::MAX).count();
            let run = first..first + len as u64;
            run.clone().for_each(|unit| self.rounds[unit as usize] = 0);
            self.asked -= len as u64;
            if self.asked == 0 {
                self.tries = 0;
            }
            return Found::Units(run);
        }
        Found::More
    }

    /// Moves the hand over a unit; returns whether that unit leaves, and marks it.
    fn leaves(&mut self, now: Era) -> bool {
        let at = self.hand as usize;
        self.hand = (self.hand + 1) % self.pasts.len() as u64;
        self.passed += 1;
        if !self.is_resident(at as u64) {
            return false;
        }
        let spared = Haste::after(self.tries).pass(self.rounds[at], self.pasts[at], now);
        self.rounds[at] = spared.unwrap_or(u8::MAX);
        spared.is_none()
    }
}

#[cfg(test)]
mod tests {
    use zfold_uffd::policy::Clock;

    use super::*;

    fn end(unit: u64) -> u64 {
        if unit < 100 { 100 } else { 300 }
    }

    #[test]
    fn runs_lie_in_one_region_and_have_what_is_there_alone() {
        let (mut leaving, clock) = (Leaving::new(300), Clock::default());
        (90..110).chain([200]).for_each(|unit| leaving.came(unit, clock.now()));
        clock.advance(100, 100);
        assert_eq!(leaving.search(end, clock.now()), Found::Nothing, "nobody asks");
        leaving.ask(15);
        let mut found = Vec::new();
        while let Found::Units(units) = leaving.search(end, clock.now()) {
            units.clone().for_each(|unit| leaving.left(unit, clock.now()));
            found.push(units);
        }
        assert_eq!(found, [90..100, 100..105]);
        leaving.ask(100);
        assert_eq!(leaving.search(end, clock.now()), Found::Units(105..110));
        (105..110).for_each(|unit| leaving.left(unit, clock.now()));
        assert_eq!(leaving.search(end, clock.now()), Found::Units(200..201));
        leaving.left(200, clock.now());
        assert_eq!(leaving.search(end, clock.now()), Found::Nothing, "none is left");
        assert!(leaving.resident() == 0 && !leaving.is_busy());
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
        while let Found::Units(units) = leaving.search(end, clock.now()) {
            assert!(!units.contains(&7));
            left += units.end - units.start;
            units.for_each(|unit| leaving.left(unit, clock.now()));
        }
        assert_eq!(left, 63);
        // In the end it leaves, too (policy/P1).
        let found = (0..20).any(|_| {
            leaving.ask(1);
            leaving.search(end, clock.now()) == Found::Units(7..8)
        });
        assert!(found);
    }

    #[test]
    fn what_stays_is_not_in_the_batch() {
        let mut leaving = Leaving::new(200);
        leaving.freeze(64..128);
        assert_eq!(
            (leaving.stay(70), leaving.stay(70), leaving.stay(128)),
            (Some(false), None, None)
        );
        let batch = leaving.batch.as_mut().expect("begun");
        batch.keep(127);
        assert_eq!((batch.run(64, 16), batch.run(70, 16)), (Some(64..70), Some(71..87)));
        assert_eq!((batch.run(120, 16), batch.run(128, 16)), (Some(120..128), None));
        assert_eq!((leaving.stay(127), leaving.is_frozen(126)), (Some(true), true));
    }
}
