//! The program of the demo, started and measured from outside.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use zfold_compare::proc::{Stat, bytes};

use super::view::{Stored, View};
use super::work::{Held, NAME, Said};
use crate::control::client::Client;
use crate::control::state::RunState;
use crate::shared::exit::Failure;
use crate::shared::secret::without_own_variables;

/// zfold itself, whatever has its name by now.
const ZFOLD: &str = "/proc/self/exe";

/// How long a run may take to report its state while it is shown, and at the end.
const SHOWN_WITHIN: Duration = Duration::from_millis(200);
const DONE_WITHIN: Duration = Duration::from_secs(10);

/// The memory and time that a program took.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    /// The most of all its memory that was resident, compressed pages included: `VmHWM` of the
    /// program, and of the manager of its run.
    pub(super) peak_bytes: u64,
    /// The most that was resident and not compressed; of a region, that at the end.
    pub(super) uncompressed_bytes: u64,
    /// The pages that were compressed at the end, and their memory.
    pub(super) stored: Option<Stored>,
    pub(super) wall_ns: u64,
    pub(super) checksum: String,
}

/// The program at work. It ends with this.
#[derive(Debug)]
pub(super) struct Started {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// The lines on standard error.
    errors: Option<JoinHandle<String>>,
    began: Instant,
    is_run: bool,
}

impl Started {
    /// Starts it without a limit.
    pub(super) fn alone(size: u64) -> Result<Self, Failure> {
        Self::start(&[NAME, &size.to_string()], false)
    }

    /// Starts it under a run.
    pub(super) fn under_run(size: u64, limit: u64) -> Result<Self, Failure> {
        let (size, limit) = (size.to_string(), limit.to_string());
        Self::start(&["run", "--limit", &limit, "--", ZFOLD, NAME, &size], true)
    }

    /// Starts it with its data in a region.
    pub(super) fn with_region(size: u64, limit: u64) -> Result<Self, Failure> {
        Self::start(&[NAME, &size.to_string(), &limit.to_string()], false)
    }

    fn start(arguments: &[&str], is_run: bool) -> Result<Self, Failure> {
        let began = Instant::now();
        let mut command = Command::new(ZFOLD);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = without_own_variables(&mut command)
            .spawn()
            .map_err(|error| Failure::new(format!("cannot start the program: {error}")))?;
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let stderr = child.stderr.take().expect("a pipe");
        let errors = std::thread::spawn(move || read(stderr));
        Ok(Self { child, stdout, errors: Some(errors), began, is_run })
    }

    /// Shows the program at work until it has ended; returns what it took.
    ///
    /// # Errors
    /// It failed, or was killed.
    pub(super) fn follow(
        mut self,
        view: &View,
        name: &'static str,
        limit: Option<u64>,
    ) -> Result<Measured, Failure> {
        let mut line = String::new();
        loop {
            line.clear();
            // At the end there is nothing, which is no line of the program either.
            let _ = self.stdout.read_line(&mut line);
            match serde_json::from_str::<Said>(&line) {
                Ok(Said { checksum: Some(checksum), process, held, .. }) => {
                    let wall_ns = u64::try_from(self.began.elapsed().as_nanos());
                    let peak = of(process, "VmHWM:").unwrap_or_default();
                    let measured = Measured {
                        peak_bytes: peak + self.manager(process),
                        uncompressed_bytes: held.map_or(peak, |held| held.resident_bytes),
                        stored: self.stored(held, DONE_WITHIN),
                        wall_ns: wall_ns.unwrap_or(u64::MAX),
                        checksum,
                    };
                    return match self.end() {
                        (Some(status), _) if status.success() => Ok(measured),
                        (status, errors) => Err(failed("at its end, the program", status, &errors)),
                    };
                }
                Ok(Said { process, share, held, .. }) if view.is_seen() => {
                    let resident = held.map(|held| held.resident_bytes);
                    let resident = resident.or_else(|| of(process, "VmRSS:")).unwrap_or_default();
                    view.show(name, share, limit, resident, self.stored(held, SHOWN_WITHIN));
                }
                Ok(_) => {}
                Err(_) => {
                    let (status, errors) = self.end();
                    return Err(failed(&format!("{name}, the program"), status, &errors));
                }
            }
        }
    }

    /// Returns what is stored now: in the region of the program, or by its run.
    fn stored(&self, held: Option<Held>, patience: Duration) -> Option<Stored> {
        if let Some(held) = held {
            return Some(Stored::new(held.stored_pages_bytes, held.stored_bytes));
        }
        let client = self.is_run.then(|| Client::of_run(self.child.id()).ok()).flatten()?;
        let state = client.with_patience(patience).ok()?.ask("stat", Vec::new()).ok()?;
        let figures = serde_json::from_value::<RunState>(state).ok()?.figures;
        Some(Stored::new(figures.stored_pages_bytes, figures.stored_bytes))
    }

    /// Returns the most memory that the manager of a run had.
    fn manager(&self, process: u32) -> u64 {
        let parent = || Stat::of(process).ok()?.parent();
        self.is_run.then(parent).flatten().and_then(|it| of(it, "VmHWM:")).unwrap_or_default()
    }

    /// Waits for the end, and returns it with the lines on standard error.
    fn end(&mut self) -> (Option<ExitStatus>, String) {
        drop(self.child.stdin.take());
        let status = self.child.wait().ok();
        let errors = self.errors.take().and_then(|errors| errors.join().ok());
        (status, errors.unwrap_or_default())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It has ended, or does so now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the failure of a program that said this last.
fn failed(what: &str, status: Option<ExitStatus>, errors: &str) -> Failure {
    let last = errors.lines().rfind(|line| line.starts_with("zfold: "));
    let why = match (last, status) {
        (Some(line), _) => line.trim_start_matches("zfold: ").to_owned(),
        (None, Some(status)) => format!("{status}; if memory is short here, give it --size 64MiB"),
        (None, None) => "it cannot be waited for".to_owned(),
    };
    Failure::new(format!("{what} failed: {why}"))
}

fn read(mut stderr: ChildStderr) -> String {
    let mut errors = String::new();
    // The bytes that could be read are all that there are.
    let _ = stderr.read_to_string(&mut errors);
    errors
}

/// Returns the bytes that the kernel reports for a process under this name.
fn of(process: u32, name: &str) -> Option<u64> {
    bytes(&fs::read_to_string(format!("/proc/{process}/status")).ok()?, name)
}
