//! Which pages of a machine lie in its files already: for one that is restored on demand.
//!
//! Pages are written in units of 16, which do not cross slots. A unit is written once, from the
//! image (offload/O5).

use std::ops::Range;

/// Pages of a unit.
const UNIT: u64 = 16;

/// Noted of a unit: it is being written, or is written.
pub(super) const BEGUN: u8 = 2;
pub(super) const WRITTEN: u8 = 1;

/// The units of a machine.
#[derive(Debug)]
pub(super) struct Filling {
    slots: Vec<Range<u64>>,
    /// For each slot, the number of its first unit among all, and whether a unit is written.
    written: Vec<(u64, Vec<bool>)>,
    /// The unit that is looked at next, when nothing is asked for.
    next: (usize, usize),
}

/// A unit: the place of its slot in the list, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit(pub(super) usize, usize);

impl Filling {
    /// Returns one for slots with these pages. `before` has what was noted of each unit, by its
    /// number among all, as far as it goes.
    pub(super) fn new(slots: Vec<Range<u64>>, before: &[u8]) -> Self {
        let (mut first, mut written) = (0, Vec::with_capacity(slots.len()));
        for slot in &slots {
            let units = first..first + (slot.end - slot.start).div_ceil(UNIT);
            let is_written = |unit: u64| before.get(unit as usize) == Some(&WRITTEN);
            written.push((first, units.clone().map(is_written).collect()));
            first = units.end;
        }
        Self { slots, written, next: (0, 0) }
    }

    /// Returns the pages of a unit.
    pub(super) fn pages(&self, Unit(slot, number): Unit) -> Range<u64> {
        let pages = &self.slots[slot];
        let first = pages.start + number as u64 * UNIT;
        first..pages.end.min(first + UNIT)
    }

    /// Returns the units that have pages of a range of a slot and are not written.
    pub(super) fn missing(&self, slot: usize, pages: &Range<u64>) -> Vec<Unit> {
        let number = |page: u64| ((page - self.slots[slot].start) / UNIT) as usize;
        let units = number(pages.start)..=number(pages.end - 1);
        units.filter(|&number| !self.written[slot].1[number]).map(|n| Unit(slot, n)).collect()
    }

    /// Returns the next unit that is not written, and goes on behind it.
    pub(super) fn next(&mut self) -> Option<Unit> {
        while let Some((_, written)) = self.written.get(self.next.0) {
            let (slot, number) = self.next;
            match written.get(number) {
                Some(is_written) => {
                    self.next.1 += 1;
                    if !is_written {
                        return Some(Unit(slot, number));
                    }
                }
                None => self.next = (slot + 1, 0),
            }
        }
        None
    }

    /// Returns the number of a unit among all.
    pub(super) fn number(&self, Unit(slot, number): Unit) -> u64 {
        self.written[slot].0 + number as u64
    }

    /// Returns the unit of a number among all.
    pub(super) fn unit(&self, number: u64) -> Unit {
        let slot = self.written.partition_point(|(first, _)| *first <= number) - 1;
        Unit(slot, (number - self.written[slot].0) as usize)
    }

    /// Notes that a unit is written.
    pub(super) fn wrote(&mut self, Unit(slot, number): Unit) {
        self.written[slot].1[number] = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_comes_once_whoever_asks_for_it() {
        // Two slots, the ends of which lie within a unit.
        let mut filling = Filling::new(vec![0..40, 40..57], &[]);
        let asked = filling.missing(0, &(15..17));
        assert_eq!(asked, [Unit(0, 0), Unit(0, 1)]);
        asked.into_iter().for_each(|unit| filling.wrote(unit));
        assert!(filling.missing(0, &(0..32)).is_empty());
        let last = filling.missing(1, &(56..57));
        assert_eq!((last.len(), filling.pages(last[0])), (1, 56..57));
        filling.wrote(last[0]);
        let mut rest = Vec::new();
        while let Some(unit) = filling.next() {
            rest.push(filling.pages(unit));
            filling.wrote(unit);
        }
        assert_eq!(rest, [32..40, 40..56]);
        assert_eq!(filling.next(), None);
        assert!(
            filling.missing(0, &(0..40)).is_empty() && filling.missing(1, &(40..57)).is_empty()
        );
    }

    #[test]
    fn a_unit_that_was_not_written_is_missing_still_but_not_looked_at_again() {
        let mut filling = Filling::new(vec![0..16, 16..17], &[]);
        assert_eq!(filling.next(), Some(Unit(0, 0)));
        assert_eq!(filling.next(), Some(Unit(1, 0)));
        assert_eq!((filling.next(), filling.missing(0, &(3..4))), (None, vec![Unit(0, 0)]));
    }

    #[test]
    fn what_an_earlier_server_wrote_is_not_missing() {
        let mut filling = Filling::new(vec![0..40, 40..57], &[WRITTEN, 0, BEGUN, WRITTEN]);
        let mut left = Vec::new();
        while let Some(unit) = filling.next() {
            assert_eq!(filling.unit(filling.number(unit)), unit);
            left.push(filling.number(unit));
        }
        assert_eq!(left, [1, 2, 4]);
    }
}
