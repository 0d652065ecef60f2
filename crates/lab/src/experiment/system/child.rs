//! Programs that an experiment runs and waits for.

use std::ffi::OsStr;
use std::io::{Read as _, Seek as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use zfold_compare::proc;

use crate::experiment::harness::{Cost, Stopwatch};
use crate::experiment::{Error, Settings};

/// How often to look at what is waited for.
const LOOK: Duration = Duration::from_millis(10);

/// Runs a tool to its end and returns what it printed.
///
/// # Errors
/// [`Error::Missing`] if it is not installed or fails, with its last line.
pub(crate) fn run(command: &mut Command) -> Result<String, Error> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        Error::Missing(match error.kind() {
            std::io::ErrorKind::NotFound => format!("{name} is not installed"),
            _ => format!("{name} cannot be started: {error}"),
        })
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = last_line(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    Err(Error::Missing(format!("{name} failed: {complaint}")))
}

/// Returns whether `done` came true within `most`.
pub(crate) fn wait(most: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > most {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

/// Returns the last line of a program's error output that is not empty.
pub(crate) fn last_line(text: &str) -> String {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("it does not say why").to_owned()
}

/// Returns a command that runs `program` under `zfold run` with a limit and more `options`.
///
/// # Errors
/// [`Error::Missing`] if there is no zfold, with the remedy.
pub(crate) fn under_zfold(
    settings: &Settings,
    limit_bytes: u64,
    options: &[&OsStr],
    program: &OsStr,
) -> Result<Command, Error> {
    let missing = "there is no zfold beside zfold-lab or in PATH: cargo build --release builds it";
    let zfold = settings.zfold.as_ref().ok_or_else(|| Error::Missing(missing.to_owned()))?;
    let mut command = Command::new(zfold);
    command.args(["run", "--codec", "lz4", "--limit", &format!("{}KiB", limit_bytes >> 10)]);
    command.args(options).arg("--").arg(program);
    Ok(command)
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Of the program and all descendants that were waited for.
    pub(crate) cost: Cost,
    /// Its error output.
    pub(crate) complaint: String,
    /// The largest sampled value.
    pub(crate) peak: u64,
}

/// Runs `command` to its end, and looks at something of its process meanwhile.
///
/// # Errors
/// The program cannot be started, or the system does not report its cost.
pub(crate) fn watch(
    command: &mut Command,
    mut look: impl FnMut(u32) -> Option<u64>,
) -> Result<Ended, Error> {
    // A file, since a pipe without a reader would stop it.
    let mut complaint = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaint.try_clone()?);
    let stopwatch = Stopwatch::of_children()?;
    let mut child = Running(command.spawn()?);
    let mut peak = 0;
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        peak = peak.max(look(child.0.id()).unwrap_or(0));
        std::thread::sleep(LOOK);
    };
    let cost = stopwatch.stop()?;
    complaint.rewind()?;
    let mut bytes = Vec::new();
    complaint.read_to_end(&mut bytes)?;
    // Programs may write in any encoding.
    Ok(Ended { status, cost, complaint: String::from_utf8_lossy(&bytes).into_owned(), peak })
}

/// A program that is ended when this is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended by itself, unless the work was given up.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the bytes of anonymous memory that a process and its descendants have in RAM; pages
/// that are shared after a fork count for each.
pub(crate) fn anonymous_bytes(root: u32) -> Option<u64> {
    Some(proc::tree(root).into_iter().filter_map(proc::anonymous_bytes).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::tiny;

    #[test]
    fn what_cannot_be_run_is_named_with_the_reason() {
        let missing = |result: Result<String, Error>| match result {
            Err(Error::Missing(reason)) => reason,
            other => panic!("{other:?}"),
        };
        let none = missing(run(&mut Command::new("no-such-tool")));
        assert_eq!(none, "no-such-tool is not installed");
        let complains = missing(run(Command::new("sh").args(["-c", "echo no memory >&2; exit 1"])));
        assert_eq!(complains, "sh failed: no memory");
        let fails = missing(run(Command::new("sh").args(["-c", "exit 3"])));
        assert_eq!(fails, "sh failed: it does not say why");
        assert_eq!(run(Command::new("echo").arg("text")).unwrap(), "text\n");
    }

    #[test]
    fn a_run_has_a_cost_a_peak_and_a_complaint() {
        let folder = tempfile::tempdir().unwrap();
        let seen = folder.path().join("seen");
        let mut command = Command::new("sh");
        // It works until it has been looked at.
        let work = "until [ -e \"$0\" ]; do :; done; echo no >&2; exit 3";
        command.args(["-c", work]).arg(&seen);
        let mut looks = 0;
        let ended = watch(&mut command, |_| {
            std::fs::write(&seen, "").unwrap();
            looks += 1;
            Some(looks)
        })
        .unwrap();
        assert_eq!((ended.status.code(), &*ended.complaint), (Some(3), "no\n"));
        assert!(ended.peak == looks && looks > 0);
        assert!(ended.cost.real > 0.0, "{:?}", ended.cost);
    }

    #[test]
    fn the_limit_is_in_kibibytes_and_without_zfold_the_remedy_is_named() {
        let settings = Settings { zfold: Some("zfold".into()), ..tiny() };
        let options = ["--allocator".as_ref(), "zbud".as_ref()];
        let command = under_zfold(&settings, 5 << 20, &options, "make".as_ref()).unwrap();
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        assert_eq!(args.join(" "), "run --codec lz4 --limit 5120KiB --allocator zbud -- make");
        let error = under_zfold(&tiny(), 5 << 20, &options, "make".as_ref()).unwrap_err();
        assert!(error.to_string().contains("cargo build --release"), "{error}");
    }
}
