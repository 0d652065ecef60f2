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
//!   group has reached it already, which the manager knows because it got it, too. These are all
//!   signals but those that `passed` keeps.
//! - F2: the front ends as the program did, when the program does, unless a report is to come.
//! - F3: front gone before the program has ended: the manager ends, and with it everything that it
//!   traces. Manager gone: the kernel ends what it traced, and the front says so.
//! - F4: the front is stopped while the program is, by the manager and in the order of the
//!   program's stops, so that a shell that sees its job stopped can have the terminal.
//! - F5: once the program has started, front and manager hold none of the files that it was started
//!   with but the front its standard error, so a reader waits for an end of file no longer than for
//!   the program's descendants.
//! - F6: if the front is told to end (SIGTERM) and the program ends by that, what is left of its
//!   descendants ends, too. A program that handles the signal decides that itself.

mod attach;
mod baseline;
mod channel;
mod denied;
mod failure;
mod front;
mod given;
mod manager;
mod needs;
mod outbox;
mod passed;
mod plan;
mod recipients;
mod record;
mod relay;
mod report;
mod rest;
mod steer;

use std::process::{Command, ExitCode};

use zfold_run::{access, may_trace};

use crate::args::RunArgs;
use crate::shared::exit::{Failure, remark};
use crate::shared::file::NewFile;
use crate::shared::secret::without_own_variables;
use failure::{FAILED, cannot_start};
use given::Given;
use plan::RunPlan;

pub(crate) use attach::{attach, manage as manage_attached};
pub(crate) use manager::manage;
pub(crate) use needs::needs;

/// Runs the given program, and ends as it did.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let given = Given::take()?;
    let plan = RunPlan::new(args)?;
    let file = args
        .report_file
        .as_deref()
        .map(NewFile::at)
        .transpose()
        .map_err(|failure| failure.with_status(FAILED))?;
    match access().and_then(|_| may_trace()) {
        Ok(()) => front::supervise(&plan, given, file.as_ref(), front::manager_command("manage")),
        Err(denied) if args.best_effort => {
            remark(&format!("warning: running without a limit: {}", denied::why(&denied)));
            let mut command = Command::new(plan.program());
            let error = given.inherited.exec(without_own_variables(command.args(plan.args())));
            Err(cannot_start(&plan, &error))
        }
        Err(denied) => Err(Failure::new(denied::why(&denied)).with_status(FAILED)),
    }
}
