//! Helpers that tests of experiments share.

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
