//! Which pages to work on.

use std::ops::Range;

use crate::entry::{Flag, Kind, State};

/// Which pages to work on; always among those in memory that are not same-filled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selection {
    /// All.
    All,
    /// Those marked idle and not used since.
    Idle,
    /// Those kept as they are.
    Huge,
    /// Those kept as they are that are idle.
    HugeIdle,
    /// Those that no codec makes smaller.
    Incompressible,
    /// Those of these keys.
    Keys(Vec<Range<u64>>),
    /// The least recently used, by a clock: its hand goes round the slots, and a page that was
    /// used since it last came by is passed over once.
    Lru,
}

impl From<Range<u64>> for Selection {
    /// Returns the selection of the pages of these keys.
    fn from(keys: Range<u64>) -> Self {
        Self::Keys(std::iter::once(keys).collect())
    }
}

impl Selection {
    pub(super) fn takes(&self, state: State) -> bool {
        state.in_pool()
            && match self {
                Self::All | Self::Keys(_) => true,
                Self::Idle => state.has(Flag::Idle),
                Self::Huge => state.kind() == Kind::Raw,
                Self::HugeIdle => state.kind() == Kind::Raw && state.has(Flag::Idle),
                Self::Incompressible => state.has(Flag::Incompressible),
                Self::Lru => !state.has(Flag::Referenced),
            }
    }
}
