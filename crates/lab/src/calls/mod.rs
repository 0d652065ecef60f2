//! Calls that change an address space: what they cost under `zfold run`, whose manager has to
//! follow them.
//!
//! One process makes `brk`, `mmap` with `munmap`, and `madvise(MADV_DONTNEED)`, of 64 KiB each,
//! first on unused memory and then on full memory, and starts programs. Contestants are the process
//! alone; under a limit that is not reached; and under one that is, so that what it works on is
//! closed and has left.
//!
//! The process is this program again ([`work`]).

mod job;
mod work;

use std::fmt;
use std::process::Command;

use crate::experiment::harness::Samples;
use crate::experiment::harness::turns::{Fault, Found, in_turns};
use crate::experiment::system::again;
use crate::experiment::system::child::run as run_tool;
use crate::experiment::system::scratch::Scratch;
use crate::experiment::system::zfold_run::{ZfoldRun, report_path, zfold};
use crate::experiment::{Error, Outcome, Progress, Settings};
pub use job::NAME;
use job::{Done, Job, PIECE_BYTES};
pub use work::work;

/// Share of the full memory that must be out where the limit is reached.
const AWAY_MIN: f64 = 0.5;

/// How the process is run; alone is the base.
const SIDES: [Side; 3] = [Side::Alone, Side::Unreached, Side::Closed];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Alone,
    Unreached,
    Closed,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alone => "alone",
            Self::Unreached => "zfold run, limit not reached",
            Self::Closed => "zfold run, memory closed",
        })
    }
}

impl Side {
    /// Returns the limit of a run.
    fn limit_bytes(self, job: &Job) -> Option<u64> {
        match self {
            Self::Alone => None,
            Self::Unreached => Some(4 * job.bytes() + (1 << 30)),
            // The full memory is a multiple of it.
            Self::Closed => Some(job.bytes() / 2),
        }
    }
}

/// Runs the experiment.
///
/// # Errors
/// [`Error`] when no process can be started; not when `zfold run` does not work here.
pub fn run(settings: &Settings, progress: Progress<'_>) -> Result<Outcome, Error> {
    let (job, mut found) = (Job::new(settings), Found::nothing());
    let scratch = Scratch::new()?;
    in_turns(settings, ("calls", progress), &SIDES, &mut found, |side, _, samples| {
        once(settings, *side, &job, &scratch, samples)
    })?;
    let remark = format!(
        "A call is about {} KiB; brk is that of malloc and free, a program is started by fork, \
         exec and wait of a shell. Full memory is {} MiB of distinct pages; where it is closed, \
         the limit is half of that, and at least half of the pages must have left.",
        PIECE_BYTES >> 10,
        job.bytes() >> 20,
    );
    let title = "calls that change an address space: under zfold run and alone";
    Ok(found.outcome(NAME, title, &[], vec![remark]))
}

/// Runs the process once and notes what it measured.
fn once(
    settings: &Settings,
    side: Side,
    job: &Job,
    scratch: &Scratch,
    samples: &mut Samples,
) -> Result<(), Fault> {
    let program = again::program(settings)?;
    let mut command = match side.limit_bytes(job) {
        None => Command::new(program),
        Some(limit_bytes) => {
            let report = &report_path(scratch.path());
            let (zfold, allocator, codec) = (zfold(settings)?, "zsmalloc", "lz4");
            ZfoldRun { zfold, limit_bytes, allocator, codec, report }.command(program)
        }
    };
    work::with_plain_heap(&mut command).args(again::command(NAME)).arg(again::line(job));
    let text = run_tool(&mut command)?;
    let done: Done = again::answer(&text)
        .ok_or_else(|| Error::Other(format!("{NAME}: the process said: {text}")))?;
    if side == Side::Closed && done.away < AWAY_MIN {
        let percent = done.away * 100.0;
        let reason = format!("only {percent:.0} % of the full memory has left under the limit");
        return Err(Fault::Missing(reason));
    }
    for (metric, microseconds) in &done.times {
        samples.push(&side.to_string(), 1, metric, "us", *microseconds);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::{check_left_out, tiny};

    #[test]
    fn without_the_program_all_is_named_as_left_out() {
        check_left_out(&run(&tiny(), &|_, _| ()).unwrap(), "calls", &SIDES);
    }

    #[test]
    fn limits_are_far_above_and_well_below_what_is_full() {
        let job = Job { calls: 1, pieces: 100, starts: 1 };
        assert_eq!(job.bytes(), 3 * 100 * 65536);
        assert_eq!(Side::Alone.limit_bytes(&job), None);
        assert!(Side::Unreached.limit_bytes(&job).unwrap() > 1 << 30);
        assert_eq!(Side::Closed.limit_bytes(&job), Some(job.bytes() / 2));
    }
}
