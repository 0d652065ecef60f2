//! The process that the shell started: announces what is about to happen, asks for confirmation,
//! starts the manager, and shows its messages.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::unix::net::UnixStream;
use std::process::{ExitCode, Stdio};

use zfold_run::{Refused, Running, access, may_trace, remedy};

use super::asked::{names, plan};
use crate::args::AttachArgs;
use crate::run::channel::{ToFront, ToManager, messages};
use crate::run::denied;
use crate::run::front::{manager_command, start_manager, tell_unmanaged};
use crate::run::plan::RunPlan;
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
    let cannot = |error: io::Error| {
        Failure::new(format!("cannot start a manager: {error}{}", remedy(&error)))
    };
    let socket = start(&running).map_err(cannot)?;
    follow(messages(socket), args.wait)
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
            ToFront::Unmanaged(process) => tell_unmanaged(&process),
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
