//! Fullness groups: how full a zspage is, as far as lists are concerned.
//!
//! Group 0 is empty, the last group is full; allocation takes from the fullest group that has
//! room, compaction empties the emptiest.

/// Most groups that any grouping has.
pub(crate) const GROUPS_MAX: usize = 12;

/// How zspages are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Grouping {
    /// Linux up to 6.3: empty, almost empty (at most three quarters), almost full, full. A list
    /// keeps a fuller zspage in front of a newcomer.
    Four,
    /// Linux since 6.4: empty, ten groups of ten percent, full. Newcomers go first.
    #[default]
    Twelve,
}

impl Grouping {
    /// Group of a full zspage.
    pub(crate) const fn full(self) -> u8 {
        match self {
            Self::Four => 3,
            Self::Twelve => 11,
        }
    }

    /// Returns the group of a zspage with `in_use` of `objects`.
    #[inline]
    pub(crate) const fn group(self, in_use: u32, objects: u32) -> u8 {
        match self {
            _ if in_use == 0 => 0,
            _ if in_use == objects => self.full(),
            Self::Four if in_use * 4 <= objects * 3 => 1,
            Self::Four => 2,
            Self::Twelve => (in_use * 100 / objects / 10) as u8 + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_groups_split_at_three_quarters() {
        let groups = [0, 1, 6, 7, 8].map(|in_use| Grouping::Four.group(in_use, 8));
        assert_eq!(groups, [0, 1, 1, 2, 3]);
    }

    #[test]
    fn twelve_groups_are_ten_percent_each() {
        let groups = [0, 1, 9, 10, 19, 20, 99, 100].map(|n| Grouping::Twelve.group(n, 100));
        assert_eq!(groups, [0, 1, 1, 2, 2, 3, 10, 11]);
        assert_eq!(Grouping::Twelve.group(1, 1), 11);
    }
}
