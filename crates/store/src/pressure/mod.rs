//! How short of memory the machine and the own cgroup are: what tells a store to shrink.
//!
//! [`SystemPressure`] asks the kernel, [`FakePressure`] says what it is told to. What is measured
//! and when it counts as pressure, is said here once:
//!
//! | source | calm | urgent |
//! |:--|:--|:--|
//! | stalls: time of the last 10 s in which a task waited for memory | up to 5 % | from 50 % |
//! | memory that can be had without swapping, of all | from 10 % | up to 2 % |
//! | what is left below the limit of a cgroup, of the limit | from 10 % | up to 2 % |
//!
//! Stalls are those of the machine (`/proc/pressure/memory`) and of the own cgroup
//! (`memory.pressure`), memory is what `/proc/meminfo` says, and limits are those of the own cgroup
//! and of all above it (`memory.max`, or `memory.limit_in_bytes` in version 1).
//!
//! Between calm and urgent, the [`Level`] goes from 0 to 1 in proportion; the tightest source
//! counts. Stalls are the better measure, being what shrinking is to prevent, but not every kernel
//! counts them, a cgroup of version 1 never does, and they come when memory is gone already.
//! Stalls count for as long as they go on: the kernel's average remembers them longer than that,
//! so it is ignored when nobody waited since the last call.
//!
//! A cgroup's usage counts the page cache, too. What of it has not been used for long
//! (`inactive_file`) can be had at once and counts as left.
//!
//! Sources: the kernel's documentation of pressure stall information
//! (`Documentation/accounting/psi.rst`), of `/proc/meminfo` (`filesystems/proc.rst`) and of the
//! memory controllers (`admin-guide/cgroup-v1/memory.rst`, `admin-guide/cgroup-v2.rst`).

mod parse;
mod system;

use std::fmt;

pub use system::{SystemPressure, memory_left};

/// How much memory is wanted back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Level {
    /// There is enough.
    Calm,
    /// There is not, by a measure above 0 and up to 1: at 1, all that can be given up should be.
    Tight(f64),
}

impl Level {
    /// Returns the level of a measure, which may be beyond 0 or 1.
    fn of(measure: f64) -> Self {
        if measure > 0.0 { Self::Tight(measure.min(1.0)) } else { Self::Calm }
    }

    /// Returns the measure, 0 if there is enough.
    pub fn measure(self) -> f64 {
        match self {
            Self::Calm => 0.0,
            Self::Tight(measure) => measure,
        }
    }
}

/// Something that knows how short memory is.
pub trait Pressure: Send + fmt::Debug {
    /// Returns the level now. Meant to be asked every second or so, by one thread.
    fn level(&mut self) -> Level;

    /// Returns what is measured, for people.
    fn source(&self) -> &str;
}

/// A pressure that follows a script.
#[derive(Debug)]
pub struct FakePressure {
    levels: Vec<Level>,
    next: usize,
}

impl FakePressure {
    /// Returns one level of `levels` after the other, and then the last for ever; it is calm if
    /// there are none.
    pub fn new(levels: Vec<Level>) -> Self {
        Self { levels, next: 0 }
    }
}

impl Pressure for FakePressure {
    fn level(&mut self) -> Level {
        let level = self.levels.get(self.next).or(self.levels.last()).copied();
        self.next = (self.next + 1).min(self.levels.len());
        level.unwrap_or(Level::Calm)
    }

    fn source(&self) -> &str {
        "a script"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_ends_with_its_last_level() {
        let mut fake = FakePressure::new(vec![Level::Calm, Level::Tight(0.5)]);
        let levels: Vec<_> = (0..4).map(|_| fake.level().measure()).collect();
        assert_eq!(levels, [0.0, 0.5, 0.5, 0.5]);
        assert_eq!(FakePressure::new(Vec::new()).level(), Level::Calm);
    }

    #[test]
    fn levels_are_above_zero_and_up_to_one() {
        assert_eq!(Level::of(-0.1), Level::Calm);
        assert_eq!(Level::of(0.0), Level::Calm);
        assert_eq!(Level::of(f64::NAN), Level::Calm);
        assert_eq!(Level::of(0.25), Level::Tight(0.25));
        assert_eq!(Level::of(7.0), Level::Tight(1.0));
    }
}
