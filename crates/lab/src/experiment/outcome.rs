//! The input of an experiment and its outcome.

use std::path::PathBuf;

use serde::Serialize;
use zfold_compare::latency::Latency;

/// The input of all experiments.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Share of the published experiment's size, 1.0 being the size that suits this machine.
    pub scale: f64,
    /// Repeats of every variant.
    pub repeats: u32,
    /// Finish in under 20 s (`build`: a minute), whatever that does to the figures' precision.
    pub quick: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// The program `zfold-lab`, for experiments that start it as a workload; `None`: these are left
    /// out.
    pub lab: Option<PathBuf>,
    /// The program `zfold`, for those that start it; `None`: what needs it is left out.
    pub zfold: Option<PathBuf>,
}

/// One figure: the median of the measured or simulated values of the repeats.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name of the experiment, as on the command line.
    pub experiment: &'static str,
    /// Lock design, allocator or other contestant.
    pub variant: String,
    /// Threads at work, or cores of the simulated machine.
    pub workers: u32,
    /// The subject of the figure.
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
}

/// The outcome of an experiment.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Name of the experiment, as on the command line.
    pub experiment: &'static str,
    /// One line: the question that it answers.
    pub question: &'static str,
    /// In the order in which tables show them: figures of one metric stand together.
    pub figures: Vec<Figure>,
    /// Times of single calls, each with a name ("zsmalloc load").
    pub histograms: Vec<(String, Latency)>,
    /// Sentences that belong below the table: omitted contestants, assumptions.
    pub remarks: Vec<String>,
}

/// Told what is being run ("class-index, 4 workers, repeat 2 of 5") and the share that is done,
/// from 0 to 1.
pub type Progress<'a> = &'a (dyn Fn(&str, f64) + Sync);
