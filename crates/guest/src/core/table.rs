//! Which pages of a guest are settled: one bit for each (G1).
//!
//! The bits are atomics because they lie in memory that another process maps later, not because
//! threads share them: only the guest's thread uses them.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::regions::Region;

/// Where the bits are: memory that may outlive the process that writes them. One thread at a time
/// writes. A word is written as a whole, so the successor of a process that was killed finds each
/// bit as it was before or after a change.
pub(crate) trait Bits: fmt::Debug + Send {
    /// Returns the words: a bit for each unit that is settled, then as many words for units that
    /// the guest gave up, each at least one word per 64 units.
    fn words(&self) -> &[AtomicU64];
}

impl Bits for Vec<AtomicU64> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// Returns how many words the bits of so many units take.
pub(crate) fn words_of(units: u64) -> usize {
    2 * words_of_one(units)
}

fn words_of_one(units: u64) -> usize {
    units.div_ceil(64) as usize
}

/// Returns the first of some units whose bit is set; if `than` is all ones, whose bit is not set.
pub(crate) fn next(words: &[AtomicU64], units: Range<u64>, than: u64) -> Option<u64> {
    let mut at = units.start / 64;
    let mut open = u64::MAX << (units.start % 64);
    while at * 64 < units.end {
        // Relaxed: same as for `Table::word`.
        let found = (words[at as usize].load(Ordering::Relaxed) ^ than) & open;
        if found != 0 {
            let unit = at * 64 + u64::from(found.trailing_zeros());
            return (unit < units.end).then_some(unit);
        }
        (at, open) = (at + 1, u64::MAX);
    }
    None
}

/// Returns the pages of the image that a guest with these regions gave up at any time, whatever it
/// wrote there since.
pub(crate) fn given_up(
    regions: &[Region],
    bits: &(impl Bits + ?Sized),
) -> impl Iterator<Item = Range<u64>> {
    let units = regions.last().map_or(0, |last| last.units().end);
    let words = &bits.words()[words_of_one(units)..];
    regions.iter().flat_map(move |region| {
        let mut units = region.units();
        std::iter::from_fn(move || {
            let unit = next(words, units.clone(), 0)?;
            units.start = unit + 1;
            let page = region.page + (unit - region.first) * region.pages();
            Some(page..page + region.pages())
        })
    })
}

/// The pages of a guest, called units here, since they may be larger than those of an image.
#[derive(Debug)]
pub(crate) struct Table {
    regions: Vec<Region>,
    settled: Box<dyn Bits>,
    left: u64,
}

/// A unit, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) unit: u64,
    /// Its first address.
    pub(crate) at: usize,
    /// Bytes of it.
    pub(crate) len: usize,
    /// Its first page of the image.
    pub(crate) page: u64,
}

impl Table {
    /// Returns the table of these regions, which are sorted; `settled` has the bits.
    pub(crate) fn new(regions: Vec<Region>, settled: Box<dyn Bits>) -> Self {
        let units = regions.last().map_or(0, |last| last.units().end);
        let mut table = Self { regions, settled, left: 0 };
        table.left = (0..units.div_ceil(64))
            .map(|word| {
                let in_it = (units - word * 64).min(64) as u32;
                u64::from((!table.word(word as usize) << (64 - in_it)).count_ones())
            })
            .sum();
        table
    }

    fn word(&self, at: usize) -> u64 {
        // Relaxed: one thread uses them; after a process was killed, the kernel's report of its end
        // comes between its writes and these reads.
        self.settled.words()[at].load(Ordering::Relaxed)
    }

    pub(crate) fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Returns how many units there are.
    pub(crate) fn units(&self) -> u64 {
        self.regions.last().map_or(0, |last| last.units().end)
    }

    /// Returns how many of them are not settled.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Returns the unit at an address, if it is in a region.
    pub(crate) fn find(&self, address: usize) -> Option<Place> {
        let after = self.regions.partition_point(|region| region.at.start <= address);
        let region = self.regions[..after].last().filter(|region| address < region.at.end)?;
        let number = ((address - region.at.start) / region.unit) as u64;
        Some(Self::place_in(region, number))
    }

    /// Returns where a unit is.
    ///
    /// # Panics
    /// There is no such unit.
    pub(crate) fn place(&self, unit: u64) -> Place {
        let region = self.region(unit);
        Self::place_in(region, unit - region.first)
    }

    /// Returns the region of a unit.
    ///
    /// # Panics
    /// There is no such unit.
    pub(crate) fn region(&self, unit: u64) -> &Region {
        let after = self.regions.partition_point(|region| region.first <= unit);
        let region = &self.regions[after - 1];
        assert!(region.units().contains(&unit), "unit {unit}");
        region
    }

    fn place_in(region: &Region, number: u64) -> Place {
        let at = region.at.start + number as usize * region.unit;
        let page = region.page + number * region.pages();
        Place { unit: region.first + number, at, len: region.unit, page }
    }

    pub(crate) fn is_settled(&self, unit: u64) -> bool {
        self.word((unit / 64) as usize) >> (unit % 64) & 1 == 1
    }

    /// Records that a unit no longer comes from the image.
    pub(crate) fn settle(&mut self, unit: u64) {
        self.left -= u64::from(!self.is_settled(unit));
        self.set((unit / 64) as usize, unit);
    }

    /// Returns the first unit from `unit` on that is not settled.
    pub(crate) fn next_unsettled(&self, unit: u64) -> Option<u64> {
        next(self.settled.words(), unit..self.units(), u64::MAX)
    }

    fn set(&self, at: usize, unit: u64) {
        let before = self.word(at);
        // Relaxed: same as for `word`.
        self.settled.words()[at].store(before | 1 << (unit % 64), Ordering::Relaxed);
    }

    /// Settles the units that lie wholly in a range of addresses that the guest gave up. A unit
    /// that lies there in part is not given up: the kernel keeps all of it.
    pub(crate) fn discard(&mut self, of: &Range<usize>) {
        let mut units = Vec::new();
        for region in &self.regions {
            let (from, to) = (of.start.max(region.at.start), of.end.min(region.at.end));
            if from < to {
                let first = (from - region.at.start).div_ceil(region.unit) as u64;
                let end = ((to - region.at.start) / region.unit) as u64;
                units.push(region.first + first..region.first + end.max(first));
            }
        }
        let given = words_of_one(self.units());
        for unit in units.into_iter().flatten() {
            self.settle(unit);
            self.set(given + (unit / 64) as usize, unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(units: u64) -> Box<dyn Bits> {
        Box::new((0..words_of(units)).map(|_| AtomicU64::new(0)).collect::<Vec<_>>())
    }

    #[test]
    fn what_was_settled_before_is_not_left() {
        let region = Region { at: 4096..4096 * 131, page: 0, unit: 4096, first: 0 };
        let words = [u64::MAX, 0b101, u64::MAX - 1, 0, 0, 0].map(AtomicU64::new);
        let table = Table::new(vec![region], Box::new(Vec::from(words)));
        // Behind the last of 130 there are bits that mean nothing.
        assert_eq!((table.left(), table.units()), (62 + 1, 130));
        assert_eq!((table.next_unsettled(0), table.next_unsettled(67)), (Some(65), Some(67)));
        assert_eq!((table.next_unsettled(128), table.next_unsettled(129)), (Some(128), None));
    }

    fn table() -> Table {
        let small = Region { at: 0x1000..0x5000, page: 7, unit: 4096, first: 0 };
        let large = Region { at: 2 << 20..6 << 20, page: 512, unit: 2 << 20, first: 4 };
        Table::new(vec![small, large], none(6))
    }

    #[test]
    fn addresses_units_and_pages_belong_together() {
        let table = table();
        assert_eq!((table.units(), table.left()), (6, 6));
        let place = table.find(0x2fff).expect("inside");
        assert_eq!(place, Place { unit: 1, at: 0x2000, len: 4096, page: 8 });
        let place = table.find((4 << 20) + 5).expect("inside");
        assert_eq!(place, Place { unit: 5, at: 4 << 20, len: 2 << 20, page: 1024 });
        assert_eq!(table.place(5), place);
        for outside in [0, 0xfff, 0x5000, 6 << 20] {
            assert_eq!(table.find(outside), None);
        }
    }

    #[test]
    fn what_was_given_up_is_told_by_its_pages() {
        let mut table = table();
        table.settle(0);
        table.discard(&(0x2000..0x4000));
        table.discard(&(0x4000..0x5000));
        table.discard(&(4 << 20..6 << 20));
        // It was written to since.
        table.settle(1);
        let given = given_up(table.regions(), &*table.settled);
        assert_eq!(given.collect::<Vec<_>>(), [8..9, 9..10, 10..11, 1024..1536]);
    }

    #[test]
    fn a_discard_settles_whole_units_only() {
        let mut table = table();
        table.discard(&(0x2000..0x4000));
        assert_eq!((0..6).filter(|&unit| table.is_settled(unit)).collect::<Vec<_>>(), [1, 2]);
        // Parts of a page of 2 MiB, as a balloon of 4 KiB gives them up.
        table.discard(&((2 << 20) + 4096..(4 << 20) + 4096));
        assert_eq!(table.left(), 4);
        table.discard(&((2 << 20) + 4096..6 << 20));
        assert!(!table.is_settled(4) && table.is_settled(5));
        table.discard(&(0..usize::MAX));
        assert_eq!((table.left(), table.next_unsettled(0)), (0, None));
    }

    #[test]
    fn what_is_left_is_found_across_words() {
        let region = Region { at: 4096..4096 * 201, page: 0, unit: 4096, first: 0 };
        let mut table = Table::new(vec![region], none(200));
        (0..130).chain([150]).for_each(|unit| table.settle(unit));
        assert_eq!(table.next_unsettled(0), Some(130));
        assert_eq!(table.next_unsettled(150), Some(151));
        assert_eq!(table.next_unsettled(199), Some(199));
        assert_eq!(table.next_unsettled(200), None);
        table.settle(150);
        assert_eq!(table.left(), 200 - 131);
    }
}
