//! Load by fio: the flags of its runs, and its reports.
//!
//! Every 4 KiB that are written are new, half random and half zeros, so that any codec halves
//! them and no two are equal.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::bench::{Bench, NAME};
use crate::experiment::Error;
use crate::experiment::harness::turns::Fault;
use crate::experiment::system::child::run;

/// Most bytes of a check.
const CHECK_BYTES: u64 = 16 << 20;

/// Where a load goes.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// The export `disk` of the NBD server at this Unix socket.
    Nbd(PathBuf),
    /// A file or block device, by asynchronous I/O past the page cache.
    Block(PathBuf),
    /// A file in memory, by plain calls.
    File(PathBuf),
}

/// The work of a random load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Write,
    Read,
}

impl Direction {
    pub(super) const ALL: [Self; 2] = [Self::Write, Self::Read];

    /// Returns the name that fio's reports and the figures have.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// fio's report on a random load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Speed {
    /// Requests a second.
    pub(super) iops: f64,
    /// Half of the requests took at most this long, in microseconds.
    pub(super) p50_us: f64,
    /// 99 % of the requests took at most this long, in microseconds.
    pub(super) p99_us: f64,
}

/// Loads on one target.
#[derive(Debug)]
pub(super) struct Fio {
    pub(super) target: Target,
    /// The bytes of the target that are used, from its beginning.
    pub(super) span_bytes: u64,
    /// Names all random choices.
    pub(super) seed: u64,
}

impl Fio {
    /// Returns fio on a target, with random choices of its own for each repeat.
    pub(super) fn on(bench: &Bench<'_>, target: Target, repeat: u32) -> Self {
        let seed = bench.settings.seed.wrapping_add(repeat.into());
        Self { target, span_bytes: bench.span_bytes, seed }
    }

    /// Returns whether fio is there, and can be a client of NBD.
    ///
    /// # Errors
    /// [`Fault::Missing`] if it is not.
    pub(super) fn available() -> Result<(), Fault> {
        run(Command::new("fio").arg("--version"))?;
        let help = run(Command::new("fio").arg("--enghelp=nbd"))?;
        if help.contains("uri") {
            return Ok(());
        }
        Err(Fault::Missing("fio was built without its nbd engine".to_owned()))
    }

    /// Writes the whole span once, in order.
    ///
    /// # Errors
    /// [`Fault`] if fio cannot be run or fails.
    pub(super) fn fill(&self) -> Result<(), Fault> {
        self.run(&["--rw=write", "--bs=1m", "--iodepth=8"]).map(drop)
    }

    /// Reads or writes random 4 KiB for `time`, with `depth` requests in flight.
    ///
    /// # Errors
    /// As [`Fio::fill`].
    pub(super) fn random(
        &self,
        direction: Direction,
        depth: u32,
        time: Duration,
    ) -> Result<Speed, Fault> {
        let name = direction.name();
        let report = self.run(&[
            &format!("--rw=rand{name}"),
            "--bs=4k",
            &format!("--iodepth={depth}"),
            "--norandommap",
            "--time_based",
            &format!("--runtime={}ms", time.as_millis()),
        ])?;
        speed(&report, name).ok_or_else(|| failed("fio's report has no such figures"))
    }

    /// Writes the beginning of the span in random order, reads it and compares every byte.
    ///
    /// # Errors
    /// As [`Fio::fill`]; [`Error::WrongBytes`] if a byte came back wrong.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let part = format!("--size={}", self.span_bytes.min(CHECK_BYTES));
        let load = ["--rw=randwrite", "--bs=4k", "--iodepth=32", &part];
        let check = ["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"];
        self.run(&[&load[..], &check].concat()).map(drop)
    }

    /// Runs fio with these flags and returns its report.
    fn run(&self, flags: &[&str]) -> Result<Value, Fault> {
        let mut command = Command::new("fio");
        command.args(["--name=load", "--output-format=json", "--refill_buffers"]);
        command.args(["--buffer_compress_percentage=50", "--buffer_compress_chunk=4096"]);
        command.arg(format!("--size={}", self.span_bytes));
        command.arg(format!("--randseed={}", self.seed));
        let file = |path: &Path| format!("--filename={}", path.display());
        match &self.target {
            Target::Nbd(socket) => {
                let uri = format!("--uri=nbd+unix:///disk?socket={}", socket.display());
                command.args(["--ioengine=nbd", &uri])
            }
            Target::Block(path) => command.args(["--ioengine=libaio", "--direct=1", &file(path)]),
            Target::File(path) => command.args(["--ioengine=psync", &file(path)]),
        };
        let text = run(command.args(flags)).map_err(worse)?;
        // Notes may come before the report.
        let report = text.find('{').and_then(|at| serde_json::from_str(&text[at..]).ok());
        report.ok_or_else(|| failed("fio's report is not JSON"))
    }
}

/// Returns what it means that fio failed on a target that serves: not that something is missing.
fn worse(fault: Fault) -> Fault {
    match fault {
        Fault::Missing(reason)
            if reason.contains("verif") || reason.contains("Invalid or incomplete") =>
        {
            Error::WrongBytes { experiment: NAME, what: reason }.into()
        }
        Fault::Missing(reason) => failed(&reason),
        fault => fault,
    }
}

fn failed(line: &str) -> Fault {
    Error::Other(line.to_owned()).into()
}

/// Returns the figures of one direction in a report.
fn speed(report: &Value, direction: &str) -> Option<Speed> {
    let of = report.get("jobs")?.get(0)?.get(direction)?;
    let times = of.get("clat_ns")?.get("percentile")?;
    let us = |quantile: &str| Some(times.get(quantile)?.as_f64()? / 1e3);
    Some(Speed {
        iops: of.get("iops")?.as_f64()?,
        p50_us: us("50.000000")?,
        p99_us: us("99.000000")?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::experiment::system::child::Child;

    #[test]
    fn figures_are_those_of_the_direction() {
        let clat = json!({ "percentile": { "50.000000": 1500, "99.000000": 20000 } });
        let report = json!({ "jobs": [{
            "read": { "iops": 0.0, "clat_ns": {} },
            "write": { "iops": 1234.5, "clat_ns": clat },
        }] });
        let expected = Speed { iops: 1234.5, p50_us: 1.5, p99_us: 20.0 };
        assert_eq!(speed(&report, "write"), Some(expected));
        assert_eq!(speed(&report, "read"), None);
        assert_eq!(speed(&json!({}), "read"), None);
    }

    #[test]
    fn bytes_that_do_not_come_back_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        // Forgets what is written.
        let mut server = Command::new("nbdkit");
        server.args(["-f", "--exit-with-parent", "-U"]).arg(&socket).args(["null", "1M"]);
        let ready = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        let child = Fio::available()
            .and_then(|()| Child::start(&mut server, folder.path().join("log"), ready));
        let Ok(_child) = child else {
            let test = "bytes_that_do_not_come_back_are_noticed";
            return zfold_testing::skip(test, format_args!("{child:?}"));
        };
        let fio = Fio { target: Target::Nbd(socket), span_bytes: 1 << 20, seed: 1 };
        fio.fill().unwrap();
        let fault = fio.check().unwrap_err();
        assert!(matches!(fault, Fault::Failed(Error::WrongBytes { .. })), "{fault:?}");
    }

    #[test]
    fn a_failed_comparison_is_wrong_bytes_and_another_failure_is_not() {
        let of = |reason: &str| match worse(Fault::Missing(reason.to_owned())) {
            Fault::Failed(error) => error,
            fault => panic!("{fault:?}"),
        };
        let wrong = of("fio failed: fio: verify type mismatch");
        assert!(matches!(wrong, Error::WrongBytes { experiment: NAME, .. }));
        assert!(matches!(of("fio failed: Connection reset by peer"), Error::Other(_)));
    }
}
