//! The program `zfold`, and programs under `zfold run` with the report of each run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use zfold_compare::latency::Latency;

use crate::experiment::Settings;
use crate::experiment::harness::turns::Fault;

/// Returns the program `zfold`.
///
/// # Errors
/// [`Fault::Missing`] if there is none, with the remedy.
pub(crate) fn zfold(settings: &Settings) -> Result<&Path, Fault> {
    let missing = || {
        let line = "there is no zfold beside zfold-lab or in PATH: cargo build --release builds it";
        Fault::Missing(line.to_owned())
    };
    settings.zfold.as_deref().ok_or_else(missing)
}

/// How a program is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZfoldRun<'a> {
    /// The zfold program.
    pub(crate) zfold: &'a Path,
    /// The limit of the program's memory.
    pub(crate) limit_bytes: u64,
    /// The allocator of compressed pages.
    pub(crate) allocator: &'a str,
    /// The codec.
    pub(crate) codec: &'a str,
    /// Where the report goes.
    pub(crate) report: &'a Path,
}

/// The report of a run, as far as experiments use it.
#[derive(Debug)]
pub(crate) struct Report {
    /// Most bytes that compressed pages took, metadata included.
    pub(crate) peak_stored_bytes: u64,
    /// Most bytes of anonymous memory that were resident.
    pub(crate) peak_resident_bytes: u64,
    /// How long that took, in powers of two.
    pub(crate) fault_latency: Latency,
}

impl ZfoldRun<'_> {
    /// The exit status of `zfold run` if it could not run the program.
    pub(crate) const NOT_RUN: i32 = 125;

    /// Returns a command that runs `program`.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
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
    pub(crate) fn read_report(&self) -> Result<Report, Fault> {
        let text = std::fs::read_to_string(self.report)?;
        let report = parse(&text);
        report.ok_or_else(|| std::io::Error::other("the report of a run lacks a field").into())
    }
}

/// Returns where the report of a run can be, in the folder of an experiment.
pub(crate) fn report_path(folder: &Path) -> PathBuf {
    folder.join("report.json")
}

/// Returns the report in a JSON text.
fn parse(text: &str) -> Option<Report> {
    let report: Value = serde_json::from_str(text).ok()?;
    let number = |name: &str| report.get(name)?.as_u64();
    let mut fault_latency = Latency::new();
    for bucket in report.get("fault_histogram_ns")?.as_array()? {
        let below = bucket.get(0)?.as_u64()?;
        // A bound is not in its bucket.
        fault_latency
            .record_many(Duration::from_nanos(below.checked_sub(1)?), bucket.get(1)?.as_u64()?);
    }
    Some(Report {
        peak_stored_bytes: number("peak_stored_bytes")?,
        peak_resident_bytes: number("peak_resident_bytes")?,
        fault_latency,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_a_run_is_read() {
        let text = r#"{
            "schema": "zfold.run/1", "exit": {"code": 0}, "wall_ns": 5, "faults": 7,
            "peak_resident_bytes": 4096, "peak_stored_bytes": 700,
            "fault_histogram_ns": [[16384, 4], [32768, 3]]
        }"#;
        let report = parse(text).unwrap();
        assert_eq!((report.peak_resident_bytes, report.peak_stored_bytes), (4096, 700));
        assert_eq!(report.fault_latency.buckets(), [(13, 4), (14, 3)]);
        assert!(parse("{}").is_none() && parse("").is_none());
        assert!(parse(&text.replace("16384", "0")).is_none());
    }

    #[test]
    fn the_limit_is_in_kibibytes() {
        let report = report_path(Path::new("/x"));
        let run = ZfoldRun {
            zfold: Path::new("zfold"),
            limit_bytes: 5 << 20,
            allocator: "zbud",
            codec: "lz4",
            report: &report,
        };
        let command = run.command("make");
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        let line = "run --limit 5120KiB --allocator zbud --codec lz4 --report=json \
                    --report-file /x/report.json -- make";
        assert_eq!(args.join(" "), line);
    }
}
