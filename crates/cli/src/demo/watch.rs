//! The program of the demo, started and measured from outside.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::param::page_size;
use serde::{Deserialize, Serialize};
use zfold_compare::proc::{Stat, bytes};

use super::view::{Shown, View};
use super::work::{Held, Message, NAME};
use crate::control::client::Client;
use crate::control::state::RunState;
use crate::shared::exit::Failure;
use crate::shared::secret::without_own_variables;

/// zfold itself, whatever has its name by now.
const ZFOLD: &str = "/proc/self/exe";

/// How long a run may take to report its state.
const PATIENCE: Duration = Duration::from_millis(200);

/// The memory and time that a program took.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    /// The most of all its memory that was resident, compressed pages included: `VmHWM` of the
    /// program, and of the manager of its run.
    pub(super) peak_bytes: u64,
    /// The most that was resident and not compressed.
    pub(super) uncompressed_bytes: u64,
    /// The most pages that were compressed at a time, and their memory.
    pub(super) stored: Option<Stored>,
    pub(super) wall_ns: u64,
    pub(super) checksum: String,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Stored {
    pub(super) pages_bytes: u64,
    pub(super) bytes: u64,
    pub(super) ratio: f64,
}

impl Stored {
    fn new(pages_bytes: u64, bytes: u64) -> Self {
        Self { pages_bytes, bytes, ratio: pages_bytes as f64 / bytes.max(1) as f64 }
    }
}

/// The part of a run's report that the demo reads.
#[derive(Deserialize)]
struct Report {
    peak_stored_pages: u64,
    peak_stored_bytes: u64,
}

/// The program at work. It ends with this.
#[derive(Debug)]
pub(super) struct Started {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// The lines on standard error.
    said: Option<JoinHandle<String>>,
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
        Self::start(&["run", "--limit", &limit, "--report=json", "--", ZFOLD, NAME, &size], true)
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
        let said = std::thread::spawn(move || read(stderr));
        Ok(Self { child, stdout, said: Some(said), began, is_run })
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
        let mut process = self.child.id();
        let mut line = String::new();
        loop {
            line.clear();
            // At the end there is nothing, which is no word of the program either.
            let _ = self.stdout.read_line(&mut line);
            match serde_json::from_str(&line) {
                Ok(Message::Process(number)) => process = number,
                Ok(Message::Progress(share, held)) if view.is_seen() => {
                    view.show(name, self.shown(share, limit, process, held));
                }
                Ok(Message::Progress(..)) => {}
                Ok(Message::Done { checksum, held }) => {
                    return self.measure(process, checksum, held);
                }
                Err(_) => return Err(self.failure(name)),
            }
        }
    }

    fn shown(&self, share: f64, limit: Option<u64>, process: u32, held: Option<Held>) -> Shown {
        let stored = match (held, self.is_run) {
            (Some(held), _) => Some((held.stored_pages_bytes, held.stored_bytes)),
            (None, true) => {
                let figures = state(self.child.id()).map(|state| state.figures);
                figures.map(|it| (it.stored_pages_bytes, it.stored_bytes))
            }
            (None, false) => None,
        };
        let resident = held.map(|held| held.resident_bytes);
        let resident = resident.or_else(|| of(process, "VmRSS:")).unwrap_or_default();
        Shown { share, limit, resident, stored }
    }

    /// Looks at the program, which waits for that, and lets it end.
    fn measure(
        mut self,
        process: u32,
        checksum: u64,
        held: Option<Held>,
    ) -> Result<Measured, Failure> {
        let wall_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let peak = of(process, "VmHWM:").unwrap_or_default();
        let manager = match self.is_run {
            true => {
                let manager = Stat::of(process).ok().and_then(|stat| stat.parent());
                manager.and_then(|manager| of(manager, "VmHWM:")).unwrap_or_default()
            }
            false => 0,
        };
        let (status, said) = self.end();
        if !status.is_some_and(|status| status.success()) {
            return Err(failed("at its end, the program", status, &said));
        }
        let stored = match (held, self.is_run) {
            (Some(held), _) => Some(Stored::new(held.stored_pages_bytes, held.stored_bytes)),
            (None, true) => {
                let report =
                    said.lines().find_map(|line| serde_json::from_str::<Report>(line).ok());
                let report = report.ok_or_else(|| failed("the run", status, &said))?;
                let pages_bytes = report.peak_stored_pages * page_size() as u64;
                Some(Stored::new(pages_bytes, report.peak_stored_bytes))
            }
            (None, false) => None,
        };
        Ok(Measured {
            peak_bytes: peak + manager,
            uncompressed_bytes: held.map_or(peak, |held| held.resident_bytes),
            stored,
            wall_ns,
            checksum: format!("{checksum:016x}"),
        })
    }

    fn failure(mut self, name: &str) -> Failure {
        let (status, said) = self.end();
        failed(&format!("{name}, the program"), status, &said)
    }

    /// Waits for the end, and returns it with the lines on standard error.
    fn end(&mut self) -> (Option<ExitStatus>, String) {
        drop(self.child.stdin.take());
        let status = self.child.wait().ok();
        let said = self.said.take().and_then(|said| said.join().ok());
        (status, said.unwrap_or_default())
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
fn failed(what: &str, status: Option<ExitStatus>, said: &str) -> Failure {
    let last = said.lines().rfind(|line| line.starts_with("zfold: "));
    let why = match (last, status) {
        (Some(line), _) => line.trim_start_matches("zfold: ").to_owned(),
        (None, Some(status)) => format!("{status}; if memory is short here, give it --size 64MiB"),
        (None, None) => "it cannot be waited for".to_owned(),
    };
    Failure::new(format!("{what} failed: {why}"))
}

fn read(mut stderr: ChildStderr) -> String {
    let mut said = String::new();
    // The bytes that could be read are all that there are.
    let _ = stderr.read_to_string(&mut said);
    said
}

/// Returns the bytes that the kernel reports for a process under this name.
fn of(process: u32, name: &str) -> Option<u64> {
    bytes(&fs::read_to_string(format!("/proc/{process}/status")).ok()?, name)
}

/// Returns what the run of this front holds.
fn state(front: u32) -> Option<RunState> {
    let client = Client::of_run(front).ok()?.with_patience(PATIENCE);
    serde_json::from_value(client.ok()?.ask("stat", Vec::new()).ok()?).ok()
}
