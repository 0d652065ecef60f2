//! Programs under `zfold run`, with the report of each run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::experiment::turns::Fault;
use crate::latency::Latency;

/// How a program is run.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct ZfoldRun<'a> {
    /// The zfold program.
    pub(in super::super) zfold: &'a Path,
    /// The limit of the program's memory.
    pub(in super::super) limit_bytes: u64,
    /// The allocator of what is compressed.
    pub(in super::super) allocator: &'a str,
    /// The codec.
    pub(in super::super) codec: &'a str,
    /// Where the report goes.
    pub(in super::super) report: &'a Path,
}

/// What a run told in the end, as far as experiments use it.
#[derive(Debug)]
pub(in super::super) struct Report {
    /// Most bytes that compressed pages took, metadata included.
    pub(in super::super) peak_stored_bytes: u64,
    /// Most bytes of anonymous memory that were resident.
    pub(in super::super) peak_resident_bytes: u64,
    /// How long that took, in powers of two.
    pub(in super::super) fault_latency: Latency,
}

impl ZfoldRun<'_> {
    /// The exit status of `zfold run` if it could not run the program.
    pub(in super::super) const NOT_RUN: i32 = 125;

    /// Returns a command that runs `program`.
    pub(in super::super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(self.zfold);
        command.arg("run").args(["--limit", &format!("{}KiB", self.limit_bytes >> 10)]);
        command.args(["--allocator", self.allocator, "--codec", self.codec, "--report=json"]);
        command.arg("--report-file").arg(self.report).arg("--").arg(program);
        command
    }

    /// Returns the report of the run that has ended.
    ///
    /// # Errors
    /// [`Fault::Failed`] if there is none.
    pub(in super::super) fn read_report(&self) -> Result<Report, Fault> {
        let text = std::fs::read_to_string(self.report)?;
        let report = parse(&text);
        report.ok_or_else(|| std::io::Error::other("the report of a run lacks a field").into())
    }
}

/// Returns where the report of a run can be, in the folder of an experiment.
pub(in super::super) fn report_path(folder: &Path) -> PathBuf {
    folder.join("report.json")
}

/// Returns the report in a JSON text.
fn parse(text: &str) -> Option<Report> {
    let report: Value = serde_json::from_str(text).ok()?;
    let number = |name: &str| report.get(name)?.as_u64();
    let mut fault_latency = Latency::new();
    for bucket in report.get("fault_latency")?.as_array()? {
        let below = bucket.get(0)?.as_u64()?;
        // A bound is not in its bucket.
        fault_latency.record_many(Duration::from_nanos(below - 1), bucket.get(1)?.as_u64()?);
    }
    Some(Report {
        peak_stored_bytes: number("peak_stored_bytes")?,
        peak_resident_bytes: number("peak_resident_bytes")?,
        fault_latency,
    })
}
