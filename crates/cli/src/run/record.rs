//! What a run did, as it is reported: between processes, and to others as `zfold.run/1`.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};
use zfold_run::{Exit, Figures, GroupLimit, Report, Touched};
use zfold_store::pressure::OwnStalls;

use crate::shared::far::FarReport;
use crate::shared::figures::{Known, in_report};

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

/// Everything that is reported about a run.
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

/// The memory and time of a run without a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Baseline {
    pub(super) exit: End,
    pub(super) wall_ns: u64,
    /// Most anonymous memory of the tree that was seen resident.
    pub(super) peak_resident_bytes: u64,
}

/// A process whose memory could not be managed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Unmanaged {
    pub(super) pid: i32,
    pub(super) program: String,
    pub(super) reason: String,
}

impl From<zfold_run::Unmanaged> for Unmanaged {
    fn from(process: zfold_run::Unmanaged) -> Self {
        let zfold_run::Unmanaged { pid, program, reason } = process;
        Self { pid, program, reason }
    }
}

/// A limit that was chosen again and again (`--limit auto`).
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Auto {
    /// The memory available when the program was started.
    pub(super) left_at_start_bytes: u64,
    pub(super) least_limit_bytes: u64,
    pub(super) most_limit_bytes: u64,
    /// Its other criteria, besides the memory left.
    pub(super) steered_by: String,
}

impl Auto {
    /// Returns what was chosen, and by what.
    pub(super) fn of(group: &GroupLimit) -> Self {
        let (least_limit_bytes, most_limit_bytes) = group.range();
        let steered_by =
            OwnStalls::new().map_or("files read again", |stalls| stalls.source()).to_owned();
        let left_at_start_bytes = group.left_at_start();
        Self { left_at_start_bytes, least_limit_bytes, most_limit_bytes, steered_by }
    }
}

/// What other limits would have done, by how soon evicted pages came back.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Estimate {
    /// Percents of the limit, and pages that would have come back.
    pub(super) returned_pages_at_percent: Vec<(u32, Option<u64>)>,
    /// The least limit under which at most one in a hundred of them would have.
    pub(super) enough_limit_bytes: Option<u64>,
}

impl From<zfold_run::Estimate> for Estimate {
    fn from(of: zfold_run::Estimate) -> Self {
        let zfold_run::Estimate { returns, enough_bytes } = of;
        Self { returned_pages_at_percent: returns, enough_limit_bytes: enough_bytes }
    }
}

/// [`Report`], in the form in which it is written.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Record {
    pub(super) wall_ns: u64,
    /// How the limit was chosen, if it was not given.
    pub(super) limit_auto: Option<Auto>,
    /// What other limits would have done; of a limit that was given.
    #[serde(default)]
    pub(super) estimate: Option<Estimate>,
    /// How much memory was touched, if that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) touched: Option<Known<Touched>>,
    /// The other machines, if pages go there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) far: Option<Box<FarReport>>,
    #[serde(flatten, with = "in_report")]
    pub(super) figures: Figures,
    /// Processes that could not be managed, the first of them.
    pub(super) unmanaged: Vec<Unmanaged>,
    /// Quantiles of the latency of faults.
    pub(super) fault_ns: Quantiles,
    /// The latency of faults: the first nanosecond above a bucket, faults in it.
    pub(super) fault_histogram_ns: Vec<(u64, u64)>,
}

impl From<Report> for Record {
    fn from(report: Report) -> Self {
        let zfold_figures::Quantiles { p50, p90, p99, p999, max, .. } = report.fault_quantiles;
        Self {
            wall_ns: u64::try_from(report.wall.as_nanos()).unwrap_or(u64::MAX),
            limit_auto: None,
            estimate: Some(report.estimate.into()),
            touched: report.touched.map(Known),
            far: None,
            figures: report.figures,
            unmanaged: report.unmanaged.into_iter().map(Unmanaged::from).collect(),
            fault_ns: Quantiles { p50, p90, p99, p999, max },
            fault_histogram_ns: report.fault_latency,
        }
    }
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
