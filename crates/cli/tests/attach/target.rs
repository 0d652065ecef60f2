//! Processes that are attached to, and what can be seen of them.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use zfold_testing::process::Killed;

use crate::common::{command, skip};

/// Returns whether processes can be managed here; says so if not.
pub(crate) fn can_attach() -> bool {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    let reason = REASON.get_or_init(|| {
        let mut target = Target::start(Command::new("cat"));
        let output = target.attach("64MiB");
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        target.finish();
        let line = said.lines().last().unwrap_or_default().to_owned();
        match output.status.success() {
            true => None,
            false if said.contains("grant it with") || said.contains("this kernel") => Some(line),
            false => panic!("zfold attach: {said}"),
        }
    });
    if let Some(reason) = reason {
        skip(reason);
    }
    reason.is_none()
}

/// A process that runs already, with pipes to it.
pub(crate) struct Target {
    child: Killed,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    /// Where sockets of its managers are.
    runtime: TempDir,
}

impl Target {
    pub(crate) fn start(mut command: Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let runtime = tempfile::tempdir().expect("a folder");
        Self { input: child.stdin.take(), child: Killed(child), lines, runtime }
    }

    /// Starts a program in Python, which has said "ready" when this returns.
    pub(crate) fn python(text: &str) -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", text]);
        let mut target = Self::start(python);
        assert_eq!(target.line(), "ready");
        target
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn runtime(&self) -> &Path {
        self.runtime.path()
    }

    /// Returns `zfold attach` to it with a limit.
    pub(crate) fn attaching(&self, limit: &str) -> Command {
        let mut attach = command(&["attach", "--yes", "--limit", limit]);
        attach.arg(self.pid().to_string()).env("XDG_RUNTIME_DIR", self.runtime());
        attach
    }

    /// Puts it under a limit.
    pub(crate) fn attach(&mut self, limit: &str) -> Output {
        self.attaching(limit).stdin(Stdio::null()).output().expect("it starts")
    }

    /// Puts it under a limit, which must succeed; returns what is said.
    pub(crate) fn attached(&mut self, limit: &str) -> String {
        let output = self.attach(limit);
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    }

    /// Checks that it goes on: it says what it is told.
    pub(crate) fn echoes(&mut self) {
        self.tell("here");
        assert_eq!(self.line(), "here");
    }

    /// Writes a line to it.
    pub(crate) fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input");
        writeln!(input, "{line}").expect("it reads");
    }

    /// Returns the next line that it writes; an empty one at the end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Has it read the end of its input; returns how it ends.
    pub(crate) fn finish(mut self) -> ExitStatus {
        drop(self.input.take());
        self.child.wait().expect("it ends")
    }
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns a line of the status of a process, without its name.
pub(crate) fn status(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

/// Returns the anonymous memory of processes that is resident, what they share counted once.
pub(crate) fn resident(pids: &[u32]) -> u64 {
    pids.iter().filter_map(|&pid| zfold_compare::proc::proportional_anonymous_bytes(pid)).sum()
}

/// Waits until no more is resident; returns how long that took.
pub(crate) fn wait_for_limit(pids: &[u32], bytes: u64) -> Duration {
    let began = Instant::now();
    zfold_testing::wait_until("the limit is kept", || resident(pids) <= bytes);
    began.elapsed()
}
