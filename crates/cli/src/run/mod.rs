//! `zfold run`: a program in less memory than it wants.
//!
//! ```text
//!   shell -- zfold run (front) ---socket pair--- zfold manage -- program -- its descendants
//!               |  signals  ->                      |  starts and traces them, holds what of
//!               |  <- started, ended, report        |  their memory lies compressed
//!            status, report                         +- ends when the last of them has
//! ```
//!
//! Front and manager are in the program's process group, so a terminal treats all three as one job.
//!
//! - F1: a signal that only the front got is passed on to the program; one that was sent to the
//!   group has reached it already, which the manager knows because it got it, too.
//! - F2: the front ends as the program did, when the program does, unless a report is to come.
//! - F3: front gone before the program has ended: the manager ends, and with it all that it traces.
//!   Manager gone: the kernel ends what it traced, and the front says so.
//! - F4: the front is stopped while the program is, by the manager and in the order of the
//!   program's stops, so that a shell that sees its job stopped can have the terminal.
//! - F5: once the program has started, front and manager hold none of the files that it was
//!   started with but the front its standard error, so nobody waits for an end of file longer than
//!   for the program's descendants.

mod baseline;
mod channel;
mod denied;
mod front;
mod manager;
mod plan;
mod record;
mod relay;
mod report;

use std::io;
use std::process::{Command, ExitCode};

use rustix::stdio::{dup2_stdin, dup2_stdout};
use zfold_vmem::run::internals::Files;
use zfold_vmem::run::{Inherited, access};

use crate::args::RunArgs;
use crate::exit::{Failure, remark};
use crate::file::NewFile;
use plan::Plan;

pub(crate) use manager::manage;

/// Exit status when zfold itself failed.
const FAILED: u8 = 125;
/// Exit status when the program cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status when there is no such program.
const NOT_FOUND: u8 = 127;

/// What this process was started with.
#[derive(Debug)]
struct Given {
    inherited: Inherited,
    files: Files,
}

impl Given {
    /// Returns what this process was started with; to be called first.
    fn take() -> Result<Self, Failure> {
        let inherited = Inherited::of_this_process();
        let files = Files::of_this_process().map_err(|error| failed("read /proc", &error))?;
        Ok(Self { inherited, files })
    }
}

/// Runs the program that was asked for, and ends as it did.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let given = Given::take()?;
    let plan = Plan::new(args)?;
    let file = plan.report.as_ref().and_then(|report| report.file.as_deref());
    let file = file.map(NewFile::at).transpose().map_err(|failure| failure.with_status(FAILED))?;
    match access() {
        Ok(_) => front::supervise(&plan, given, file.as_ref(), front::manager_command()),
        Err(denied) if plan.best_effort => {
            remark(&format!("warning: running without a limit: {}", denied::why(&denied)));
            let mut command = Command::new(&plan.program);
            let error = given.inherited.exec(command.args(&plan.args));
            Err(cannot_start(&plan, &error))
        }
        Err(denied) => Err(Failure::new(denied::why(&denied)).with_status(FAILED)),
    }
}

/// Returns the failure to do something that zfold needs.
fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::new(format!("cannot {what}: {error}")).with_status(FAILED)
}

/// Returns the failure to start the program, with the status that a shell gives it.
fn cannot_start(plan: &Plan, error: &io::Error) -> Failure {
    let status = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    let program = plan.program.display();
    Failure::new(format!("cannot run '{program}': {error}")).with_status(status)
}

/// Lets go of the standard input and output.
fn release_streams() -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(())
}
