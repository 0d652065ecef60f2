//! Why a pool was not made; and options by their names, of which there may be none.

use std::fmt;
use std::str::FromStr;

use crate::memory::source::SourceError;
use crate::options::zsmalloc::Chooser;
use crate::options::{Allocator, CPUS_MAX, Contexts, Locking};

/// Why a pool was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// No allocator of this name.
    UnknownAllocator(String),
    /// No chooser of this name.
    UnknownChooser(String),
    /// No lock design of this name.
    UnknownLocking(String),
    /// No compaction contexts of this name.
    UnknownContexts(String),
    /// The allocator has no such lock design.
    Locking(Allocator, Locking),
    /// Reclaim keeps an age order of the whole pool, which only one lock of the pool can guard.
    ReclaimLocking(Locking),
    /// The allocator keeps no age order.
    Reclaim(Allocator),
    /// A pool has 1 to 256 shards.
    Cpus(usize),
    /// A zspage has 4 to 16 pages at most.
    Chain(u32),
    /// The arena is smaller than 1 MiB.
    ArenaTooSmall(usize),
    /// Not even the smallest arena could be reserved.
    Source(SourceError),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownAllocator(name) => {
                let choices = Allocator::ALL.map(Allocator::name).join(", ");
                write!(f, "unknown allocator '{name}' (choices: {choices})")
            }
            Self::UnknownChooser(name) => {
                let choices = Chooser::ALL.map(Chooser::name).join(", ");
                write!(f, "unknown chooser '{name}' (choices: {choices})")
            }
            Self::UnknownLocking(name) => {
                let choices = Locking::ALL.map(Locking::name).join(", ");
                write!(f, "unknown lock design '{name}' (choices: {choices})")
            }
            Self::UnknownContexts(name) => {
                let choices = Contexts::ALL.map(Contexts::name).join(", ");
                write!(f, "unknown compaction contexts '{name}' (choices: {choices})")
            }
            Self::Locking(allocator, locking) => {
                let designs: Vec<_> = Locking::of(*allocator).iter().map(|l| l.name()).collect();
                write!(
                    f,
                    "{allocator} has no lock design {locking} (it has {})",
                    designs.join(", ")
                )
            }
            Self::Reclaim(allocator) => write!(f, "{allocator} has no reclaim"),
            Self::ReclaimLocking(locking) => {
                write!(f, "reclaim needs the lock design pool-lock, not {locking}")
            }
            Self::Cpus(cpus) => write!(f, "{cpus} shards are not in 1 to {CPUS_MAX}"),
            Self::Chain(chain) => write!(f, "a chain of {chain} pages is not in 4 to 16"),
            Self::ArenaTooSmall(bytes) => {
                write!(f, "an arena of {bytes} bytes is too small (at least 1 MiB)")
            }
            Self::Source(source) => write!(f, "cannot reserve an arena: {source}"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Has options printed and read by their names.
macro_rules! named {
    ($($option:ident, $unknown:ident;)*) => {$(
        impl fmt::Display for $option {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $option {
            type Err = ConfigError;

            fn from_str(name: &str) -> Result<Self, ConfigError> {
                let found = Self::ALL.into_iter().find(|option| option.name() == name);
                found.ok_or_else(|| ConfigError::$unknown(name.to_owned()))
            }
        }
    )*};
}

named! {
    Allocator, UnknownAllocator;
    Chooser, UnknownChooser;
    Contexts, UnknownContexts;
    Locking, UnknownLocking;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that an option is read by its name, and that a wrong one is answered.
    fn check<T>(all: impl IntoIterator<Item = T>, wrong: &str, answer: &str)
    where
        T: FromStr<Err = ConfigError> + fmt::Display + fmt::Debug + PartialEq,
    {
        for option in all {
            assert_eq!(option.to_string().parse(), Ok(option));
        }
        assert_eq!(wrong.parse::<T>().unwrap_err().to_string(), answer);
    }

    #[test]
    fn names_are_read_and_wrong_ones_answered_with_the_choices() {
        let answer = "unknown allocator 'slab' (choices: zbud, z3fold, zsmalloc, fit)";
        check(Allocator::ALL, "slab", answer);
        check(Chooser::ALL, "best", "unknown chooser 'best' (choices: old, new)");
        let choices = "hierarchical, pool-lock, class-index, per-cpu";
        check(Locking::ALL, "rcu", &format!("unknown lock design 'rcu' (choices: {choices})"));
        let choices = "concurrent, single, parallel";
        let answer = format!("unknown compaction contexts 'many' (choices: {choices})");
        check(Contexts::ALL, "many", &answer);
        assert_eq!("old".parse(), Ok(Chooser::UsedPercent));
    }
}
