//! The front of a run: the process that the shell started and waits for.
//!
//! Two threads: this one starts the manager and does what it says until the run is over;
//! `zfold-signals` passes on what others send to this process (F1). Whom that reaches is a
//! [`Recipient`] under a lock, which changes as the run goes on: none yet, the program of the
//! baseline, the manager, or this process itself when the program has ended and only a report is to
//! come. The lock is held while a signal is sent, so a signal reaches the present recipient, and
//! never two.

use std::collections::HashSet;
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
use zfold_run::{Inherited, die_of, tell};

use super::channel::{self, ToFront, ToManager, messages, send_file};
use super::failure::{FAILED, failed};
use super::given::{Given, release_streams};
use super::passed::{catch, is_harmful};
use super::plan::RunPlan;
use super::recipients::{Recipient, Recipients};
use super::record::{Baseline, End, Unmanaged};
use super::{baseline, denied, report};
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

/// Says that a process is not managed.
pub(super) fn tell_unmanaged(Unmanaged { pid, program, reason }: &Unmanaged) {
    let remedy = denied::remedy(reason);
    remark(&format!(
        "process {pid} ({program}) is not managed, and its memory stays: {reason}; {remedy}"
    ));
}

/// Runs the program under the manager that `command` starts, and ends as the program does.
pub(super) fn supervise(
    plan: &RunPlan,
    given: Given,
    file: Option<&NewFile>,
    command: Command,
) -> Result<ExitCode, Failure> {
    let recipients = Arc::new(Lock::new(Recipient::Nobody(None)));
    pass_signals_on(Arc::clone(&recipients)).map_err(|error| failed("handle signals", &error))?;
    let baseline = match plan.typed.baseline {
        true => Some(baseline::run(plan, given.inherited, &recipients)?),
        false => None,
    };
    let Given { inherited, files } = given;
    let (mut manager, socket) = start(command, inherited, &recipients)
        .map_err(|error| failed("start a manager", &error))?;
    files.close();
    // Without /dev/null they stay; then a reader waits a little longer than it must.
    let _ = release_streams();
    match follow(plan, file, baseline, socket, &recipients)? {
        Some(end) => {
            if plan.report.is_some() {
                // It has reported everything and ends now; waited for, its processor time counts as
                // this process's, as people who compare costs expect.
                let _ = manager.wait();
            }
            Ok(leave(end))
        }
        None => Err(lost(manager.wait())),
    }
}

/// Starts the manager of the run, which gets the signals from now on.
fn start(
    command: Command,
    inherited: Inherited,
    recipients: &Recipients,
) -> io::Result<(Child, UnixStream)> {
    let first = ToManager::Start(inherited.words());
    let (manager, front) = start_manager(command, stdin(), &first)?;
    let early = std::mem::replace(&mut *recipients.lock(), Recipient::Manager(front.try_clone()?));
    if let Recipient::Nobody(Some(signal)) = early {
        let _ = channel::send(&front, &ToManager::Signal(signal));
    }
    Ok((manager, front))
}

/// Programs that are named as not managed, at most; the report counts all.
const NAMED_MAX: usize = 256;

/// Does what the manager says; returns how the program ended, or `None` if the manager did first.
fn follow(
    plan: &RunPlan,
    file: Option<&NewFile>,
    baseline: Option<Baseline>,
    socket: UnixStream,
    recipients: &Recipients,
) -> Result<Option<End>, Failure> {
    let (mut ended, mut named) = (None, HashSet::new());
    for message in messages(socket) {
        match message {
            ToFront::Started => {}
            ToFront::Unmanaged(process) => {
                // Of a program that is started again and again, the first process is enough.
                let kind = (process.program.clone(), process.reason.clone());
                if named.len() < NAMED_MAX && named.insert(kind) {
                    tell_unmanaged(&process);
                }
            }
            ToFront::Remark(line) => remark(&line),
            ToFront::Ended(end) if plan.report.is_none() => return Ok(Some(end)),
            ToFront::Ended(end) => {
                ended = Some(end);
                *recipients.lock() = Recipient::Waiting(end);
            }
            ToFront::Done(record) => {
                if let (Some(asked), Some(end)) = (plan.report, ended) {
                    let document = report::Summary { plan, end, record: &record, baseline };
                    // The program did not fail, and its status is what counts.
                    report::write(&document, asked, file)
                        .unwrap_or_else(|failure| remark(failure.line()));
                }
                return Ok(ended);
            }
            ToFront::Failed { status, line } => return Err(Failure::new(line).with_status(status)),
        }
    }
    if ended.is_some() {
        remark("no report: the manager of this run was killed");
    }
    Ok(ended)
}

/// Ends this process as the program ended, or returns the status for that.
fn leave(end: End) -> ExitCode {
    match end {
        // A status has eight bits.
        End::Code(code) => ExitCode::from(code as u8),
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
    Failure::new(line).with_status(FAILED)
}

/// Forwards signals to their target, by a thread.
fn pass_signals_on(recipients: Arc<Recipients>) -> io::Result<()> {
    let mut signals = catch(&[])?;
    let pass = move || {
        for signal in signals.forever() {
            match &mut *recipients.lock() {
                // No manager stops this process.
                Recipient::Nobody(_) | Recipient::Baseline(..) | Recipient::Waiting(_)
                    if signal == SIGTSTP =>
                {
                    // It knows the signal.
                    let _ = emulate_default_handler(signal);
                }
                Recipient::Nobody(_) | Recipient::Waiting(_) if !is_harmful(signal) => {}
                Recipient::Nobody(early) => *early = Some(signal),
                Recipient::Baseline(process, by) => {
                    tell(*process, signal);
                    *by = is_harmful(signal).then_some(signal).or(*by);
                }
                // One that is gone is noticed by the end of its messages.
                Recipient::Manager(socket) => {
                    let _ = channel::send(socket, &ToManager::Signal(signal));
                }
                Recipient::Waiting(end) => {
                    remark("no report: interrupted while descendants were still running");
                    match *end {
                        End::Code(code) => std::process::exit(code),
                        End::Signal(signal) => die_of(signal),
                    }
                }
            }
        }
    };
    std::thread::Builder::new().name("zfold-signals".to_owned()).spawn(pass).map(drop)
}
