//! A program's run alone and under limits, and what must be the same.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::common;
use crate::needs;
use crate::observer::{Observer, Seen};
use zfold_testing::skip::this_test;

/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// How often the observer looks.
const INTERVAL: Duration = Duration::from_millis(20);

/// What may be resident above a limit: this share of it, while pages are on their way.
const ABOVE_PER_CENT: u64 = 5;
/// Times the limit that may be resident in a run whose report says that at some moment nothing
/// could leave: memory that a fork shares, or that is protected against writing.
const ABOVE_WHEN_NOTHING_LEAVES: u64 = 8;
/// Up to this limit a program has a helper before its first instruction.
const MANAGED_AT_ONCE_BYTES: u64 = 16 << 20;
/// What may be on its way out of a managed process at a time, and is nobody's yet.
const ON_ITS_WAY_BYTES_PER_SPACE: u64 = 1 << 20;

/// What is never managed in each process: its stack, and the pages of files that it has changed.
/// Most is Java's, which changes the classes that it maps.
const UNMANAGED_BYTES_PER_PROCESS_MAX: u64 = 13 << 20;

/// What zfold's own processes hold beside the pages and the store.
const MANAGER_BYTES: u64 = 12 << 20;

/// No limit is below this: less than what is not managed.
const LIMIT_BYTES_MIN: u64 = 4 << 20;

/// A program to run, in a directory that was prepared for it.
#[derive(Debug, Default)]
pub(crate) struct Job {
    /// The program and its arguments.
    pub(crate) line: Vec<String>,
    /// The files that it makes there.
    pub(crate) files: Vec<&'static str>,
    /// Whether what it prints is other in each run, such as times; then only the exit status and
    /// the files count.
    pub(crate) talks: bool,
    /// Whether it mostly waits for pages when it has a quarter of its memory; then it runs under
    /// half, and under a quarter only where there is time.
    pub(crate) needs_half: bool,
    /// The least limit, in bytes: for a program with a peak too short to be sampled each time.
    pub(crate) least: u64,
    /// Whether its limit is kept in any case: there is no moment at which nothing can leave.
    pub(crate) kept: bool,
}

impl Job {
    /// A program whose output counts, and the files that it makes.
    pub(crate) fn new(line: &[&str]) -> Self {
        Self {
            line: line.iter().copied().map(str::to_owned).collect(),
            least: LIMIT_BYTES_MIN,
            ..Self::default()
        }
    }
}

/// What a run left.
#[derive(Debug)]
pub(crate) struct Outcome {
    status: ExitStatus,
    printed: Vec<u8>,
    complaint: String,
    files: Vec<Vec<u8>>,
    needs_half: bool,
    least: u64,
    kept: bool,
    pub(crate) seen: Seen,
    report: Option<Value>,
}

/// Runs what `prepare` says, in a directory that it has filled: alone, then under a quarter of the
/// memory that it had then, or under half; where there is time, under both.
pub(crate) fn check(prepare: impl Fn(&Path) -> Job) {
    let _alone = needs::alone();
    let scratch = Scratch::new();
    let expected = scratch.run_alone(&prepare);
    let short = if expected.needs_half { &[2] } else { &[4] };
    for &part in needs::sized(&short[..], &[2, 4]) {
        let limit = (expected.seen.managed_bytes / part).max(expected.least);
        let outcome = scratch.run(Some(limit), &prepare);
        outcome.assert_same(&expected);
        outcome.assert_kept(limit);
    }
}

/// Runs what `prepare` says under `limit` only; it must succeed. Returns the report.
pub(crate) fn check_at(limit: u64, prepare: impl Fn(&Path) -> Job) -> Value {
    let _alone = needs::alone();
    let outcome = Scratch::new().run(Some(limit), &prepare);
    assert!(outcome.status.success(), "at {limit} bytes: {outcome:?}");
    outcome.assert_kept(limit);
    outcome.report.expect("a report")
}

/// Ends what still runs, also when a test ends by a panic.
struct Tree(Observer);

impl Drop for Tree {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// A directory for the runs of a test.
struct Scratch {
    dir: TempDir,
    /// Where the program runs.
    work: PathBuf,
}

impl Scratch {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let work = dir.path().join("work");
        Self { dir, work }
    }

    /// Runs what `prepare` says without zfold; it must succeed.
    fn run_alone(&self, prepare: impl Fn(&Path) -> Job) -> Outcome {
        let outcome = self.run(None, prepare);
        assert!(outcome.status.success(), "it fails alone: {outcome:?}");
        outcome
    }

    /// Empties the directory, which has the same name in each run because some programs write it
    /// to their files, and runs what `prepare` says there.
    fn run(&self, limit: Option<u64>, prepare: impl Fn(&Path) -> Job) -> Outcome {
        if self.work.exists() {
            fs::remove_dir_all(&self.work).expect("a directory of ours");
        }
        fs::create_dir(&self.work).expect("a directory");
        let job = prepare(&self.work);
        let mut command = self.command(limit, &job);
        let began = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut tree = Tree(Observer::new(child.id(), Path::new(env!("CARGO_BIN_EXE_zfold"))));
        let status = loop {
            tree.0.sample();
            if let Some(status) = child.try_wait().expect("a child") {
                break status;
            }
            if began.elapsed() > PATIENCE {
                tree.0.kill();
                let _ = child.wait();
                panic!("{limit:?}: not within {PATIENCE:?}: {command:?}");
            }
            std::thread::sleep(INTERVAL);
        };
        self.outcome(&job, status, tree.0.seen())
    }

    fn command(&self, limit: Option<u64>, job: &Job) -> Command {
        let mut command = match limit {
            None => Command::new(&job.line[0]),
            Some(limit) => {
                let report = self.dir.path().join("report");
                let mut command = common::command(&["run", "--report=json", "--report-file"]);
                let limit = format!("{}KiB", limit >> 10);
                command.arg(report).args(["--limit", &limit, "--", &job.line[0]]);
                command
            }
        };
        let file = |name| File::create(self.dir.path().join(name)).expect("a file");
        command.args(&job.line[1..]).current_dir(&self.work).env("PATH", path());
        command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr"));
        command
    }

    fn outcome(&self, job: &Job, status: ExitStatus, seen: Seen) -> Outcome {
        let read = |name| fs::read(self.dir.path().join(name)).expect("a file");
        let complaint = String::from_utf8_lossy(&read("stderr")).into_owned();
        let files = job.files.iter().map(|name| {
            let path = self.work.join(name);
            fs::read(path).unwrap_or_else(|error| panic!("{name}: {error}: {complaint}"))
        });
        let files = if status.success() { files.collect() } else { Vec::new() };
        let report = fs::read(self.dir.path().join("report")).ok();
        let report = report.map(|text| serde_json::from_slice(&text).expect("JSON"));
        let printed = if job.talks { Vec::new() } else { read("stdout") };
        let Job { needs_half, least, kept, .. } = *job;
        Outcome { status, printed, complaint, files, needs_half, least, kept, seen, report }
    }
}

fn path() -> OsString {
    std::env::join_paths(needs::path()).expect("a path")
}

/// Says loudly that a limit was passed, and that the report of the run admits it.
fn tell_above(managed_bytes: u64, limit: u64, over: u64) {
    let _ = writeln!(
        std::io::stderr(),
        "ABOVE THE LIMIT: {}: {managed_bytes} bytes of {limit}; over_limit {over}",
        this_test()
    );
}

impl Outcome {
    /// Checks that nobody can see a difference.
    fn assert_same(&self, expected: &Self) {
        let said = &self.complaint;
        assert_eq!(self.status, expected.status, "{said}");
        let [printed, usual] =
            [&self.printed, &expected.printed].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(self.printed == expected.printed, "{printed} instead of {usual}; {said}");
        assert!(self.files == expected.files, "it made other files; {said}");
    }

    /// Checks that no more was resident than `limit` allows.
    fn assert_kept(&self, limit: u64) {
        let report = self.report.as_ref().expect("a report");
        let figure = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}"));
        let Seen { managed_bytes, unmanaged_bytes, total_bytes, processes, .. } = self.seen;
        let over = figure("over_limit");
        let leaving = figure("managed") * ON_ITS_WAY_BYTES_PER_SPACE;
        let mut allowed = limit * (100 + ABOVE_PER_CENT) / 100 + leaving;
        let charged = figure("peak_charge_bytes");
        if !self.kept && (over > 0 || charged > allowed) && managed_bytes > allowed {
            // The report says so itself: nothing could leave at that moment.
            tell_above(managed_bytes, limit, over);
            allowed = limit * ABOVE_WHEN_NOTHING_LEAVES;
        }
        let at_once = limit <= MANAGED_AT_ONCE_BYTES;
        assert!(!at_once || figure("managed") > 0, "no helper: {report}");
        assert!(managed_bytes <= allowed, "{managed_bytes} > {allowed}: {report}");
        let most = UNMANAGED_BYTES_PER_PROCESS_MAX * processes as u64;
        assert!(unmanaged_bytes <= most, "{unmanaged_bytes} not managed: {report}");
        let allowed = allowed + unmanaged_bytes + figure("peak_stored_bytes") + MANAGER_BYTES;
        assert!(total_bytes <= allowed, "with zfold: {total_bytes} > {allowed}: {report}");
    }
}
