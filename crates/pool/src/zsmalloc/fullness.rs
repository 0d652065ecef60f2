//! Fullness groups: how full a zspage is, as far as lists are concerned.
//!
//! Group 0 is empty, the last group is full; allocation takes from the fullest group that has
//! room, compaction empties the emptiest.

use crate::options::zsmalloc::Grouping;

/// Most groups that any grouping has.
pub(crate) const GROUPS_MAX: usize = 12;

impl Grouping {
    /// Group of a full zspage.
    pub(crate) const fn full(self) -> u8 {
        match self {
            Self::Four => 3,
            Self::Twelve => 11,
        }
    }
}

/// The grouping of one class: gives the group of a zspage without a division.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups {
    pub(crate) grouping: Grouping,
    objects: u32,
    /// 2^32 / `objects`, rounded up.
    reciprocal: u64,
}

impl Groups {
    pub(crate) fn new(grouping: Grouping, objects: u32) -> Self {
        // With numerators up to 10 * 4096, multiplying by the reciprocal is exact.
        assert!(objects <= 4096);
        Self { grouping, objects, reciprocal: (1_u64 << 32).div_ceil(objects.into()) }
    }

    /// Returns the group of a zspage with `in_use` live objects.
    #[inline]
    pub(crate) fn of(&self, in_use: u32) -> u8 {
        match self.grouping {
            _ if in_use == 0 => 0,
            _ if in_use == self.objects => self.grouping.full(),
            Grouping::Four if in_use * 4 <= self.objects * 3 => 1,
            Grouping::Four => 2,
            Grouping::Twelve => ((u64::from(in_use) * 10 * self.reciprocal) >> 32) as u8 + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_groups_split_at_three_quarters() {
        let groups = [0, 1, 6, 7, 8].map(|in_use| Groups::new(Grouping::Four, 8).of(in_use));
        assert_eq!(groups, [0, 1, 1, 2, 3]);
    }

    #[test]
    fn twelve_groups_are_ten_percent_each() {
        let twelve = Groups::new(Grouping::Twelve, 100);
        let groups = [0, 1, 9, 10, 19, 20, 99, 100].map(|in_use| twelve.of(in_use));
        assert_eq!(groups, [0, 1, 1, 2, 2, 3, 10, 11]);
        assert_eq!(Groups::new(Grouping::Twelve, 1).of(1), 11);
    }

    #[test]
    fn groups_equal_those_by_division() {
        for objects in 1..=4096 {
            let twelve = Groups::new(Grouping::Twelve, objects);
            for in_use in (1..objects).step_by(if cfg!(miri) { 997 } else { 1 }) {
                assert_eq!(u32::from(twelve.of(in_use)), in_use * 100 / objects / 10 + 1);
            }
        }
    }
}
