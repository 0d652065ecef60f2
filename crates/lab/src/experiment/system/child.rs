//! Programs that run beside an experiment: servers, none of which outlives its guard, and tools
//! that are waited for.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use zfold_compare::proc;

use crate::experiment::harness::turns::Fault;

/// How long a server may take until it serves.
const START_MAX: Duration = Duration::from_secs(10);
/// How long a server may take to end on request.
const END_MAX: Duration = Duration::from_secs(10);
/// How often to look whether it does.
const LOOK: Duration = Duration::from_millis(5);

/// A server in a process of its own, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    name: String,
    process: std::process::Child,
    /// Its error output goes here, since a pipe without a reader would stop it.
    log: PathBuf,
}

impl Child {
    /// Starts `command`, which complains into the file `log`, and waits until it is `ready`.
    ///
    /// # Errors
    /// [`Fault::Missing`] if the program is not installed, ends by itself, or is not ready in time.
    pub(crate) fn start(
        command: &mut Command,
        log: PathBuf,
        ready: impl Fn() -> bool,
    ) -> Result<Self, Fault> {
        let name = name(command);
        let complaints = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
        let process = command.spawn().map_err(|error| not_started(&name, &error))?;
        let mut child = Self { name, process, log };
        if wait(START_MAX, || ready() || child.has_ended()) && ready() {
            return Ok(child);
        }
        Err(Fault::Missing(format!("{} does not serve: {}", child.name, child.complaint())))
    }

    /// Returns the bytes of memory that are the server's.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the server has ended.
    pub(crate) fn resident_bytes(&self) -> Result<u64, Fault> {
        Ok(proc::resident_bytes_of(self.process.id())?)
    }

    /// Returns the last line that the server complained with.
    fn complaint(&self) -> String {
        last_line(&String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()))
    }

    /// Asks the server to end, and ends it if it does not. Does nothing if it has ended.
    pub(crate) fn end(&mut self) {
        // A process that has been waited for no longer has a number.
        if self.has_ended() {
            return;
        }
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        // If that fails, it is ended below.
        let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        if !wait(END_MAX, || self.has_ended()) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(Some(_)))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a tool to its end and returns what it printed.
///
/// # Errors
/// [`Fault::Missing`] if it is not installed or fails, with its last line.
pub(crate) fn run(command: &mut Command) -> Result<String, Fault> {
    let name = name(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| not_started(&name, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = last_line(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    Err(Fault::Missing(format!("{name} failed: {complaint}")))
}

/// Returns whether `done` came true within `most`.
pub(crate) fn wait(most: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if done() {
            return true;
        }
        if start.elapsed() > most {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

fn name(command: &Command) -> String {
    let program = Path::new(command.get_program());
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn not_started(name: &str, error: &std::io::Error) -> Fault {
    Fault::Missing(match error.kind() {
        std::io::ErrorKind::NotFound => format!("{name} is not installed"),
        _ => format!("{name} cannot be started: {error}"),
    })
}

/// Returns the last line of a program's error output that is not empty.
pub(crate) fn last_line(text: &str) -> String {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("it does not say why").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing<T: std::fmt::Debug>(result: Result<T, Fault>) -> String {
        match result {
            Err(Fault::Missing(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn servers_end_with_their_guard() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sleep");
        let child = Child::start(command.arg("600"), folder.path().join("log"), || true).unwrap();
        let process = format!("/proc/{}", child.process.id());
        assert!(child.resident_bytes().unwrap() > 0);
        drop(child);
        assert!(!Path::new(&process).exists());
    }

    #[test]
    fn what_cannot_be_run_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let start = |command: &mut Command| {
            missing(Child::start(command, folder.path().join("log"), || false))
        };
        assert_eq!(start(&mut Command::new("no-such-server")), "no-such-server is not installed");
        let ends = start(Command::new("sh").args(["-c", "echo no memory >&2"]));
        assert_eq!(ends, "sh does not serve: no memory");
        let fails = missing(run(Command::new("sh").args(["-c", "exit 3"])));
        assert_eq!(fails, "sh failed: it does not say why");
        assert_eq!(run(Command::new("echo").arg("text")).unwrap(), "text\n");
    }
}
