//! The front of a run: the process that the shell started and waits for.
//!
//! Two threads: this one starts the manager and does what it says until the run is over;
//! `zfold-signals` passes on what others send to this process (F1), until the program has ended and
//! only a report is to come: then they are for this process itself.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;

use rustix::stdio::stdin;
use signal_hook::consts::SIGTSTP;
use signal_hook::low_level::emulate_default_handler;
use zfold_pool::Lock;
use zfold_run::{Files, Inherited, die_of};

use super::channel::{self, ToFront, ToManager, messages, send_file};
use super::end::End;
use super::failure::failed;
use super::passed::{catch, is_harmful};
use super::plan::RunPlan;
use super::{report, streams};
use crate::shared::exit::{Failure, remark};
use crate::shared::file::NewFile;

/// Returns the command, by this name, that starts a manager with the arguments of this process.
pub(super) fn manager_command(name: &str) -> Command {
    // Not by its name, which may be another program's by now.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("zfold").arg(name).args(std::env::args_os().skip(2));
    command
}

/// Starts a manager, hands it its standard input and the first message, and returns it with the
/// socket to it.
pub(super) fn start_manager(
    mut command: Command,
    input: impl AsFd,
    first: &ToManager,
) -> io::Result<(Child, UnixStream)> {
    let (front, manager) = UnixStream::pair()?;
    let manager = command.stdin(OwnedFd::from(manager)).spawn()?;
    // It holds the manager's end, which only the manager may have.
    drop(command);
    // A manager that is gone already is noticed by the end of its messages.
    let _ = send_file(&front, input);
    let _ = channel::send(&front, first);
    Ok((manager, front))
}

/// How the program has ended. Locked while a signal is sent to the manager.
type Ended = Arc<Lock<Option<End>>>;

/// Runs the program under a manager, and ends as the program does.
pub(super) fn supervise(
    plan: &RunPlan,
    inherited: Inherited,
    files: Files,
    file: Option<&NewFile>,
) -> Result<ExitCode, Failure> {
    let first = ToManager::Start(inherited.words());
    let (mut manager, socket) = start_manager(manager_command("manage"), stdin(), &first)
        .map_err(|error| failed("start a manager", &error))?;
    let ended = Ended::default();
    pass_signals_on(&socket, Arc::clone(&ended))
        .map_err(|error| failed("handle signals", &error))?;
    files.close();
    // Without /dev/null they stay; then a reader waits a little longer than it must.
    let _ = streams::release();
    match follow(plan, file, socket, &ended)? {
        Some(end) => {
            if plan.report.is_some() {
                // It has reported everything and ends now; waited for, its processor time counts as
                // this process's, as people who compare costs expect.
                let _ = manager.wait();
            }
            leave(end)
        }
        None => Err(lost(manager.wait())),
    }
}

/// Does what the manager says; returns how the program ended, or `None` if the manager did first.
fn follow(
    plan: &RunPlan,
    file: Option<&NewFile>,
    socket: UnixStream,
    ended: &Lock<Option<End>>,
) -> Result<Option<End>, Failure> {
    for message in messages(socket) {
        match message {
            ToFront::Started => {}
            ToFront::Remark(line) => remark(&line),
            ToFront::Ended(end) => {
                *ended.lock() = Some(end);
                if plan.report.is_none() {
                    return Ok(Some(end));
                }
            }
            ToFront::Done(text) => {
                if let Some(format) = plan.report {
                    // The program did not fail, and its status is what counts.
                    report::write(&text, format, file)
                        .unwrap_or_else(|failure| remark(failure.line()));
                }
                return Ok(*ended.lock());
            }
            ToFront::Failed { status, line } => return Err(Failure::new(line).with_status(status)),
        }
    }
    let ended = *ended.lock();
    if ended.is_some() {
        remark("no report: the manager of this run was killed");
    }
    Ok(ended)
}

/// Ends this process as the program ended.
fn leave(end: End) -> ! {
    match end {
        End::Code(code) => std::process::exit(code),
        End::Signal(signal) => die_of(signal),
    }
}

/// Returns what to say of a manager that ended before the program.
fn lost(ended: io::Result<ExitStatus>) -> Failure {
    let how = match ended.map(|status| (status.signal(), status.code())) {
        Ok((Some(signal), _)) => format!("was killed (signal {signal})"),
        Ok((_, Some(code))) => format!("exited early (status {code})"),
        _ => "is gone".to_owned(),
    };
    let line = format!(
        "the manager of this run {how}; it held the program's memory, so the program was ended \
         with it"
    );
    Failure::new(line)
}

/// Passes signals on to the manager, by a thread.
fn pass_signals_on(socket: &UnixStream, ended: Ended) -> io::Result<()> {
    let (mut signals, socket) = (catch()?, socket.try_clone()?);
    let pass = move || {
        for signal in signals.forever() {
            match *ended.lock() {
                // A shell sends it to the group, and the manager stops this process with the
                // program (F4).
                None if signal == SIGTSTP => {}
                // One that is gone is noticed by the end of its messages.
                None => drop(channel::send(&socket, &ToManager::Signal(signal))),
                // No manager stops this process; it knows the signal.
                Some(_) if signal == SIGTSTP => drop(emulate_default_handler(signal)),
                Some(_) if !is_harmful(signal) => {}
                Some(end) => {
                    remark("no report: interrupted while descendants were still running");
                    leave(end);
                }
            }
        }
    };
    std::thread::Builder::new().name("zfold-signals".to_owned()).spawn(pass).map(drop)
}
