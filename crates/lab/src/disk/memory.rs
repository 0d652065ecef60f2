//! The memory that a device takes which is full of data that compress by half: once written, and
//! overwritten.

use std::fmt;
use std::fs;

use zfold_store::{CodecKind, CodecSpec};

use super::bench::Bench;
use super::fio::{Direction, Fio, Target};
use super::serve::Program;
use crate::experiment::content::PAGE_BYTES;
use crate::experiment::harness::turns::{Fault, Found, in_turns};
use crate::experiment::system::zram::Zram;
use crate::experiment::{Error, Progress};

/// The prefix of progress and notes.
const SECTION: &str = "memory";
/// Requests in flight while a device is overwritten.
const DEPTH: u32 = 32;
/// Bytes from which the ideal is computed.
const SAMPLE_BYTES: u64 = 4 << 20;

/// The consumers of memory.
#[derive(Clone, Copy, Debug)]
enum Holder {
    /// The sum of the LZ4 sizes of all pages.
    Ideal,
    Zram,
    Program(Program),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ideal => f.pad("LZ4 sizes"),
            Self::Zram => f.pad("zram lz4"),
            Self::Program(program) => program.fmt(f),
        }
    }
}

/// The ideal comes first, as the base.
const HOLDERS: [Holder; 5] = [
    Holder::Ideal,
    Holder::Zram,
    Holder::Program(Program::Zfold("lz4")),
    Holder::Program(Program::Nbdkit("zstd")),
    Holder::Program(Program::Nbdkit("sparse")),
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
    in_turns(bench.settings, (SECTION, progress), &HOLDERS, found, |holder, repeat, samples| {
        let bytes = match holder {
            Holder::Ideal => [ideal_bytes(bench, repeat)?; 2],
            Holder::Zram => {
                let device = Zram::add(bench.span_bytes, "lz4")?;
                let fio = Fio::on(bench, Target::Block(device.path()), repeat);
                held_bytes(bench, &fio, || device.used_bytes())?
            }
            Holder::Program(program) => {
                let server = program.serve_nbd(bench)?;
                let fio = Fio::on(bench, Target::Nbd(server.path().to_owned()), repeat);
                program.judge(held_bytes(bench, &fio, || server.resident_bytes()))?
            }
        };
        let metrics = ["memory when filled", "memory when overwritten"];
        for (metric, bytes) in metrics.into_iter().zip(bytes) {
            let mebibytes = bytes as f64 / f64::from(1 << 20);
            samples.push(&holder.to_string(), 1, metric, "MiB", mebibytes);
        }
        Ok(())
    })
}

/// Returns what a device holds after it was filled, and after it was overwritten for a while.
fn held_bytes(
    bench: &Bench<'_>,
    fio: &Fio,
    now: impl Fn() -> Result<u64, Fault>,
) -> Result<[u64; 2], Fault> {
    fio.fill()?;
    let filled = now()?;
    fio.random(Direction::Write, DEPTH, bench.overwriting)?;
    let overwritten = now()?;
    fio.check()?;
    Ok([filled, overwritten])
}

/// Returns the sum of the LZ4 sizes of as many pages as a device has, from a sample.
fn ideal_bytes(bench: &Bench<'_>, repeat: u32) -> Result<u64, Fault> {
    let path = bench.path("sample");
    let fio = Fio::on(bench, Target::File(path.clone()), repeat);
    Fio { span_bytes: SAMPLE_BYTES, ..fio }.fill()?;
    let sample = fs::read(&path)?;
    debug_assert_eq!(sample.len() as u64, SAMPLE_BYTES);
    fs::remove_file(&path)?;
    let codec = CodecSpec::from(CodecKind::Lz4).context(PAGE_BYTES);
    let mut codec = codec.map_err(|error| Error::Other(error.to_string()))?;
    let mut compressed = [0; PAGE_BYTES];
    let len = |page: &[u8]| codec.compress(page, &mut compressed).unwrap_or(PAGE_BYTES) as u64;
    let sum: u64 = sample.chunks_exact(PAGE_BYTES).map(len).sum();
    Ok(sum * bench.span_bytes / SAMPLE_BYTES)
}
