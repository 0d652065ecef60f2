//! What a run did, as it is told: between processes, and to others as `zfold.run/1`.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};
use zfold_vmem::run::{Exit, Report};

/// Name of the form of [`Document`].
pub(super) const SCHEMA: &str = "zfold.run/1";

/// How a program ended.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    /// With this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl End {
    /// Returns how a process ended that was waited for.
    pub(super) fn of(status: ExitStatus) -> Self {
        match status.signal() {
            Some(signal) => Self::Signal(signal),
            None => Self::Code(status.code().unwrap_or_default()),
        }
    }
}

impl From<Exit> for End {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Code(code) => Self::Code(code),
            Exit::Signal(signal) => Self::Signal(signal),
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "status {code}"),
            Self::Signal(signal) => match signal_hook::low_level::signal_name(*signal) {
                Some(name) => f.write_str(name),
                None => write!(f, "signal {signal}"),
            },
        }
    }
}

/// All that is told of a run.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    pub(super) schema: &'static str,
    /// The program, as it was typed.
    pub(super) program: String,
    /// How it ended.
    pub(super) exit: End,
    #[serde(flatten)]
    pub(super) record: &'a Record,
    /// The run without a limit, if there was one.
    pub(super) baseline: Option<Baseline>,
}

/// What a run without a limit took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Baseline {
    pub(super) exit: End,
    pub(super) wall_ns: u64,
    /// Most anonymous memory of the tree that was seen resident.
    pub(super) peak_resident_bytes: u64,
}

/// [`Report`], with its names.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Record {
    pub(super) wall_ns: u64,
    pub(super) limit_bytes: u64,
    pub(super) peak_charge_bytes: u64,
    pub(super) peak_resident_bytes: u64,
    pub(super) peak_stored_bytes: u64,
    pub(super) peak_stored_pages: u64,
    pub(super) faults: u64,
    pub(super) first_touches: u64,
    pub(super) refaults: u64,
    pub(super) loads: u64,
    pub(super) prefetched: u64,
    pub(super) evictions: u64,
    pub(super) stores: u64,
    pub(super) over_limit: u64,
    pub(super) processes: u64,
    pub(super) managed: u64,
    /// Quantiles of the latency of faults.
    pub(super) fault_ns: Quantiles,
    /// The latency of faults: the first nanosecond above a bucket, faults in it.
    pub(super) fault_histogram_ns: Vec<(u64, u64)>,
}

/// Quantiles in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Quantiles {
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
    pub(super) max: u64,
}

impl From<Report> for Record {
    fn from(report: Report) -> Self {
        let [p50, p90, p99, p999, max] = report.fault_quantiles;
        Self {
            wall_ns: u64::try_from(report.wall.as_nanos()).unwrap_or(u64::MAX),
            limit_bytes: report.limit_bytes,
            peak_charge_bytes: report.peak_charge_bytes,
            peak_resident_bytes: report.peak_resident_bytes,
            peak_stored_bytes: report.peak_stored_bytes,
            peak_stored_pages: report.peak_stored_pages,
            faults: report.faults,
            first_touches: report.first_touches,
            refaults: report.refaults,
            loads: report.loads,
            prefetched: report.prefetched,
            evictions: report.evictions,
            stores: report.stores,
            over_limit: report.over_limit,
            processes: report.processes,
            managed: report.managed,
            fault_ns: Quantiles { p50, p90, p99, p999, max },
            fault_histogram_ns: report.fault_latency,
        }
    }
}
