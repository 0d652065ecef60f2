//! What a run tells over its control socket.

use serde::{Deserialize, Serialize};

/// Name of the form of [`RunState`].
pub(crate) const SCHEMA: &str = "zfold.run-state/1";

/// Least limit of a run in bytes: below, a program has no room to make progress with a few threads.
pub(crate) const LIMIT_MIN: u64 = 4 << 20;

/// A run as it is now. Totals only grow.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct RunState {
    pub(crate) schema: String,
    /// The number of the process that the shell started.
    pub(crate) pid: u32,
    /// The program and its arguments.
    pub(crate) command: String,
    pub(crate) limit_bytes: u64,
    /// What counts against the limit.
    pub(crate) resident_bytes: u64,
    /// Pages that lie compressed, and what they take.
    pub(crate) stored_pages_bytes: u64,
    pub(crate) stored_bytes: u64,
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
}
