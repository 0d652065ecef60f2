//! The sides that take the pages away: how its processes are started.

use std::fmt;
use std::path::Path;
use std::process::Command;

use super::bench::{Bench, NAME};
use super::job::{Answer, Done, Job, Kind, Role, Work};
use crate::experiment::Error;
use crate::experiment::content::PAGE_BYTES;
use crate::experiment::harness::turns::Fault;
use crate::experiment::system::again::{self, line};
use crate::experiment::system::cgroup::Cgroup;
use crate::experiment::system::child::run as run_tool;
use crate::experiment::system::swap::Swap;
use crate::experiment::system::zfold_run::{ZfoldRun, report_path, zfold};

/// The side that takes the pages away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The kernel, by swap to zram with a codec.
    Zram(&'static str),
    /// The process itself, with a region.
    Region,
    /// `zfold run`.
    Run,
    /// None.
    Resident,
}

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

impl Side {
    /// The memory that a limit leaves for the program itself.
    pub(super) const PROGRAM_BYTES: u64 = 16 << 20;

    /// Runs processes of `pages` pages each and returns what they measured.
    ///
    /// # Errors
    /// [`Fault::Missing`] if something is missing for it; [`Fault::Failed`] if a byte is wrong.
    pub(super) fn run(
        self,
        bench: &Bench<'_>,
        processes: u32,
        pages: usize,
        work: Work,
        repeat: u32,
    ) -> Result<Done, Fault> {
        let program = again::program(bench.settings)?;
        let plan = Plan::new(processes, pages, work);
        let memory = match self {
            Self::Region => Kind::Region { resident_bytes: plan.resident_bytes },
            _ => Kind::Mapping,
        };
        let seed = bench.settings.seed.wrapping_add(u64::from(repeat) << 32);
        let job = Job { memory, pages, work, seed, role: Role::Leader(processes) };
        let job = line(&job);
        match self {
            Self::Zram(codec) => zram(&plan, codec, program, &job),
            Self::Run => {
                let report = &report_path(bench.scratch.path());
                let limit_bytes = plan.limit_bytes();
                let (zfold, allocator, codec) = (zfold(bench.settings)?, "zsmalloc", "lz4");
                let run = ZfoldRun { zfold, limit_bytes, allocator, codec, report };
                answer(run.command(program), &job)
            }
            Self::Region | Self::Resident => answer(Command::new(program), &job),
        }
    }
}

/// The sizes of memory.
struct Plan {
    /// All memory of all processes.
    all_bytes: u64,
    /// The part that may be resident.
    resident_bytes: u64,
    limited: bool,
}

impl Plan {
    fn new(processes: u32, pages: usize, work: Work) -> Self {
        let all_bytes = u64::from(processes) * (pages * PAGE_BYTES) as u64;
        let limited = matches!(work, Work::Access { .. });
        let resident_bytes = if limited { all_bytes / 2 } else { all_bytes };
        Self { all_bytes, resident_bytes, limited }
    }

    /// Returns the limit for whom it holds for whole programs: one that is nearly reached, so that
    /// `zfold run` looks after the memory, or the memory that is to be resident.
    fn limit_bytes(&self) -> u64 {
        /// More memory than all processes need for themselves.
        const PROGRAMS: u64 = 8 << 20;
        let spare = (self.all_bytes / 4).min(64 << 20) + PROGRAMS;
        self.resident_bytes + if self.limited { Side::PROGRAM_BYTES } else { spare }
    }
}

/// Runs the job with swap to zram alone.
fn zram(plan: &Plan, codec: &str, program: &Path, job: &str) -> Result<Done, Fault> {
    // The cgroup is gone before the swap is turned off.
    let _swap = Swap::to_zram(2 * plan.all_bytes + Side::PROGRAM_BYTES, codec)?;
    if plan.limited {
        let cgroup = Cgroup::limited(plan.limit_bytes())?;
        return answer(cgroup.command(program), job);
    }
    answer(Command::new(program), job)
}

/// Runs the job and returns what it measured.
fn answer(mut command: Command, job: &str) -> Result<Done, Fault> {
    let text = run_tool(command.args(again::command(NAME)).arg(job))?;
    match again::answer(&text) {
        Some(Answer::Done(done)) => Ok(done),
        Some(Answer::Wrong(what)) => Err(Error::WrongBytes { experiment: NAME, what }.into()),
        Some(Answer::Failed(reason)) => Err(Fault::Missing(reason)),
        None => Err(Error::Other(format!("{NAME}: the workload said: {text}")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_resident_only_where_that_is_asked_for() {
        let plan = Plan::new(4, 256, Work::Unmap { out: true });
        assert_eq!((plan.all_bytes, plan.resident_bytes, plan.limited), (4 << 20, 4 << 20, false));
        assert_eq!(plan.limit_bytes(), (4 << 20) + (1 << 20) + (8 << 20));
        let plan = Plan::new(1, 512, Work::Access { times: 1 });
        assert_eq!((plan.all_bytes, plan.resident_bytes, plan.limited), (2 << 20, 1 << 20, true));
        assert_eq!(plan.limit_bytes(), (1 << 20) + Side::PROGRAM_BYTES);
    }

    #[test]
    fn answers_of_the_workload_are_told_apart() {
        let said = |answer: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("echo '{answer}'"), "sh"]);
            super::answer(command, "")
        };
        let done = line(&Answer::Done(Done { left_pages: 7, ..Done::default() }));
        assert_eq!(said(&done).unwrap().left_pages, 7);
        match said(&line(&Answer::Wrong("page 3".to_owned()))) {
            Err(Fault::Failed(Error::WrongBytes { what, .. })) => assert_eq!(what, "page 3"),
            other => panic!("{other:?}"),
        }
        match said(&line(&Answer::Failed("no rights".to_owned()))) {
            Err(Fault::Missing(reason)) => assert_eq!(reason, "no rights"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(said("gibberish"), Err(Fault::Failed(Error::Other(_)))));
    }
}
