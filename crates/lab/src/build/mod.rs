//! A build whose memory is limited: how long it takes when part of that lies compressed.
//!
//! After "Analyzing zpool allocators / Removing zbud and z3fold" (2024): a kernel is built in a
//! memory cgroup, swapped by zswap over each of the three allocators; build times, latencies and
//! the largest pool are told. Here a C project is built by make under `zfold run` with each
//! allocator, under the kernel's zram and zswap at the same limits, and without a limit. Limits
//! are shares of the memory that the build takes when nothing limits it, which is measured first.
//!
//! Every object file must be the same after each build. Whatever is missing is left out, and a
//! remark says so and why. There is no turn for warming up but the build that is measured first.

mod bench;
pub(crate) mod project;
mod side;

use crate::experiment::harness::turns::{Fault, Found, in_turns};
use crate::experiment::harness::{Published, Samples};
use crate::experiment::{Error, Outcome, Progress, Settings};
pub use bench::NAME;
use bench::{Bench, JOBS};
use side::{Built, LIMITS, Variant, variants};

/// Sides that hold no pages compressed.
const POOL: &str = "maximum pool size";

const PUBLISHED: [Published; 12] = [
    ("zfold run zsmalloc, 45 %", JOBS, "real", 111.304),
    ("zfold run zbud, 45 %", JOBS, "real", 108.738),
    ("zfold run z3fold, 45 %", JOBS, "real", 114.642),
    ("zfold run zsmalloc, 45 %", JOBS, "user", 2850.116),
    ("zfold run zbud, 45 %", JOBS, "user", 2842.952),
    ("zfold run z3fold, 45 %", JOBS, "user", 2868.208),
    ("zfold run zsmalloc, 45 %", JOBS, "sys", 6936.414),
    ("zfold run zbud, 45 %", JOBS, "sys", 6688.184),
    ("zfold run z3fold, 45 %", JOBS, "sys", 7243.930),
    ("zfold run zsmalloc, 45 %", JOBS, POOL, 1_137_659_904.0),
    ("zfold run zbud, 45 %", JOBS, POOL, 1_535_741_952.0),
    ("zfold run z3fold, 45 %", JOBS, POOL, 1_151_303_680.0),
];

/// Returns the limits, in percent: only the tightest if the experiment should be quick.
fn limits(bench: &Bench<'_>) -> &'static [u32] {
    if bench.settings.quick { &LIMITS[LIMITS.len() - 1..] } else { &LIMITS }
}

/// Runs the experiment.
///
/// # Errors
/// [`Error`] when an object file differs, a build fails under `zfold run`, or a project that was
/// given cannot be built without a limit; not when something else is missing. Swap, devices and
/// cgroups are gone afterwards, even if this process is killed.
pub fn run(settings: &Settings, progress: Progress<'_>) -> Result<Outcome, Error> {
    let (bench, mut found) = (Bench::new(settings)?, Found::nothing());
    progress("the memory that it takes", 0.0);
    let peak_bytes = match side::reference(&bench) {
        Ok(reference) => {
            let tell = |what: &str, share: f64| progress(what, 0.05 + share * 0.95);
            in_turns(
                settings,
                ("build", &tell),
                &variants(limits(&bench)),
                &mut found,
                |variant, _, samples| {
                    let built = side::run(&bench, *variant, &reference)?;
                    note(variant, built, samples);
                    Ok(())
                },
            )?;
            Some(reference.peak_bytes)
        }
        // Its own project may be left out; one that was asked for may not.
        Err(Fault::Missing(reason)) if settings.project.is_some() => {
            return Err(Error::Other(format!("the project cannot be built: {reason}")));
        }
        Err(Fault::Missing(reason)) => {
            found.notes.push(format!("SKIPPED: all builds: {reason}."));
            None
        }
        Err(Fault::Failed(error)) => return Err(error),
    };
    let published: &[Published] = if settings.project.is_none() { &PUBLISHED } else { &[] };
    let title = "a build whose memory is limited: zfold run beside the kernel's swap";
    Ok(found.outcome(NAME, title, published, remarks(&bench, peak_bytes)))
}

/// Adds what a build took.
fn note(variant: &Variant, built: Built, samples: &mut Samples) {
    let name = variant.to_string();
    let mut push = |metric: &str, unit, value| samples.push(&name, JOBS, metric, unit, value);
    push("real", "s", built.cost.real);
    push("user", "s", built.cost.user);
    push("sys", "s", built.cost.sys);
    if let Some(bytes) = built.pool_bytes {
        push(POOL, "bytes", bytes as f64);
    }
    if let Some(bytes) = built.resident_bytes {
        push("peak of resident anonymous memory", "MiB", bytes as f64 / f64::from(1 << 20));
    }
    let Some(faults) = built.faults else { return };
    let summary = faults.summary();
    push("faults", "count", faults.count() as f64);
    push("fault p50", "us", summary.p50 as f64 / 1e3);
    push("fault p99", "us", summary.p99 as f64 / 1e3);
    samples.times(format!("{name}, fault"), &faults);
}

fn remarks(bench: &Bench<'_>, peak_bytes: Option<u64>) -> Vec<String> {
    let mut remarks = Vec::new();
    let what = match &bench.settings.project {
        Some(_) => "a copy of the given project".to_owned(),
        None => format!("a generated project of {} C files with one large header", bench.files),
    };
    remarks.push(format!(
        "Workers are jobs of make -j{JOBS}, which builds {what}. The object files and archives of \
         every build were the same."
    ));
    if let Some(bytes) = peak_bytes {
        let limits = limits(bench).iter().map(|&percent| {
            format!("{percent} % of it, {} MiB", side::share(bytes, percent) >> 20)
        });
        remarks.push(format!(
            "Without a limit the build had up to {} MiB of anonymous memory; the limits are {}. \
             zfold run limits anonymous memory, a cgroup also the page cache, which it drops \
             first, and tables of the kernel.",
            bytes >> 20,
            limits.collect::<Vec<_>>().join(", and "),
        ));
    }
    remarks.push(
        "Real, user and sys times are of make and all its descendants, and of zfold's manager; \
         user and sys in steps of 10 ms. The pool is the largest that zfold tells, metadata \
         included; zram's mem_used_total or zswap's pool, looked at every 10 ms."
            .to_owned(),
    );
    remarks.push(
        "Fault latencies are zfold's, from the kernel's message to its answer; those of the \
         kernel's swap would need probes in it, and are left out. Published are means of a kernel \
         build on another machine, whose loads from zswap mostly took 8 to 32 us."
            .to_owned(),
    );
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::{alone_with_swap, tiny};

    #[test]
    fn a_small_project_is_built_or_the_reason_is_told() {
        let _alone = alone_with_swap();
        let outcome = run(&tiny(), &|_, _| ()).unwrap();
        let skipped = |what: &str| outcome.remarks.iter().any(|remark| remark.starts_with(what));
        if skipped("SKIPPED: all builds") {
            eprintln!("{:?}", outcome.remarks);
            return;
        }
        let real = outcome.figures.iter().find(|figure| figure.metric == "real").unwrap();
        assert_eq!((&*real.variant, real.workers), ("unlimited", JOBS));
        assert!(real.value > 0.0);
        for variant in variants(&LIMITS[1..]).iter().filter(|variant| variant.needs_zfold()) {
            assert!(skipped(&format!("SKIPPED: build, {variant}: ")), "{variant}");
        }
    }

    #[test]
    fn every_published_figure_has_its_variant() {
        for (name, ..) in PUBLISHED {
            assert!(variants(&LIMITS).iter().any(|variant| variant.to_string() == name), "{name}");
        }
    }

    #[test]
    fn a_given_project_must_be_there() {
        let settings = Settings { project: Some("/no/such/project".into()), ..tiny() };
        let error = run(&settings, &|_, _| ()).unwrap_err().to_string();
        assert!(error.contains("/no/such/project"), "{error}");
    }
}
