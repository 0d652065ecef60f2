//! The free grains of an export, and rows of grains for objects.
//!
//! - E1: a grain is free, or belongs to one row that was taken, or is lost.
//!
//! A grain is lost when a write to it may still be under way: a server that was stopped may carry
//! it out at any time later, over what another write would have put there by then.

use std::collections::BTreeMap;

/// Bytes of a grain.
pub(super) const GRAIN: u64 = 4096;

/// How many free rows are looked at for one that is long enough.
const LOOKS: usize = 64;

/// Grains side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) start: u64,
    pub(super) len: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Extents {
    /// Free rows by their starts; no two touch.
    free: BTreeMap<u64, u64>,
    left: u64,
    lost: u64,
}

impl Extents {
    /// Returns this many grains, all free.
    pub(super) fn new(grains: u64) -> Self {
        let free = (grains > 0).then_some((0, grains)).into_iter().collect();
        Self { free, left: grains, lost: 0 }
    }

    /// Takes `len` grains, in one row if a look at some of the first finds one; in several
    /// otherwise. None if fewer are free.
    pub(super) fn take(&mut self, len: u64) -> Option<Box<[Row]>> {
        if len == 0 || len > self.left {
            return None;
        }
        self.left -= len;
        let long = self.free.iter().take(LOOKS).find(|(_, free)| **free >= len);
        let first = long.or_else(|| self.free.iter().next()).map(|(start, _)| *start);
        let (mut at, mut wanted) = (first?, len);
        let mut rows = Vec::new();
        while wanted > 0 {
            let free = self.free.remove(&at).expect("a free row begins there");
            let taken = free.min(wanted);
            rows.push(Row { start: at, len: taken });
            wanted -= taken;
            if taken < free {
                self.free.insert(at + taken, free - taken);
            }
            if wanted > 0 {
                at = *self.free.iter().next().expect("as many were left").0;
            }
        }
        Some(rows.into())
    }

    /// Gives rows back.
    pub(super) fn give(&mut self, rows: &[Row]) {
        for row in rows {
            let (mut start, mut len) = (row.start, row.len);
            if let Some((&before, &free)) = self.free.range(..start).next_back()
                && before + free == start
            {
                self.free.remove(&before);
                (start, len) = (before, free + len);
            }
            if let Some(free) = self.free.remove(&(row.start + row.len)) {
                len += free;
            }
            self.free.insert(start, len);
            self.left += row.len;
        }
    }

    /// Takes rows out of use for good.
    pub(super) fn lose(&mut self, rows: &[Row]) {
        self.lost += rows.iter().map(|row| row.len).sum::<u64>();
    }

    /// Returns how many grains are lost.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_grain_is_taken_twice_and_all_can_be(
            steps in prop::collection::vec(
                (1..40_u64, any::<prop::sample::Index>(), 0..3_u8),
                1..120,
            ),
        ) {
            let mut extents = Extents::new(300);
            let mut taken: Vec<Box<[Row]>> = Vec::new();
            let (mut used, mut lost) = (BTreeSet::new(), 0);
            for (len, index, what) in steps {
                if what > 0 || taken.is_empty() {
                    let rows = extents.take(len);
                    prop_assert_eq!(rows.is_some(), used.len() as u64 + lost + len <= 300);
                    let Some(rows) = rows else { continue };
                    prop_assert_eq!(rows.iter().map(|row| row.len).sum::<u64>(), len);
                    for grain in rows.iter().flat_map(|row| row.start..row.start + row.len) {
                        prop_assert!(grain < 300 && used.insert(grain), "{} twice", grain);
                    }
                    taken.push(rows);
                } else {
                    let rows = taken.swap_remove(index.index(taken.len()));
                    for grain in rows.iter().flat_map(|row| row.start..row.start + row.len) {
                        used.remove(&grain);
                    }
                    if len % 8 == 0 {
                        extents.lose(&rows);
                        lost += rows.iter().map(|row| row.len).sum::<u64>();
                    } else {
                        extents.give(&rows);
                    }
                }
            }
            taken.iter().for_each(|rows| extents.give(rows));
            prop_assert_eq!(extents.lost(), lost);
            prop_assert!(lost == 300 || extents.take(300 - lost).is_some());
            prop_assert!(extents.free.is_empty());
        }
    }

    #[test]
    fn neighbours_that_are_free_are_one_row() {
        let mut extents = Extents::new(30);
        let rows: Vec<_> = (0..3).map(|_| extents.take(10).expect("free")).collect();
        assert_eq!(*rows[1], [Row { start: 10, len: 10 }]);
        extents.give(&rows[0]);
        extents.give(&rows[2]);
        assert_eq!(
            *extents.take(15).expect("free"),
            [Row { start: 0, len: 10 }, Row { start: 20, len: 5 }]
        );
        assert_eq!(extents.take(6), None);
        extents.give(&rows[1]);
        assert_eq!(
            *extents.take(15).expect("free"),
            [Row { start: 10, len: 10 }, Row { start: 25, len: 5 }]
        );
    }
}
