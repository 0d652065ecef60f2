//! A build whose memory is limited: how long it takes when part of that lies compressed.
//!
//! After "Analyzing zpool allocators / Removing zbud and z3fold" (2024): a kernel is built in a
//! memory cgroup, swapped by zswap over each of the three allocators; build times, latencies and
//! the largest pool are told. Here a C project is built by make under `zfold run` with each
//! allocator, under the kernel's zram at the same limits, and without a limit. Limits are shares of
//! the memory that the build takes when nothing limits it, which is measured first.
//!
//! Every object file must be the same after each build.

mod project;

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use zfold_compare::latency::Latency;

use crate::experiment::harness::{Cost, Published, Samples, alternate_programs, sized};
use crate::experiment::system::cgroup::Cgroup;
use crate::experiment::system::child::{self, Ended, last_line};
use crate::experiment::system::cleanup::folder;
use crate::experiment::system::zram::ZramSwap;
use crate::experiment::{Error, Progress, Settings};
use project::{Objects, Project};

/// Name of the experiment.
pub(crate) const NAME: &str = "build";

/// Compilers that run at the same time.
const JOBS: u32 = 4;
/// Limits in percent of the memory that the build takes without one; only the last if quick.
const LIMITS: [u32; 2] = [60, 45];
/// The exit status of `zfold run` if it could not run the program.
const NOT_RUN: i32 = 125;
const POOL: &str = "maximum pool size";

pub(crate) const PUBLISHED: [Published; 12] = [
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

/// Who keeps a limit, and which, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Unlimited,
    /// The kernel in a cgroup, by swap to zram.
    Zram(u32),
    /// `zfold run` with an allocator.
    Run(&'static str, u32),
}

/// Returns the variants; the build without a limit comes first, as the base.
fn variants(limits: &[u32]) -> Vec<Variant> {
    let mut variants = vec![Variant::Unlimited];
    for &limit in limits {
        variants.push(Variant::Zram(limit));
        let allocators = ["zsmalloc", "z3fold", "zbud"];
        variants.extend(allocators.map(|allocator| Variant::Run(allocator, limit)));
    }
    variants
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Zram(limit) => write!(f, "zram lz4, {limit} %"),
            Self::Run(allocator, limit) => write!(f, "zfold run {allocator}, {limit} %"),
        }
    }
}

/// Runs the experiment.
///
/// # Errors
/// [`Error`] when an object file differs or a build fails under `zfold run`; not when something is
/// missing.
pub(crate) fn run(
    settings: &Settings,
    progress: Progress<'_>,
    samples: &mut Samples,
) -> Result<(), Error> {
    // One folder for all builds, since objects may name it.
    let (folder, _cleanup) = folder()?;
    let project = Project::new(sized(settings, 60, 4), settings.seed, folder.join("project"));
    progress("the memory that it takes", 0.0);
    let reference = match Reference::measure(&project) {
        Err(Error::Missing(reason)) => {
            samples.remarks.push(format!("SKIPPED: all builds: {reason}."));
            return Ok(());
        }
        measured => measured?,
    };
    let bench = Bench { settings, folder, project, reference };
    let limits = if settings.quick { &LIMITS[LIMITS.len() - 1..] } else { &LIMITS };
    let tell = |what: &str, share: f64| progress(what, 0.05 + share * 0.95);
    alternate_programs(settings, &tell, &variants(limits), samples, |variant, _, samples| {
        let name = &variant.to_string();
        bench.project.unpack()?;
        let (cost, metrics) = match *variant {
            Variant::Unlimited => {
                let ended = child::watch(&mut make(&bench.project, Command::new), |_| None)?;
                (succeeded(ended)?.cost, Vec::new())
            }
            Variant::Zram(limit) => bench.swapped(limit)?,
            Variant::Run(allocator, limit) => bench.under_zfold(allocator, limit)?,
        };
        compare(name, &bench.reference.objects, &bench.project.objects()?)?;
        samples.cost(name, JOBS, cost);
        for (metric, unit, value) in metrics {
            samples.push(name, JOBS, metric, unit, value);
        }
        Ok(())
    })
}

/// Returns a command that builds the project; `command` runs a program.
fn make(project: &Project, command: impl FnOnce(&'static OsStr) -> Command) -> Command {
    let mut command = command("make".as_ref());
    command.args(["-s", &format!("-j{JOBS}"), "-C"]).arg(project.folder());
    command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env("LC_ALL", "C");
    command
}

/// The build that nothing limits.
struct Reference {
    /// Most anonymous memory that it had.
    peak_bytes: u64,
    /// Its result.
    objects: Objects,
}

impl Reference {
    /// Builds the project without a limit, looking at its memory.
    ///
    /// # Errors
    /// [`Error::Missing`] if it cannot be built here.
    fn measure(project: &Project) -> Result<Self, Error> {
        project.unpack()?;
        child::run(Command::new("make").arg("--version"))?;
        let ended = child::watch(&mut make(project, Command::new), child::anonymous_bytes)?;
        if !ended.status.success() {
            let reason = last_line(&ended.complaint);
            return Err(Error::Missing(format!("the project cannot be built: {reason}")));
        }
        Ok(Self { peak_bytes: ended.peak, objects: project.objects()? })
    }

    /// Returns a limit in bytes, in whole pages.
    fn share(&self, percent: u32) -> u64 {
        (self.peak_bytes * u64::from(percent) / 100) & !0xfff
    }
}

/// What a build took: its cost, and metrics with unit and value.
type Built = (Cost, Vec<(&'static str, &'static str, f64)>);

/// The part that all builds share.
struct Bench<'a> {
    settings: &'a Settings,
    /// Where reports are written; of its owner only.
    folder: PathBuf,
    project: Project,
    reference: Reference,
}

impl Bench<'_> {
    /// Builds in a cgroup of the kernel with swap to zram.
    fn swapped(&self, limit: u32) -> Result<Built, Error> {
        // Room for all of it, and for what a kernel keeps there although it has been read.
        let swap = ZramSwap::on(2 * self.reference.peak_bytes + (64 << 20), "lz4")?;
        let cgroup = Cgroup::limited(self.reference.share(limit))?;
        let mut command = make(&self.project, |make| cgroup.command(make));
        let ended = succeeded(child::watch(&mut command, |_| swap.used_bytes())?)?;
        Ok((ended.cost, vec![(POOL, "bytes", ended.peak as f64)]))
    }

    /// Builds under `zfold run`.
    fn under_zfold(&self, allocator: &str, limit: u32) -> Result<Built, Error> {
        let (limit_bytes, path) = (self.reference.share(limit), self.folder.join("report.json"));
        let options = ["--allocator", allocator, "--report=json", "--report-file"];
        let options: Vec<&OsStr> =
            options.iter().map(OsStr::new).chain([path.as_os_str()]).collect();
        let command = child::under_zfold(self.settings, limit_bytes, &options, "make".as_ref())?;
        let ended = child::watch(&mut make(&self.project, |_| command), |_| None)?;
        let reason = last_line(&ended.complaint);
        match ended.status.code() {
            Some(0) => Ok((ended.cost, read_report(&path)?)),
            Some(NOT_RUN) => Err(Error::Missing(reason)),
            _ => {
                let line = format!("the build fails under zfold run {allocator}: {reason}");
                Err(Error::Other(line))
            }
        }
    }
}

/// Returns a build under the kernel's limit, if it has succeeded.
fn succeeded(ended: Ended) -> Result<Ended, Error> {
    if ended.status.success() {
        return Ok(ended);
    }
    let reason = last_line(&ended.complaint);
    Err(Error::Missing(format!("the build fails, which the first did not: {reason}")))
}

/// Returns the metrics in the report of a run that has ended.
fn read_report(path: &Path) -> Result<Vec<(&'static str, &'static str, f64)>, Error> {
    let found = metrics(&std::fs::read_to_string(path)?);
    found.ok_or_else(|| Error::Other("the report of a run lacks a field".to_owned()))
}

fn metrics(report: &str) -> Option<Vec<(&'static str, &'static str, f64)>> {
    let report: Value = serde_json::from_str(report).ok()?;
    let number = |name: &str| report.get(name)?.as_f64();
    let mut faults = Latency::new();
    for bucket in report.get("fault_histogram_ns")?.as_array()? {
        // A bound is not in its bucket.
        let longest = bucket.get(0)?.as_u64()?.checked_sub(1)?;
        faults.record_many(Duration::from_nanos(longest), bucket.get(1)?.as_u64()?);
    }
    let resident = number("peak_resident_bytes")? / f64::from(1 << 20);
    Some(vec![
        (POOL, "bytes", number("peak_stored_bytes")?),
        ("peak of resident anonymous memory", "MiB", resident),
        ("faults", "count", faults.count() as f64),
        ("fault p50", "us", faults.summary().p50 as f64 / 1e3),
        ("fault p99", "us", faults.summary().p99 as f64 / 1e3),
    ])
}

/// Returns whether two builds made the same.
fn compare(variant: &str, expected: &Objects, found: &Objects) -> Result<(), Error> {
    for name in expected.keys().chain(found.keys()) {
        if expected.get(name) != found.get(name) {
            let what = format!("{variant}: {} is another", name.display());
            return Err(Error::WrongBytes { experiment: NAME, what });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::{ALONE_WITH_SWAP, outcome};

    #[test]
    fn a_small_project_is_built_or_the_reason_is_told() {
        let _alone = ALONE_WITH_SWAP.lock();
        let outcome = outcome(NAME);
        let skipped = |what: &str| outcome.remarks.iter().any(|remark| remark.starts_with(what));
        if skipped("SKIPPED: all builds") {
            return zfold_testing::skip(format!("{:?}", outcome.remarks));
        }
        let real = outcome.figures.iter().find(|figure| figure.metric == "real").unwrap();
        assert_eq!((&*real.variant, real.workers), ("unlimited", JOBS));
        assert!(real.value > 0.0);
        for allocator in ["zsmalloc", "z3fold", "zbud"] {
            assert!(skipped(&format!("SKIPPED: zfold run {allocator}, 45 %: ")), "{allocator}");
        }
    }

    #[test]
    fn variants_have_names_of_their_own_and_published_figures_a_variant() {
        let mut names: Vec<String> = variants(&LIMITS).iter().map(ToString::to_string).collect();
        assert_eq!((names.len(), &*names[0]), (9, "unlimited"));
        assert!(PUBLISHED.iter().all(|(name, ..)| names.contains(&(*name).to_owned())));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 9);
    }

    #[test]
    fn the_report_of_a_run_is_read_and_limits_are_shares_in_whole_pages() {
        let text = r#"{
            "schema": "zfold.run/1", "exit": {"code": 0}, "wall_ns": 5, "faults": 7,
            "peak_resident_bytes": 1048576, "peak_stored_bytes": 700,
            "fault_histogram_ns": [[16384, 4], [32768, 3]]
        }"#;
        let values: Vec<f64> = metrics(text).unwrap().into_iter().map(|of| of.2).collect();
        assert_eq!(values[..3], [700.0, 1.0, 7.0]);
        assert!(metrics("{}").is_none() && metrics("").is_none());
        assert!(metrics(&text.replace("16384", "0")).is_none());
        let share =
            |peak_bytes, percent| Reference { peak_bytes, objects: Objects::new() }.share(percent);
        assert_eq!((share(100 << 20, 45), share(4096 * 3, 60)), (45 << 20, 4096));
    }

    #[test]
    fn objects_that_differ_or_are_missing_are_named() {
        let objects = |all: &[(&str, u64)]| -> Objects {
            all.iter().map(|&(name, hash)| (name.into(), hash)).collect()
        };
        let expected = objects(&[("a.o", 1), ("b.o", 2)]);
        compare("x", &expected, &expected.clone()).unwrap();
        for other in
            [&[("a.o", 1), ("b.o", 3)][..], &[("a.o", 1)], &[("a.o", 1), ("b.o", 2), ("c.o", 3)]]
        {
            let error = compare("x", &expected, &objects(other)).unwrap_err();
            assert!(error.to_string().starts_with("build: wrong bytes came back: x: "), "{error}");
        }
    }
}
