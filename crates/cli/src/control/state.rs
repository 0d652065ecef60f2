//! What a run tells over its control socket.

use serde::{Deserialize, Serialize};

use crate::shared::far::FarReport;

/// Name of the form of [`RunState`].
pub(crate) const SCHEMA: &str = "zfold.run-state/1";

/// Least limit of a run in bytes: below, a program has no room to make progress with a few threads.
pub(crate) const LIMIT_MIN: u64 = 4 << 20;

/// A run as it is now. Totals only grow. What a run of another version does not tell is 0.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct RunState {
    pub(crate) schema: String,
    /// The number of the process that the shell started.
    pub(crate) pid: u32,
    /// The program and its arguments.
    pub(crate) command: String,
    pub(crate) limit_bytes: u64,
    /// The limit is chosen again and again.
    pub(crate) limit_auto: bool,
    /// None of its processes runs.
    pub(crate) paused: bool,
    /// What counts against the limit.
    pub(crate) resident_bytes: u64,
    /// Pages that lie compressed, and what they take.
    pub(crate) stored_pages_bytes: u64,
    pub(crate) stored_bytes: u64,
    /// The most that these may take; 0: any number.
    pub(crate) store_limit_bytes: u64,
    /// What compresses pages.
    pub(crate) codec: String,
    /// Size of the backing file, and what of it is in use.
    pub(crate) backing_bytes: u64,
    pub(crate) backing_used_bytes: u64,
    /// The other machines, if pages go there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) far: Option<Box<FarReport>>,
    /// What cannot leave.
    #[serde(flatten)]
    pub(crate) stays: Box<Stays>,
    /// Address spaces, and those that pages have left.
    pub(crate) spaces: u64,
    pub(crate) managed: u64,
    pub(crate) unmanaged_total: u64,
    pub(crate) faults_total: u64,
    pub(crate) refaults_total: u64,
    pub(crate) loads_total: u64,
    pub(crate) evictions_total: u64,
    pub(crate) over_limit_total: u64,
    pub(crate) fault_p50_ns: u64,
    pub(crate) fault_p99_ns: u64,
    /// The latency of faults: bound of a bucket, faults in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) fault_histogram_ns: Vec<(u64, u64)>,
}

/// What cannot leave of a run, as seen in the last second: what counts against the limit, and what
/// does not.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct Stays {
    pub(crate) locked_bytes: u64,
    pub(crate) protected_bytes: u64,
    pub(crate) shared_bytes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) page_table_bytes: u64,
}

impl Stays {
    /// Returns what the kernel cannot take back either.
    pub(crate) fn all(&self) -> u64 {
        self.locked_bytes + self.protected_bytes + self.shared_bytes + self.page_table_bytes
    }
}
