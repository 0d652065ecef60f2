//! Experiments on lock designs and compaction: each repeats, in one run on one machine, what one
//! of the documents did that zfold comes from, and puts its published figures beside. Four more
//! drive other programs: [`disk`] compares block devices of compressed memory, [`pageout`],
//! [`calls`] and [`build`] programs whose memory lies compressed.
//!
//! An [`Experiment`] returns an [`Outcome`]: figures, histograms and remarks; a [`report`] is made
//! of these and of the [`machine`]. Base and variant alternate within every repeat, and each run
//! verifies what it stored: a wrong byte ends the experiment with an error.

pub mod allocators;
pub mod build;
pub mod calls;
pub mod compaction;
pub mod disk;
pub mod free;
pub mod lock_stat;
pub mod machine;
pub mod pageout;
pub mod per_cpu_lists;
pub mod pool_lock;
pub mod report;
pub mod scale;

mod content;
mod error;
mod harness;
mod system;
mod turns;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

pub use error::Error;

use crate::latency::Latency;

/// The experiments.
///
/// # Examples
///
/// ```
/// use zfold_lab::experiment::Experiment;
/// assert_eq!("free".parse(), Ok(Experiment::Free));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// See [`pool_lock`].
    PoolLock,
    /// See [`per_cpu_lists`].
    PerCpuLists,
    /// See [`compaction`].
    Compaction,
    /// See [`free`].
    Free,
    /// See [`allocators`].
    Allocators,
    /// See [`lock_stat`].
    LockStat,
    /// See [`scale`].
    Scale,
    /// See [`disk`].
    Disk,
    /// See [`pageout`].
    Pageout,
    /// See [`calls`].
    Calls,
    /// See [`build`].
    Build,
}

impl Experiment {
    /// Every experiment, in the order in which all are run.
    pub const ALL: [Self; 11] = [
        Self::PoolLock,
        Self::PerCpuLists,
        Self::Compaction,
        Self::Free,
        Self::Allocators,
        Self::LockStat,
        Self::Scale,
        Self::Disk,
        Self::Pageout,
        Self::Calls,
        Self::Build,
    ];

    /// Returns the name by which the experiment is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PoolLock => pool_lock::NAME,
            Self::PerCpuLists => per_cpu_lists::NAME,
            Self::Compaction => compaction::NAME,
            Self::Free => free::NAME,
            Self::Allocators => allocators::NAME,
            Self::LockStat => lock_stat::NAME,
            Self::Scale => scale::NAME,
            Self::Disk => disk::NAME,
            Self::Pageout => pageout::NAME,
            Self::Calls => calls::NAME,
            Self::Build => build::NAME,
        }
    }

    /// Returns one line: the question that the experiment answers.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::PoolLock => "What does one lock for all of zsmalloc cost?",
            Self::PerCpuLists => {
                "What do per-CPU lists gain z3fold, and what density do they cost?"
            }
            Self::Compaction => "What does it gain to let only one thread compact at a time?",
            Self::Free => "How much faster is zs_free without the pool's lock?",
            Self::Allocators => "Which of zbud, z3fold and zsmalloc is fastest, which smallest?",
            Self::LockStat => "Which locks are fought over, and how long are they waited for?",
            Self::Scale => "How far does each lock design scale with the cores?",
            Self::Disk => "Which block device of compressed memory serves fastest and holds least?",
            Self::Pageout => "What does it cost to page memory out, fault it in and unmap it?",
            Self::Calls => "What do calls that change an address space cost under zfold run?",
            Self::Build => "How long does a build take whose memory is limited?",
        }
    }

    /// Runs the experiment and returns what it found.
    ///
    /// # Errors
    ///
    /// When memory, a thread or an input cannot be had, or a byte comes back wrong.
    pub fn run(self, settings: &Settings, progress: Progress<'_>) -> Result<Outcome, Error> {
        match self {
            Self::PoolLock => pool_lock::run(settings, progress),
            Self::PerCpuLists => per_cpu_lists::run(settings, progress),
            Self::Compaction => compaction::run(settings, progress),
            Self::Free => free::run(settings, progress),
            Self::Allocators => allocators::run(settings, progress),
            Self::LockStat => lock_stat::run(settings, progress),
            Self::Scale => scale::run(settings, progress),
            Self::Disk => disk::run(settings, progress),
            Self::Pageout => pageout::run(settings, progress),
            Self::Calls => calls::run(settings, progress),
            Self::Build => build::run(settings, progress),
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

/// What all experiments are told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Share of the published experiment's size, 1.0 being the size that suits this machine.
    pub scale: f64,
    /// Repeats of every variant.
    pub repeats: u32,
    /// Finish in under 20 s ([`disk`], [`build`]: a minute), whatever that does to the figures'
    /// precision.
    pub quick: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// The zfold program, for experiments that start it; `None`: these are left out.
    pub program: Option<PathBuf>,
    /// A project that [`build`] builds in the place of its own.
    pub project: Option<PathBuf>,
}

/// One figure: the median of what was measured, or simulated, in the repeats.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name of the experiment, as on the command line.
    pub experiment: &'static str,
    /// Lock design, allocator or other contestant.
    pub variant: String,
    /// Threads at work, or cores of the simulated machine.
    pub workers: u32,
    /// What the figure is of.
    pub metric: String,
    /// Unit of all numbers.
    pub unit: &'static str,
    /// Median of the repeats.
    pub value: f64,
    /// Smallest of the repeats.
    pub min: f64,
    /// Largest of the repeats.
    pub max: f64,
    /// Number of repeats.
    pub repeats: u32,
    /// The document's figure, if it has one; of another machine.
    pub published: Option<f64>,
    /// Whether a simulator made the figure.
    pub simulated: bool,
    /// Mean of the repeats.
    #[serde(skip)]
    pub mean: f64,
    /// Standard deviation of the repeats (of a sample; 0 for one repeat).
    #[serde(skip)]
    pub stddev: f64,
}

impl Figure {
    /// Returns the figure of one metric from its repeats, at least one.
    ///
    /// # Panics
    /// If `repeats` is empty.
    pub fn measured(
        experiment: &'static str,
        variant: impl Into<String>,
        workers: u32,
        metric: impl Into<String>,
        unit: &'static str,
        repeats: &[f64],
    ) -> Self {
        let mut sorted = repeats.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            experiment,
            variant: variant.into(),
            workers,
            metric: metric.into(),
            unit,
            value: f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]),
            min: sorted[0],
            max: sorted[count - 1],
            repeats: count as u32,
            published: None,
            simulated: false,
            mean,
            stddev: (squares / (count - 1).max(1) as f64).sqrt(),
        }
    }

    /// Returns it with the document's figure beside it.
    #[must_use]
    pub fn with_published(self, published: f64) -> Self {
        Self { published: Some(published), ..self }
    }

    /// Returns it marked as simulated.
    #[must_use]
    pub fn as_simulated(self) -> Self {
        Self { simulated: true, ..self }
    }
}

/// What an experiment found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Name of the experiment, as on the command line.
    pub experiment: &'static str,
    /// One line: what was compared.
    pub title: String,
    /// In the order in which tables show them: figures of one metric stand together.
    pub figures: Vec<Figure>,
    /// Times of single calls, each with the name of what was timed ("zsmalloc load").
    pub histograms: Vec<(String, Latency)>,
    /// Sentences that belong below the table: what differs from the document, what was left out.
    pub remarks: Vec<String>,
}

/// Told what is being run ("class-index, 4 workers, repeat 2 of 5") and the share that is done,
/// from 0 to 1.
pub type Progress<'a> = &'a (dyn Fn(&str, f64) + Sync);

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
             free, allocators, lockstat, scale, disk, pageout, calls, build)"
        );
    }

    #[test]
    fn a_figure_is_the_median_with_its_spread() {
        let figure = |repeats: &[f64]| Figure::measured("free", "x", 1, "time", "ms", repeats);
        let odd = figure(&[3.0, 1.0, 2.0]);
        assert_eq!((odd.value, odd.min, odd.max, odd.repeats), (2.0, 1.0, 3.0, 3));
        assert_eq!((odd.mean, odd.stddev), (2.0, 1.0));
        assert_eq!(figure(&[1.0, 2.0]).value, 1.5);
        assert_eq!(figure(&[4.0]).stddev, 0.0);
    }
}
