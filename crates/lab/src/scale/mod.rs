//! Scale: every lock design on 1 to 128 cores, simulated from what this machine measures.
//!
//! 1. Measured here: every design with one thread and with two, and the simulator's input.
//! 2. Simulated: the same on up to 128 cores in clusters of four. For one core and two the
//!    simulation stands beside the measurement, with its error.
//! 3. Simulated beside published figures: fio on z3fold with one list and with per-CPU lists, a
//!    kernel build on zsmalloc with one lock and with class locks, compaction by many contexts and
//!    by one.
//!
//! The remarks of the outcome name every parameter that is assumed rather than measured.

mod bench;
mod given;
mod host;
mod measured;
mod objects;
mod pace;
mod profile;
mod remarks;
mod sample;
mod watch;
mod worker;

pub use given::NAME;

use bench::Bench;
use measured::{Effort, Measured};
use remarks::remarks;

use crate::experiment::{Error, Outcome, Progress, Settings};

/// Measures this machine and simulates larger ones.
///
/// # Errors
/// [`Error`] if a pool refuses an object, returns wrong bytes, or a thread cannot be started.
pub fn run(settings: &Settings, progress: Progress<'_>) -> Result<Outcome, Error> {
    let effort = Effort::new(settings);
    let measured = Measured::new(settings, &effort, progress)?;
    let seed = settings.seed;
    let mut bench = Bench { measured: &measured, effort, seed, figures: Vec::new() };
    progress("simulating 1 to 128 cores", 0.8);
    bench.throughput();
    bench.remote_frees();
    bench.prediction_errors();
    progress("simulating published machines", 0.9);
    let randrw = bench.randrw();
    let build_ns = bench.build();
    let compaction_ns = bench.compaction();
    progress("done", 1.0);
    Ok(Outcome {
        experiment: NAME,
        title: "lock designs on 1 to 128 cores, simulated from measurements of this machine"
            .to_owned(),
        figures: bench.figures,
        histograms: Vec::new(),
        remarks: remarks(&measured, randrw, build_ns, compaction_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::given::*;
    use super::*;
    use crate::experiment::harness::testing::tiny;

    #[test]
    fn all_figures_are_there() {
        let settings = Settings { scale: 1.0, ..tiny() };
        let outcome = run(&settings, &|_, done| assert!((0.0..=1.0).contains(&done)));
        let outcome = outcome.expect("an outcome");
        let found = |metric: &str, variant: &str, workers: u32, simulated: bool| {
            let mut of = outcome.figures.iter().filter(|figure| {
                (&*figure.metric, &*figure.variant) == (metric, variant)
                    && (figure.workers, figure.simulated) == (workers, simulated)
            });
            let figure = of.next().unwrap_or_else(|| panic!("{metric} of {variant}, {workers}"));
            assert!(of.next().is_none(), "{metric} of {variant}, {workers} twice");
            assert!(figure.value.is_finite(), "{figure:?}");
            figure.published
        };
        for design in [
            "zsmalloc hierarchical",
            "zsmalloc pool-lock",
            "zsmalloc class-index",
            "zsmalloc per-cpu",
            "z3fold pool-lock",
            "z3fold per-cpu",
            "fit pool-lock",
            "fit per-cpu",
        ] {
            for workers in MEASURED {
                found(THROUGHPUT, design, workers, false);
                found("prediction error", design, workers, true);
            }
            CORES.iter().for_each(|&cores| _ = found(THROUGHPUT, design, cores, true));
        }
        assert_eq!(found("randrw read", "z3fold pool-lock", 4, true), Some(496_883.0));
        assert_eq!(found("randrw read", "z3fold pool-lock", 8, true), Some(265_942.0));
        let lists = found("randrw read", "z3fold per-cpu", 8, true);
        assert_eq!(lists.map(f64::round), Some(1_605_939.0));
        assert_eq!(found("contentions", "concurrent", 72, true), Some(2_343_871.0));
        assert_eq!(found("contentions", "single", 72, true), Some(1_774_348.0));
        let fall = found("fall in contentions", "single", 72, true);
        assert!(fall.is_some_and(|fall| (fall - 24.3).abs() < 0.05), "{fall:?}");
        let classes = found(BUILD_METRIC, "zsmalloc hierarchical", 32, true);
        assert!(classes.is_some_and(|times| (times - 1.255).abs() < 0.001), "{classes:?}");
        assert!(outcome.remarks.iter().any(|remark| remark.starts_with("Assumed: ")));
    }
}
