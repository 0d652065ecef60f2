//! Helpers that tests of experiments share.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::experiment::harness::samples::Published;
use crate::experiment::outcome::{Figure, Outcome, Settings};

/// Settings of the smallest experiment.
pub(crate) fn tiny() -> Settings {
    let (scale, repeats, quick, seed) = (0.01, 1, true, 1);
    Settings { scale, repeats, quick, seed, lab: None, zfold: None, project: None }
}

/// Returns what a test holds while it turns swap on, which is the whole machine's.
pub(crate) fn alone_with_swap() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asserts what holds of every outcome: figures of `experiment` only, finite, not negative,
/// those of one metric together, and all of `published` among them.
pub(crate) fn check_outcome(outcome: &Outcome, experiment: &str, published: &[Published]) {
    assert_eq!(outcome.experiment, experiment);
    assert!(!outcome.title.is_empty() && !outcome.figures.is_empty());
    for figure in &outcome.figures {
        assert_eq!((figure.experiment, figure.repeats), (experiment, 1));
        assert!(figure.value.is_finite() && figure.value >= 0.0, "{figure:?}");
        assert!(figure.workers > 0 && !figure.simulated, "{figure:?}");
    }
    let mut metrics: Vec<&str> = outcome.figures.iter().map(|f| &*f.metric).collect();
    let distinct = metrics.iter().collect::<BTreeSet<_>>().len();
    metrics.dedup();
    assert_eq!(metrics.len(), distinct, "{metrics:?}");
    for (variant, workers, metric, value) in published {
        let of = |f: &&Figure| f.variant == *variant && f.metric == *metric;
        let found = outcome.figures.iter().filter(of).find(|f| f.workers == *workers);
        let found = found.unwrap_or_else(|| panic!("{variant}, {workers}, {metric}"));
        assert_eq!(found.published, Some(*value));
    }
    let beside = outcome.figures.iter().filter(|figure| figure.published.is_some());
    assert_eq!(beside.count(), published.len());
}

/// Asserts that an outcome has no figures and names all sides of a part as left out.
pub(crate) fn check_left_out(outcome: &Outcome, part: &str, sides: &[impl Display]) {
    assert!(outcome.figures.is_empty());
    for side in sides {
        let skipped = format!("SKIPPED: {part}, {side}: ");
        let named = outcome.remarks.iter().any(|remark| remark.starts_with(&skipped));
        assert!(named, "{skipped}: {:?}", outcome.remarks);
    }
}

/// Returns the value of a figure.
pub(crate) fn value(outcome: &Outcome, variant: &str, metric: &str) -> f64 {
    let of = |figure: &&Figure| figure.variant == variant && figure.metric == metric;
    let found = outcome.figures.iter().find(of);
    found.unwrap_or_else(|| panic!("no {metric} of {variant}")).value
}
