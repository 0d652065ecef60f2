//! Under whom a project is built, and what came of it.

use std::fmt;
use std::process::Command;
use std::time::Duration;

use zfold_compare::latency::Latency;

use super::bench::{Bench, NAME, Reference};
use super::project::Objects;
use crate::experiment::Error;
use crate::experiment::harness::Cost;
use crate::experiment::harness::turns::Fault;
use crate::experiment::system::cgroup::Cgroup;
use crate::experiment::system::child::last_line;
use crate::experiment::system::swap::Swap;
use crate::experiment::system::tree::{self, Ended};
use crate::experiment::system::zfold_run::{ZfoldRun, report_path, zfold};

/// Limits in percent of the memory that the build takes without one.
pub(super) const LIMITS: [u32; 2] = [60, 45];

/// The side that keeps the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// None.
    Unlimited,
    /// The kernel in a cgroup, by swap to zram with a codec.
    Zram(&'static str),
    /// The kernel in a cgroup, by zswap with a codec before a swap file.
    Zswap(&'static str),
    /// `zfold run` with an allocator.
    Run(&'static str),
}

/// The sides and their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    side: Side,
    /// In percent.
    limit: u32,
}

/// Returns those of `limits`; the build without a limit comes first, as the base.
pub(super) fn variants(limits: &[u32]) -> Vec<Variant> {
    const SIDES: [Side; 5] = [
        Side::Zram("lz4"),
        Side::Zswap("lzo"),
        Side::Run("zsmalloc"),
        Side::Run("z3fold"),
        Side::Run("zbud"),
    ];
    let mut variants = vec![Variant { side: Side::Unlimited, limit: 100 }];
    for &limit in limits {
        variants.extend(SIDES.map(|side| Variant { side, limit }));
    }
    variants
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { side, limit } = self;
        match side {
            Side::Unlimited => f.write_str("unlimited"),
            Side::Zram(codec) => write!(f, "zram {codec}, {limit} %"),
            Side::Zswap(codec) => write!(f, "zswap {codec}, {limit} %"),
            Side::Run(allocator) => write!(f, "zfold run {allocator}, {limit} %"),
        }
    }
}

#[cfg(test)]
impl Variant {
    /// Returns whether it needs the zfold program.
    pub(super) fn needs_zfold(&self) -> bool {
        matches!(self.side, Side::Run(_))
    }
}

/// The result of a build.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) cost: Cost,
    /// Most bytes that compressed pages took.
    pub(super) pool_bytes: Option<u64>,
    /// Most bytes of anonymous memory that were resident.
    pub(super) resident_bytes: Option<u64>,
    /// How long faults took.
    pub(super) faults: Option<Latency>,
}

/// Returns a limit in bytes, in whole pages.
pub(super) fn share(bytes: u64, percent: u32) -> u64 {
    (bytes * u64::from(percent) / 100) & !0xfff
}

/// Builds the project without a limit, looking at its memory.
///
/// # Errors
/// [`Fault::Missing`] if it cannot be built here.
pub(super) fn reference(bench: &Bench<'_>) -> Result<Reference, Fault> {
    bench.project.unpack()?;
    let mut command = bench.build(|make| Command::new(make));
    let ended =
        tree::run(&mut command, Duration::MAX, tree::anonymous_bytes).map_err(
            |error| match error {
                Error::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    Fault::Missing("make is not installed".to_owned())
                }
                error => error.into(),
            },
        )?;
    if !ended.status.success() {
        let reason = last_line(&ended.complaint);
        return Err(Fault::Missing(format!("the project cannot be built: {reason}")));
    }
    let objects = bench.project.objects()?;
    if objects.is_empty() {
        return Err(Fault::Missing("the build made no object file".to_owned()));
    }
    Ok(Reference { peak_bytes: ended.peak, objects })
}

/// Builds the project once and compares what it made.
///
/// # Errors
/// [`Fault::Missing`] if something is missing for it, or the kernel's limit is too tight;
/// [`Fault::Failed`] if an object differs or the build fails under `zfold run`.
pub(super) fn run(
    bench: &Bench<'_>,
    variant: Variant,
    reference: &Reference,
) -> Result<Built, Fault> {
    bench.project.unpack()?;
    let limit_bytes = share(reference.peak_bytes, variant.limit);
    // Room for all of it, and for what a kernel keeps there although it has been read.
    let swap_bytes = 2 * reference.peak_bytes + (64 << 20);
    let built = match variant.side {
        Side::Unlimited => {
            let mut command = bench.build(|make| Command::new(make));
            let ended = succeeded(tree::run(&mut command, Duration::MAX, |_| None)?)?;
            Built {
                cost: ended.cost,
                pool_bytes: None,
                resident_bytes: Some(reference.peak_bytes),
                faults: None,
            }
        }
        Side::Zram(codec) => swapped(bench, &Swap::to_zram(swap_bytes, codec)?, limit_bytes)?,
        Side::Zswap(codec) => {
            let swap = Swap::to_zswap(swap_bytes, codec, bench.scratch.path())?;
            swapped(bench, &swap, limit_bytes)?
        }
        Side::Run(allocator) => under_zfold(bench, allocator, limit_bytes)?,
    };
    compare(&variant.to_string(), &reference.objects, &bench.project.objects()?)?;
    Ok(built)
}

/// Builds in a cgroup of the kernel with swap.
fn swapped(bench: &Bench<'_>, swap: &Swap, limit_bytes: u64) -> Result<Built, Fault> {
    let cgroup = Cgroup::limited(limit_bytes)?;
    let gauge = swap.gauge();
    let mut command = bench.build(|make| cgroup.command(make));
    let ended = succeeded(tree::run(&mut command, Duration::MAX, |_| gauge.bytes())?)?;
    Ok(Built { cost: ended.cost, pool_bytes: Some(ended.peak), resident_bytes: None, faults: None })
}

/// Builds under `zfold run`.
fn under_zfold(bench: &Bench<'_>, allocator: &str, limit_bytes: u64) -> Result<Built, Fault> {
    let zfold = zfold(bench.settings)?;
    let report = &report_path(bench.scratch.path());
    let run = ZfoldRun { zfold, limit_bytes, allocator, codec: "lz4", report };
    let mut command = bench.build(|make| run.command(make));
    let ended = tree::run(&mut command, Duration::MAX, |_| None)?;
    match ended.status.code() {
        Some(0) => {}
        Some(ZfoldRun::NOT_RUN) => return Err(Fault::Missing(last_line(&ended.complaint))),
        _ => {
            let reason = last_line(&ended.complaint);
            let line = format!("{NAME}: the build fails under zfold run {allocator}: {reason}");
            return Err(Error::Other(line).into());
        }
    }
    let report = run.read_report()?;
    Ok(Built {
        cost: ended.cost,
        pool_bytes: Some(report.peak_stored_bytes),
        resident_bytes: Some(report.peak_resident_bytes),
        faults: Some(report.fault_latency),
    })
}

/// Returns a build that has succeeded.
fn succeeded(ended: Ended) -> Result<Ended, Fault> {
    if ended.status.success() {
        return Ok(ended);
    }
    let reason = last_line(&ended.complaint);
    Err(Fault::Missing(format!("the build fails, which without this limit it does not: {reason}")))
}

/// Returns whether two builds made the same.
fn compare(variant: &str, expected: &Objects, found: &Objects) -> Result<(), Error> {
    let names = expected.keys().chain(found.keys());
    for name in names {
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

    #[test]
    fn limits_are_shares_in_whole_pages() {
        assert_eq!(share(100 << 20, 45), 45 << 20);
        assert_eq!(share(4096 * 3, 60), 4096);
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

    #[test]
    fn variants_have_names_of_their_own() {
        let mut names: Vec<String> = variants(&LIMITS).iter().map(ToString::to_string).collect();
        assert_eq!((names.len(), &*names[0]), (11, "unlimited"));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 11);
    }
}
