//! The experiments by name: which there are, what each asks, and how it is run.

use std::fmt;
use std::str::FromStr;

use crate::experiment::error::Error;
use crate::experiment::outcome::{Figure, Outcome, Progress, Settings};
use crate::{
    allocators, build, calls, compaction, density, disk, free, limits, lock_stat, pageout,
    per_cpu_lists, pool_lock, scale, writeback,
};

/// The experiments.
///
/// # Examples
///
/// ```
/// use zfold_lab::Experiment;
/// assert_eq!("free".parse(), Ok(Experiment::Free));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// See [`crate::pool_lock`].
    PoolLock,
    /// See [`crate::per_cpu_lists`].
    PerCpuLists,
    /// See [`crate::compaction`].
    Compaction,
    /// See [`crate::free`].
    Free,
    /// See [`crate::allocators`].
    Allocators,
    /// See [`crate::writeback`].
    Writeback,
    /// See [`crate::lock_stat`].
    LockStat,
    /// See [`crate::scale`].
    Scale,
    /// See [`crate::density`].
    Density,
    /// See [`crate::disk`].
    Disk,
    /// See [`crate::pageout`].
    Pageout,
    /// See [`crate::calls`].
    Calls,
    /// See [`crate::build`].
    Build,
    /// See [`crate::limits`].
    Limits,
}

impl Experiment {
    /// Every experiment, in the order in which all are run.
    pub const ALL: [Self; 14] = [
        Self::PoolLock,
        Self::PerCpuLists,
        Self::Compaction,
        Self::Free,
        Self::Allocators,
        Self::Writeback,
        Self::LockStat,
        Self::Scale,
        Self::Density,
        Self::Disk,
        Self::Pageout,
        Self::Calls,
        Self::Build,
        Self::Limits,
    ];

    /// Returns the name by which the experiment is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PoolLock => pool_lock::NAME,
            Self::PerCpuLists => per_cpu_lists::NAME,
            Self::Compaction => compaction::NAME,
            Self::Free => free::NAME,
            Self::Allocators => allocators::NAME,
            Self::Writeback => writeback::NAME,
            Self::LockStat => lock_stat::NAME,
            Self::Scale => scale::NAME,
            Self::Density => density::NAME,
            Self::Disk => disk::NAME,
            Self::Pageout => pageout::NAME,
            Self::Calls => calls::NAME,
            Self::Build => build::NAME,
            Self::Limits => limits::NAME,
        }
    }

    /// Returns one line: the question that the experiment answers.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::PoolLock => "What does one lock for all of zsmalloc cost?",
            Self::PerCpuLists => {
                "What does z3fold gain from per-CPU lists, and what density do they cost?"
            }
            Self::Compaction => "What is gained if only one thread compacts at a time?",
            Self::Free => "How much faster is zs_free without the pool's lock?",
            Self::Allocators => "Which of zbud, z3fold and zsmalloc is fastest, which smallest?",
            Self::Writeback => "Who should choose what leaves a full pool, the pool or its owner?",
            Self::LockStat => "Which locks are contended, and how long do threads wait for them?",
            Self::Scale => "How far does each lock design scale with the cores?",
            Self::Density => "What do the same pages take in the kernel's zram and in stores?",
            Self::Disk => "Which block device of compressed memory serves fastest and holds least?",
            Self::Pageout => "What does it cost to page memory out, fault it in and unmap it?",
            Self::Calls => "What do calls that change an address space cost under zfold run?",
            Self::Build => "How long does a build with limited memory take?",
            Self::Limits => "How low can a limit be before a program mostly waits for its pages?",
        }
    }

    /// Runs the experiment and returns what it found.
    ///
    /// # Errors
    ///
    /// When memory, a thread or an input cannot be had, or a byte comes back wrong.
    pub fn run(self, settings: &Settings, progress: Progress<'_>) -> Result<Outcome, Error> {
        self.run_in_parts(settings, progress, &mut |_| ())
    }

    /// Returns what will be measured one after the other, each with its own table, if it is that
    /// much.
    pub const fn parts(self) -> Option<&'static str> {
        match self {
            Self::Disk => Some(disk::PARTS),
            _ => None,
        }
    }

    /// Runs the experiment as [`run`](Self::run) does, and tells `part` figures that are complete
    /// before the others are, if the experiment has [`parts`](Self::parts).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_in_parts(
        self,
        settings: &Settings,
        progress: Progress<'_>,
        part: &mut dyn FnMut(&[Figure]),
    ) -> Result<Outcome, Error> {
        match self {
            Self::PoolLock => pool_lock::run(settings, progress),
            Self::PerCpuLists => per_cpu_lists::run(settings, progress),
            Self::Compaction => compaction::run(settings, progress),
            Self::Free => free::run(settings, progress),
            Self::Allocators => allocators::run(settings, progress),
            Self::Writeback => writeback::run(settings, progress),
            Self::LockStat => lock_stat::run(settings, progress),
            Self::Scale => scale::run(settings, progress),
            Self::Density => density::run(settings, progress),
            Self::Disk => disk::run(settings, progress, part),
            Self::Pageout => pageout::run(settings, progress),
            Self::Calls => calls::run(settings, progress),
            Self::Build => build::run(settings, progress),
            Self::Limits => limits::run(settings, progress),
        }
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Experiment {
    type Err = UnknownExperiment;

    fn from_str(name: &str) -> Result<Self, UnknownExperiment> {
        let found = Self::ALL.into_iter().find(|experiment| experiment.name() == name);
        found.ok_or_else(|| UnknownExperiment(name.to_owned()))
    }
}

/// No experiment has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownExperiment(pub String);

impl fmt::Display for UnknownExperiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let choices = Experiment::ALL.map(Experiment::name).join(", ");
        write!(f, "unknown experiment '{}' (choices: {choices})", self.0)
    }
}

impl std::error::Error for UnknownExperiment {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_wrong_ones_answered_with_the_choices() {
        for experiment in Experiment::ALL {
            assert_eq!(experiment.to_string().parse(), Ok(experiment));
        }
        assert_eq!(
            "pool_lock".parse::<Experiment>().expect_err("unknown").to_string(),
            "unknown experiment 'pool_lock' (choices: pool-lock, per-cpu-lists, compaction, \
             free, allocators, writeback, lockstat, scale, density, disk, pageout, calls, build, \
             limits)"
        );
    }
}
