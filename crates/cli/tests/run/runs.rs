//! Programs under `zfold run`, and what can be found out about their processes.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::{LazyLock, OnceLock};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use zfold_compare::proc::{self, Stat};
use zfold_testing::wait_until;

use crate::common::{command, skip};

/// Returns whether programs can be managed here; says so if not.
pub(crate) fn can_manage() -> bool {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    let reason = REASON.get_or_init(|| {
        let output = managed(&["true"]).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        match output.status.success() {
            true => None,
            false if said.contains("grant it with") || said.contains("this kernel") => Some(said),
            false => panic!("zfold run -- true: {said}"),
        }
    });
    if let Some(reason) = reason {
        skip(reason);
    }
    reason.is_none()
}

/// Returns a program under a limit.
pub(crate) fn managed(program: &[&str]) -> Command {
    let mut command = command(&["run", "--limit", "64MiB", "--"]);
    command.args(program);
    command
}

/// Returns a shell script under a limit.
pub(crate) fn script(text: &str) -> Command {
    managed(&["sh", "-c", text])
}

/// Runs a shell script under a limit.
pub(crate) fn output(text: &str) -> Output {
    with_default_signals(&script(text)).output().expect("it starts")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Returns a command whose signals are not ignored, as they are here if the tests were started in
/// the background of a shell that does no job control.
pub(crate) fn with_default_signals(command: &Command) -> Command {
    const DEFAULT: [&str; 2] = ["env", "--default-signal"];
    // Other systems' env may not have the option.
    static WORKS: LazyLock<bool> = LazyLock::new(|| {
        let output = Command::new(DEFAULT[0]).args([DEFAULT[1], "true"]).output();
        output.is_ok_and(|output| output.status.success())
    });
    let before = if *WORKS { &DEFAULT[..] } else { &[] };
    let words = before.iter().map(OsStr::new).chain([command.get_program()]);
    let mut words = words.chain(command.get_args());
    let mut defaulted = Command::new(words.next().expect("a program"));
    defaulted.args(words);
    defaulted
}

/// A program that runs under zfold, in a process group of its own, with pipes to it.
pub(crate) struct Run {
    front: Child,
    /// Dropping it would let the program read the end of its input.
    pub(crate) input: Option<ChildStdin>,
    pub(crate) lines: BufReader<ChildStdout>,
}

impl Run {
    /// Starts a shell script.
    pub(crate) fn start(text: &str) -> Self {
        let mut command = with_default_signals(&script(text));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut front = command.process_group(0).spawn().expect("it starts");
        let lines = BufReader::new(front.stdout.take().expect("a pipe"));
        Self { input: front.stdin.take(), front, lines }
    }

    /// Returns the next line of the program; an empty one at the end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    pub(crate) fn front(&self) -> Pid {
        Pid::from_child(&self.front)
    }

    /// Returns the manager.
    pub(crate) fn manager(&self) -> Pid {
        let manager = manager_of(self.front.id()).expect("a manager");
        Pid::from_raw(manager.cast_signed()).expect("a process")
    }

    /// Sends a signal to the front alone.
    pub(crate) fn tell(&self, signal: Signal) {
        kill_process(self.front(), signal).expect("it runs");
    }

    /// Sends a signal to front, manager and program.
    pub(crate) fn tell_group(&self, signal: Signal) {
        kill_process_group(self.front(), signal).expect("it runs");
    }

    /// Returns how the front ended, and what it and the program said on their standard error.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        // Waiting for a child would close its input.
        let _input = self.input.take();
        let output = self.front.wait_with_output().expect("it ends");
        (output.status, text(&output.stderr))
    }
}

/// Returns the manager that a front has started.
pub(crate) fn manager_of(front: u32) -> Option<u32> {
    proc::all().find(|&process| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        parent(process) == Some(front) && line.split(|byte| *byte == 0).any(|w| w == b"manage")
    })
}

/// Waits for the end of a process that was killed: it closes its files some moments before.
pub(crate) fn wait_for_end(process: &str) {
    wait_until(format_args!("{process} has ended"), || !is_running(process));
}

/// Returns whether a process runs: one that nobody has waited for does not.
pub(crate) fn is_running(process: &str) -> bool {
    let stat = process.parse().ok().and_then(|process| Stat::of(process).ok());
    stat.and_then(|stat| stat.state()).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn parent(process: u32) -> Option<u32> {
    Stat::of(process).ok()?.parent()
}
