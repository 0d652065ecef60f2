//! Servers of NBD over one Unix connection: requests a second, and how long one takes.

use super::bench::Bench;
use super::fio::{Direction, Fio, Target};
use super::serve::Program;
use crate::experiment::harness::Samples;
use crate::experiment::harness::turns::{Fault, Found, in_turns};
use crate::experiment::{Error, Progress};

/// The prefix of the metrics.
const SECTION: &str = "NBD";
/// Requests in flight.
const DEPTHS: [u32; 2] = [1, 32];

/// A side that also compresses comes first, as the base.
const PROGRAMS: [Program; 5] = [
    Program::Nbdkit("zstd"),
    Program::Nbdkit("sparse"),
    Program::Qemu,
    Program::Zfold("lz4"),
    Program::Zfold("zstd"),
];

/// Runs the comparison.
///
/// # Errors
/// As [`in_turns`].
pub(super) fn run(
    bench: &Bench<'_>,
    progress: Progress<'_>,
    found: &mut Found,
) -> Result<(), Error> {
    in_turns(bench.settings, (SECTION, progress), &PROGRAMS, found, |program, repeat, samples| {
        let server = program.serve_nbd(bench)?;
        let target = Target::Nbd(server.path().to_owned());
        load(bench, target, repeat, &DEPTHS, (*program, SECTION), samples)
    })
}

/// Fills a device, measures random requests of `depths` on it and compares what comes back.
///
/// # Errors
/// [`Fault::Failed`], and as [`Program::judge`].
pub(super) fn load(
    bench: &Bench<'_>,
    target: Target,
    repeat: u32,
    depths: &[u32],
    (program, section): (Program, &str),
    samples: &mut Samples,
) -> Result<(), Fault> {
    let (fio, variant) = (Fio::on(bench, target, repeat), program.to_string());
    fio.fill()?;
    for direction in Direction::ALL {
        for &depth in depths {
            let speed = fio.random(direction, depth, bench.time)?;
            let metric = format!("{section}: random {}s", direction.name());
            samples.push(&variant, depth, &metric, "IOPS", speed.iops);
            samples.push(&variant, depth, &format!("{metric} p50"), "us", speed.p50_us);
            samples.push(&variant, depth, &format!("{metric} p99"), "us", speed.p99_us);
        }
    }
    program.judge(fio.check())
}
