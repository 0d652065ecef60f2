//! Outcomes for tests of reports.

use std::time::Duration;

use zfold_compare::latency::Latency;

use crate::experiment::outcome::{Figure, Outcome};

/// Returns an outcome with a base and a variant at 1 and 2 workers, some simulated.
pub(super) fn outcome() -> Outcome {
    let figure = |variant, workers, repeats: &[f64]| {
        Figure::measured("free", variant, workers, "files <per> second", "1/s", repeats)
    };
    let mut calls = Latency::new();
    for ns in [700, 1500, 1600, 9000] {
        calls.record(Duration::from_nanos(ns));
    }
    Outcome {
        experiment: "free",
        title: "zs_free with & without the pool's lock".to_owned(),
        figures: vec![
            figure("hierarchical", 1, &[1000.0, 1100.5, 1200.0]).with_published(900.0),
            figure("class-index", 1, &[1210.0, 1210.5, 1211.0]),
            figure("hierarchical", 2, &[1000.0]).simulated(),
            figure("class-index", 2, &[2000.0]).simulated(),
            Figure::measured("free", "hierarchical", 1, "pages", "pages", &[45_678.0]),
        ],
        histograms: vec![("class-index free".to_owned(), calls)],
        remarks: vec!["Only <two> repeats.".to_owned()],
    }
}

/// Returns an outcome of statistics of locks.
pub(super) fn lock_outcome() -> Outcome {
    let figure = |variant, metric, unit, value: f64| {
        Figure::measured("compaction", variant, 4, metric, unit, &[value])
    };
    Outcome {
        experiment: "compaction",
        title: "one compaction at a time".to_owned(),
        figures: vec![
            figure("base", "con-bounces", "count", 2_035_730.0).with_published(7.0),
            figure("patched", "con-bounces", "count", 1_540_066.0),
            figure("base", "waittime-max", "us", 4_004_216.24),
            figure("patched", "waittime-max", "ns", 2_745_220.0),
            figure("base", "elapsed", "s", 133.82),
            figure("patched", "elapsed", "s", 123.63),
        ],
        histograms: Vec::new(),
        remarks: Vec::new(),
    }
}
