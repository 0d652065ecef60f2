//! Memory that is paged out: what it costs to send pages away, to fetch them back and to unmap them
//! from several processes at once.
//!
//! After "mm/zsmalloc: reduce lock contention in zs_free()" (2026): each process maps 256 MiB,
//! writes real pages, has them paged out, reads a random quarter, and all unmap at the same time.
//! Contestants are the kernel's swap to zram, zfold's regions, and `zfold run`, under which the
//! same program runs unchanged; a last one pages nothing out. The processes are this program again
//! ([`work`]).

mod work;

use std::fmt;
use std::process::Command;
use std::time::Duration;

use zfold_compare::latency::Latency;

use crate::experiment::content::PAGE_BYTES;
use crate::experiment::harness::{Published, Samples, alternate_programs, sized};
use crate::experiment::system::child;
use crate::experiment::system::zram::ZramSwap;
use crate::experiment::{Error, Progress, Settings};
use work::{Answer, Done, Job, Role};

pub use work::{NAME, work};

/// Processes that work at the same time.
const PROCESSES: [u32; 3] = [1, 2, 4];
/// Share of the pages that must leave, or there is nothing to measure.
const LEFT_MIN: f64 = 0.5;
/// More memory than all processes need for themselves.
const PROGRAMS_BYTES: u64 = 8 << 20;
const MUNMAP: &str = "munmap";

/// The base of the series is compared with the kernel's zram, and its result with the side whose
/// processes share a pool with the same locks.
pub(crate) const PUBLISHED: [Published; 6] = [
    ("zram lzo-rle", 1, MUNMAP, 59.0),
    ("zram lzo-rle", 2, MUNMAP, 94.6),
    ("zram lzo-rle", 4, MUNMAP, 202.9),
    ("zfold run lz4", 1, MUNMAP, 56.0),
    ("zfold run lz4", 2, MUNMAP, 66.7),
    ("zfold run lz4", 4, MUNMAP, 110.6),
];

/// The side that takes the pages away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The kernel, by swap to zram with a codec.
    Zram(&'static str),
    /// The process itself, with a region.
    Region,
    /// `zfold run`.
    Run,
    /// None.
    Resident,
}

/// The kernel comes first, as the base.
const SIDES: [Side; 5] =
    [Side::Zram("lzo-rle"), Side::Zram("lz4"), Side::Region, Side::Run, Side::Resident];

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zram(codec) => write!(f, "zram {codec}"),
            Self::Region => f.write_str("region lz4"),
            Self::Run => f.write_str("zfold run lz4"),
            Self::Resident => f.write_str("not paged out"),
        }
    }
}

/// Runs the experiment.
///
/// # Errors
/// [`Error`] when a byte comes back wrong; not when something is missing.
pub(crate) fn run(
    settings: &Settings,
    progress: Progress<'_>,
    samples: &mut Samples,
) -> Result<(), Error> {
    let pages = sized(settings, (256 << 20) / PAGE_BYTES, (16 << 20) / PAGE_BYTES).max(64);
    alternate_programs(settings, progress, &SIDES, samples, |side, repeat, samples| {
        for processes in PROCESSES {
            let seed = settings.seed.wrapping_add(repeat << 32);
            let done = side.run(settings, processes, pages, seed)?;
            note(*side, &done, (processes, pages), samples)?;
        }
        Ok(())
    })
}

/// Adds what was measured of so many processes and pages of each.
fn note(
    side: Side,
    done: &Done,
    (processes, pages): (u32, usize),
    samples: &mut Samples,
) -> Result<(), Error> {
    let mut push = |metric: &str, unit, value| {
        samples.push(&side.to_string(), processes, metric, unit, value);
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    if side != Side::Resident {
        let left = done.left_pages as f64 / (pages as f64 * f64::from(processes));
        if left < LEFT_MIN {
            let percent = left * 100.0;
            let reason = format!("only {percent:.0} % of the pages leave when they are asked to");
            return Err(Error::Missing(reason));
        }
        push("pageout", "us/page", mean(&done.page_out) * 1e6 / pages as f64);
        push("pages that left", "%", left * 100.0);
        let mut faults = Latency::new();
        done.faults.iter().for_each(|&ns| faults.record(Duration::from_nanos(ns)));
        push("fault p50", "us", faults.summary().p50 as f64 / 1e3);
        push("fault p99", "us", faults.summary().p99 as f64 / 1e3);
    }
    push(MUNMAP, "ms", mean(&done.unmap) * 1e3);
    push("munmap of a page", "ns", mean(&done.unmap) * 1e9 / pages as f64);
    Ok(())
}

impl Side {
    /// Runs processes of `pages` pages each and returns what they measured.
    fn run(
        self,
        settings: &Settings,
        processes: u32,
        pages: usize,
        seed: u64,
    ) -> Result<Done, Error> {
        let unknown = || Error::Missing("the program zfold-lab is not known".to_owned());
        let program = settings.lab.as_ref().ok_or_else(unknown)?;
        let bytes = u64::from(processes) * (pages * PAGE_BYTES) as u64;
        let region_bytes = (self == Self::Region).then_some(bytes);
        let out = self != Self::Resident;
        let job = Job { role: Role::Leader(processes), region_bytes, pages, out, seed };
        let _swap = match self {
            Self::Zram(codec) => Some(ZramSwap::on(2 * bytes + PROGRAMS_BYTES, codec)?),
            _ => None,
        };
        let mut command = match self {
            Self::Run => {
                // Nearly reached, so that `zfold run` looks after the memory.
                let limit_bytes = bytes + (bytes / 4).min(64 << 20) + PROGRAMS_BYTES;
                let options = ["--allocator".as_ref(), "zsmalloc".as_ref()];
                child::under_zfold(settings, limit_bytes, &options, program.as_ref())?
            }
            _ => Command::new(program),
        };
        Answer::read(&child::run(command.args(job.arguments()))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::outcome;

    #[test]
    fn without_the_program_all_is_named_as_left_out() {
        let outcome = outcome(NAME);
        assert!(outcome.figures.is_empty());
        let named = |side: &Side| format!("SKIPPED: {side}: ");
        assert!(outcome.remarks.iter().zip(&SIDES).all(|(line, of)| line.starts_with(&named(of))));
        for (variant, processes, ..) in PUBLISHED {
            assert!(SIDES.iter().any(|side| side.to_string() == variant), "{variant}");
            assert!(PROCESSES.contains(&processes));
        }
    }
}
