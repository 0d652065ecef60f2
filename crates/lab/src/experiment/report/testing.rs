//! Outcomes for tests of reports.

use std::time::Duration;

use zfold_compare::latency::Latency;

use crate::experiment::harness::Samples;
use crate::experiment::outcome::{Figure, Outcome};

/// Returns a figure of files per second.
pub(super) fn figure(variant: &str, workers: u32, repeats: &[f64]) -> Figure {
    let mut samples = Samples::default();
    for &value in repeats {
        samples.push(variant, workers, "files <per> second", "1/s", value);
    }
    samples.figures("free", &[]).remove(0)
}

/// Returns an outcome with a base and a variant at 1 and 2 workers, some simulated.
pub(super) fn outcome() -> Outcome {
    let mut calls = Latency::new();
    for ns in [700, 1500, 1600, 9000] {
        calls.record(Duration::from_nanos(ns));
    }
    let simulated = |variant, repeat| Figure { simulated: true, ..figure(variant, 2, &[repeat]) };
    let pages = figure("hierarchical", 1, &[45_678.0]);
    Outcome {
        experiment: "free",
        question: "What do zs_free & <locks> cost?",
        figures: vec![
            Figure {
                published: Some(900.0),
                ..figure("hierarchical", 1, &[1000.0, 1100.5, 1200.0])
            },
            figure("class-index", 1, &[1210.0, 1210.5, 1211.0]),
            simulated("hierarchical", 1000.0),
            simulated("class-index", 2000.0),
            Figure { metric: "pages".to_owned(), unit: "pages", ..pages },
        ],
        histograms: vec![("class-index free".to_owned(), calls)],
        remarks: vec!["Only <two> repeats.".to_owned()],
    }
}
