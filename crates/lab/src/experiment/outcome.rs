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
    /// A project that `build` builds in the place of its own.
    pub project: Option<PathBuf>,
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
    pub(crate) fn with_published(self, published: f64) -> Self {
        Self { published: Some(published), ..self }
    }

    /// Returns it marked as simulated.
    pub(crate) fn simulated(self) -> Self {
        Self { simulated: true, ..self }
    }
}

/// The outcome of an experiment.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Name of the experiment, as on the command line.
    pub experiment: &'static str,
    /// One line: the compared variants.
    pub title: String,
    /// In the order in which tables show them: figures of one metric stand together.
    pub figures: Vec<Figure>,
    /// Times of single calls, each with a name ("zsmalloc load").
    pub histograms: Vec<(String, Latency)>,
    /// Sentences that belong below the table: differences from the document, omitted parts.
    pub remarks: Vec<String>,
}

/// Told what is being run ("class-index, 4 workers, repeat 2 of 5") and the share that is done,
/// from 0 to 1.
pub type Progress<'a> = &'a (dyn Fn(&str, f64) + Sync);

#[cfg(test)]
mod tests {
    use super::*;

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
