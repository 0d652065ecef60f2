//! One program's run, alone or under a limit, with an end in any case.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use zfold_testing::compiled::{Compiled, compile};
use zfold_testing::process::Group;

use crate::common::{self, read_report, skip};
use crate::needs::ready;

/// How long a run may take: many times what the longest takes on a busy machine, that of 800
/// children (2 to 20 s).
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The exit status of a program that is not let do its work; its last line says by what.
pub(crate) const MISSING: Option<i32> = Some(77);

/// Returns a compiled program of the folder, where runs are possible; says what is missing if not.
pub(crate) fn program(name: &str) -> Option<Compiled> {
    if !ready(&["cc"]) {
        return None;
    }
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/judges/programs/{name}.c"));
    let (options, library) = match name {
        "leaks" => (&["-fsanitize=address"][..], "asan"),
        "ordered" => (&["-fsanitize=thread"][..], "tsan"),
        _ => (&[][..], ""),
    };
    match compile(&source, options) {
        Ok(compiled) => Some(compiled),
        Err(said) if !options.is_empty() && said.contains(library) => {
            skip(format!("cc has no lib{library} (a package of this compiler)"));
            None
        }
        Err(said) => panic!("{name}: {said}"),
    }
}

/// A program and all of its processes, which end with this.
pub(crate) struct Running {
    pub(crate) child: Group,
    stdout: File,
    stderr: File,
    began: Instant,
    /// Where the report of a run goes.
    folder: TempDir,
}

/// How a program ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// The last line of its output.
    pub(crate) last: String,
    /// All of that.
    pub(crate) printed: String,
    /// What it and zfold said on their standard error.
    pub(crate) said: String,
    pub(crate) wall: Duration,
    /// The report of the run; none of a program alone, or if the run was ended.
    pub(crate) report: Option<Value>,
}

impl Running {
    /// Starts a program alone, without input.
    fn alone(program: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        Self::start(command, tempfile::tempdir().expect("a directory"))
    }

    /// Starts a program under a limit.
    pub(crate) fn limited(program: &Path, arguments: &[&str], mib: u64, input: Stdio) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let mut command = common::command(&["run", "--report=json", "--report-file"]);
        command.arg(folder.path().join("report")).args(["--limit", &format!("{mib}MiB"), "--"]);
        command.arg(program).args(arguments).stdin(input);
        Self::start(command, folder)
    }

    /// What is printed goes to files: nobody waits for who is left over and keeps a pipe open.
    fn start(mut command: Command, folder: TempDir) -> Self {
        let [stdout, stderr] = [(); 2].map(|()| tempfile::tempfile().expect("a file"));
        let copy = |file: &File| file.try_clone().expect("a descriptor");
        command.stdout(copy(&stdout)).stderr(copy(&stderr)).process_group(0);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child: Group(child), stdout, stderr, began: Instant::now(), folder }
    }

    /// Returns what has been printed so far.
    pub(crate) fn printed(&self) -> String {
        text(&self.stdout)
    }

    /// Waits until that holds a line.
    pub(crate) fn wait_for(&self, line: &str) {
        while !self.printed().lines().any(|printed| printed == line) {
            let said = text(&self.stderr);
            assert!(self.began.elapsed() < PATIENCE, "no {line:?} within {PATIENCE:?}: {said}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> Ended {
        let status = loop {
            if let Some(status) = self.child.0.try_wait().expect("a child") {
                break status;
            }
            let [printed, said] = [&self.stdout, &self.stderr].map(text);
            assert!(self.began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {printed}{said}");
            std::thread::sleep(Duration::from_millis(10));
        };
        let wall = self.began.elapsed();
        let [printed, said] = [&self.stdout, &self.stderr].map(text);
        let last = printed.lines().last().unwrap_or_default().to_owned();
        let report = self.folder.path().join("report");
        let report = report.metadata().is_ok_and(|it| it.len() > 0).then(|| read_report(&report));
        Ended { status, last, printed, said, wall, report }
    }
}

/// Returns what is in a file so far. Who writes to it goes on where it is.
fn text(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().expect("a file of ours").len() as usize];
    let read = file.read_at(&mut bytes, 0).expect("a file of ours");
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

/// Runs a program alone; it must be right. `None` if something is missing for it, which is said.
pub(crate) fn alone(program: &Path, arguments: &[&str]) -> Option<Ended> {
    let ended = Running::alone(program, arguments).end();
    if ended.status.code() == MISSING {
        skip(format!("this system does not allow {}", ended.last));
        return None;
    }
    assert!(ended.status.success(), "alone: {}: {}", ended.status, ended.printed);
    Some(ended)
}

/// Runs a program under a limit, without input.
pub(crate) fn limited(program: &Path, arguments: &[&str], mib: u64) -> Ended {
    Running::limited(program, arguments, mib, Stdio::null()).end()
}
