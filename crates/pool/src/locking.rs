//! Names of the lock designs and of how upkeep and compaction run: what a pool is made with, and
//! what the laboratory compares.

use std::fmt;
use std::str::FromStr;

use crate::options::{Allocator, ConfigError};

/// Which locks guard a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Locking {
    /// zsmalloc: a reader-writer lock against migration for the pool, a spin lock for each size
    /// class (Linux before 6.2 and from 6.12 on).
    Hierarchical,
    /// One spin lock for everything (zsmalloc of Linux 6.2 to 6.11, zbud, z3fold before 4.14).
    PoolLock,
    /// zsmalloc: a spin lock for each size class; which one is read from the handle's cell, so
    /// that no lock of the pool is left (goes on from the kernel's zs_free series of 2026).
    ClassIndex,
    /// zsmalloc: every CPU has zspages of its own, objects freed by other CPUs are handed to the
    /// owner in batches, and a read writes to the handle's cell only. z3fold: every CPU has
    /// its own lists of pages with room (Linux since 4.14).
    PerCpu,
}

impl Locking {
    /// All designs.
    pub const ALL: [Self; 4] = [Self::Hierarchical, Self::PoolLock, Self::ClassIndex, Self::PerCpu];

    /// Returns the designs that `allocator` has.
    #[must_use]
    pub fn of(allocator: Allocator) -> &'static [Self] {
        match allocator {
            Allocator::Zbud => &[Self::PoolLock],
            Allocator::Z3fold => &[Self::PoolLock, Self::PerCpu],
            Allocator::Zsmalloc => &Self::ALL,
        }
    }

    /// Returns the name that `Display` prints and `FromStr` reads.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hierarchical => "hierarchical",
            Self::PoolLock => "pool-lock",
            Self::ClassIndex => "class-index",
            Self::PerCpu => "per-cpu",
        }
    }
}

impl fmt::Display for Locking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Locking {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        let found = Self::ALL.into_iter().find(|design| design.name() == name);
        found.ok_or_else(|| ConfigError::UnknownLocking(name.to_owned()))
    }
}

/// How many compactions of one pool may run at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Contexts {
    /// Any number: every caller compacts (Linux before 6.4).
    Concurrent,
    /// One: a second caller returns at once with nothing freed (Linux since 6.4).
    Single,
    /// One caller, which deals the size classes to as many threads as there are CPUs; a second
    /// caller returns at once. Allocators without size classes compact as in `Single`.
    #[default]
    Parallel,
}

impl Contexts {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Concurrent, Self::Single, Self::Parallel];

    /// Returns the name that `Display` prints and `FromStr` reads.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Concurrent => "concurrent",
            Self::Single => "single",
            Self::Parallel => "parallel",
        }
    }
}

impl fmt::Display for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Contexts {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        let found = Self::ALL.into_iter().find(|contexts| contexts.name() == name);
        found.ok_or_else(|| ConfigError::UnknownContexts(name.to_owned()))
    }
}

/// z3fold, `per-cpu`: who optimises the layout of pages and releases emptied ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Upkeep {
    /// The caller of `free`, at once.
    #[default]
    Inline,
    /// Two threads of the pool's own, one for the layout and one for the release. What waits for
    /// the first is done by [`crate::Pool::stats`] and [`crate::Pool::compact`] before all else,
    /// so their figures are those of pages that have been optimised.
    Workers,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_wrong_ones_answered_with_the_choices() {
        for design in Locking::ALL {
            assert_eq!(design.name().parse(), Ok(design));
        }
        for contexts in Contexts::ALL {
            assert_eq!(contexts.name().parse(), Ok(contexts));
        }
        assert_eq!(
            "rcu".parse::<Locking>().unwrap_err().to_string(),
            "unknown lock design 'rcu' (choices: hierarchical, pool-lock, class-index, per-cpu)"
        );
        assert_eq!(
            "many".parse::<Contexts>().unwrap_err().to_string(),
            "unknown compaction contexts 'many' (choices: concurrent, single, parallel)"
        );
    }
}
