//! How slots lie in their groups.

/// Bytes of a group, and of the values beside it.
pub(super) const GROUP_BYTES: usize = 4 << 10;

/// See the [module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Two words a slot, for values of any kind.
    Wide,
    /// A word and a stamp a slot, for values that mostly are addresses.
    Narrow,
}

/// Where a slot is: its group, and its number there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) group: u64,
    pub(super) at: u64,
}

impl Form {
    /// Returns how many slots a group has; two in models, where every slot costs.
    #[inline]
    pub(super) const fn group_slots(self) -> u64 {
        match self {
            _ if cfg!(loom) => 2,
            Self::Wide => (GROUP_BYTES / 16) as u64,
            Self::Narrow => (GROUP_BYTES / 12) as u64,
        }
    }

    /// Returns where a slot is.
    #[inline]
    pub(super) const fn place(self, index: u64) -> Place {
        // The divisors are constants here.
        let (group, at) = match self {
            Self::Wide => (index / Self::Wide.group_slots(), index % Self::Wide.group_slots()),
            Self::Narrow => {
                (index / Self::Narrow.group_slots(), index % Self::Narrow.group_slots())
            }
        };
        Place { group, at }
    }
}
