//! Why a pool was not made; and the names of options.

use std::fmt;
use std::str::FromStr;

use crate::memory::source::SourceError;
use crate::options::{Allocator, CPUS_MAX, Contexts, Locking};

/// Why a pool was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// No allocator of this name.
    UnknownAllocator(String),
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

/// Has options printed by their names.
macro_rules! named {
    ($($option:ident),*) => {$(
        impl fmt::Display for $option {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    )*};
}

named!(Allocator, Contexts, Locking);

impl FromStr for Allocator {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        let found = Self::ALL.into_iter().find(|allocator| allocator.name() == name);
        found.ok_or_else(|| ConfigError::UnknownAllocator(name.to_owned()))
    }
}
