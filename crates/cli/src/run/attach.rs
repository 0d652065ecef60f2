//! `zfold attach`: processes that run already, under a limit.
//!
//! ```text
//!   shell -- zfold attach (front) --socket pair-- zfold manage-attached --traces-- processes
//!               |  which processes  ->               |  holds what of their memory lies
//!               |  <- the limit is kept, remarks     |  compressed
//!            status                                  +- ends when the last of them has
//! ```
//!
//! - A1: the front, which is here, looks at all processes and asks, before the manager does
//!   anything. A process that is another than the one that was looked at is refused.
//! - A2: the manager has a session of its own and is ended by no signal but SIGKILL: neither the
//!   end of the front or of its terminal nor a signal to their group ends it, for the processes
//!   would end with it.
//! - A3: it holds none of the files that the front was started with.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::unix::net::UnixStream;
use std::process::{ExitCode, Stdio};

use zfold_run::{Refused, Running, access, may_trace};

use super::channel::{ToFront, ToManager, messages};
use super::denied;
use super::failure::failed;
use super::front::{manager_command, start_manager};
use super::plan::RunPlan;
use crate::args::AttachArgs;
use crate::shared::exit::{Failure, remark};
use crate::shared::size::format_size;

/// Puts processes under a limit, after it was said what that means.
pub(crate) fn attach(args: &AttachArgs) -> Result<ExitCode, Failure> {
    let running = look(args)?;
    let plan = plan(args, &running)?;
    access().and_then(|_| may_trace()).map_err(|denied| Failure::new(denied::why(&denied)))?;
    explain(&plan, &running);
    let asks = !args.yes && io::stdin().is_terminal() && io::stderr().is_terminal();
    if asks && !is_answered_yes() {
        return Err(Failure::new("nothing was changed: answer yes, or give --yes, to go on"));
    }
    let socket = start(&running).map_err(|error| failed("start a manager", &error))?;
    follow(messages(socket), args.wait)
}

/// Returns how processes are to be managed, for front and manager; they are the run's program.
pub(super) fn plan(args: &AttachArgs, running: &[Running]) -> Result<RunPlan, Failure> {
    RunPlan::new(&args.as_run(names(running).into()))
}

/// Returns what processes are called.
fn names(running: &[Running]) -> String {
    let names: Vec<_> =
        running.iter().map(|one| format!("{} ({})", one.program, one.pid)).collect();
    names.join(", ")
}

/// Returns the processes that are meant, each once.
fn look(args: &AttachArgs) -> Result<Vec<Running>, Failure> {
    let mut numbers = args.processes.clone();
    numbers.sort_unstable();
    numbers.dedup();
    let running: Result<_, Refused> = numbers.into_iter().map(Running::look).collect();
    running.map_err(|refused| Failure::new(refused.to_string()))
}

/// Says what is about to be done, what that needs, and what stays.
fn explain(plan: &RunPlan, running: &[Running]) {
    remark(&format!(
        "to be put under a limit of {}, with all threads and descendants: {}",
        format_size(plan.limit_bytes),
        names(running)
    ));
    remark(
        "this needs the right to trace them (same user and kernel.yama.ptrace_scope=0, or \
         CAP_SYS_PTRACE) and to handle the kernel's page faults: both are there",
    );
    remark(
        "for good: they end if zfold's manager, which holds their memory from now on, is killed; \
         no debugger can attach; a seccomp filter stays, and no_new_privs where they lack \
         CAP_SYS_ADMIN, so setuid programs that they start have no more rights than they",
    );
}

fn is_answered_yes() -> bool {
    remark("type yes to go on:");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).is_ok_and(|_| answer.trim() == "yes")
}

/// Starts the manager with the arguments of this process, and tells it which processes are meant.
fn start(running: &[Running]) -> io::Result<UnixStream> {
    let mut command = manager_command("manage-attached");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let first = ToManager::Attach(running.iter().map(Running::words).collect());
    Ok(start_manager(command, File::open("/dev/null")?, &first)?.1)
}

/// Shows what the manager says until the limit is kept, or until its end.
fn follow(heard: impl Iterator<Item = ToFront>, waits: bool) -> Result<ExitCode, Failure> {
    for message in heard {
        match message {
            ToFront::Remark(line) => remark(&line),
            ToFront::Started if waits => {}
            ToFront::Started | ToFront::Done(_) => return Ok(ExitCode::SUCCESS),
            ToFront::Ended(_) => {}
            ToFront::Failed { status, line } => return Err(Failure::new(line).with_status(status)),
        }
    }
    Err(Failure::new(
        "the manager was killed, and with it the processes whose memory it held: start them again",
    ))
}
