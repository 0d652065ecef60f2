//! Helpers that tests of experiments share.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::Experiment;
use crate::experiment::outcome::{Figure, Outcome, Settings};

/// Settings of the smallest experiment.
pub(crate) fn tiny() -> Settings {
    let (scale, repeats, quick, seed) = (0.01, 1, true, 1);
    Settings { scale, repeats, quick, seed, lab: None, zfold: None }
}

/// Held while a test turns swap on, which is the whole machine's.
pub(crate) static ALONE_WITH_SWAP: Mutex<()> = Mutex::new(());

/// Returns the smallest outcome of a named experiment after it has looked at what holds of every
/// one: progress grows; figures are of this experiment and finite, those of one metric together;
/// each published figure stands beside one, unless contestants were left out.
pub(crate) fn outcome(name: &str) -> Outcome {
    let named = Experiment::ALL.into_iter().find(|experiment| experiment.name == name);
    let named = named.expect("its name");
    let told = Mutex::new(Vec::new());
    let tell = |_: &str, share: f64| told.lock().unwrap().push(share);
    let outcome = named.run(&tiny(), &tell).unwrap();
    let told = told.into_inner().unwrap();
    assert!(told.is_sorted() && told[0] == 0.0 && told[told.len() - 1] <= 1.0, "{told:?}");
    for figure in &outcome.figures {
        assert_eq!(figure.experiment, name);
        assert!(figure.value.is_finite() && figure.workers > 0, "{figure:?}");
        assert!(figure.value >= 0.0 || figure.unit == "%", "{figure:?}");
    }
    let mut metrics: Vec<&str> = outcome.figures.iter().map(|f| &*f.metric).collect();
    let distinct = metrics.iter().collect::<BTreeSet<_>>().len();
    metrics.dedup();
    assert_eq!(metrics.len(), distinct, "{metrics:?}");
    if !outcome.remarks.iter().any(|remark| remark.starts_with("SKIPPED: ")) {
        let beside = outcome.figures.iter().filter(|figure| figure.published.is_some());
        assert_eq!(beside.count(), named.published.len(), "each published figure has its place");
    }
    outcome
}

/// Returns the value of a figure.
pub(crate) fn value(outcome: &Outcome, variant: &str, metric: &str) -> f64 {
    let of = |figure: &&Figure| figure.variant == variant && figure.metric == metric;
    let found = outcome.figures.iter().find(of);
    found.unwrap_or_else(|| panic!("no {metric} of {variant}")).value
}
