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
//!   group has reached it already, which the manager knows because it got it, too: the manager
//!   holds signals, and takes its own when the front reports the same. The kernel sends to the two
//!   one after the other, in either order, so it waits a little for its own. One that was sent to
//!   the manager alone counts as such. These are all signals but those that `passed` keeps.
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
mod channel;
mod denied;
mod end;
mod failure;
mod front;
mod manager;
mod needs;
mod outbox;
mod passed;
mod plan;
mod report;
mod steer;
mod streams;

use std::process::{Command, ExitCode};

use zfold_run::{Files, Inherited, access, may_trace};

use crate::args::RunArgs;
use crate::shared::exit::{Failure, remark};
use crate::shared::file::NewFile;
use crate::shared::secret::without_own_variables;
use failure::{cannot_start, failed, of_a_run};
use plan::RunPlan;

pub(crate) use attach::attach;
pub(crate) use manager::{manage, manage_attached};
pub(crate) use needs::needs;

/// Runs the given program, and ends as it did.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    start(args).map_err(of_a_run)
}

fn start(args: &RunArgs) -> Result<ExitCode, Failure> {
    // Soon, while all that is open was there at the start, and no signal is handled.
    let inherited = Inherited::of_this_process();
    let files = Files::of_this_process().map_err(|error| failed("read /proc", &error))?;
    let plan = RunPlan::new(args)?;
    let file = args.report_file.as_deref().map(NewFile::at).transpose()?;
    match access().and_then(|_| may_trace()) {
        Ok(()) => front::supervise(&plan, inherited, files, file.as_ref()),
        Err(denied) if args.best_effort => {
            remark(&format!("warning: running without a limit: {}", denied::why(&denied)));
            let mut command = Command::new(plan.program());
            let error = inherited.exec(without_own_variables(command.args(&args.command[1..])));
            Err(cannot_start(&plan, &error))
        }
        Err(denied) => Err(Failure::new(denied::why(&denied))),
    }
}
