//! The state that a run reports over its control socket.

use serde::{Deserialize, Serialize};
use zfold_run::{Figures, Touched};

use crate::shared::far::FarReport;
use crate::shared::figures::{Known, in_state};

/// Name of the form of [`RunState`].
pub(crate) const SCHEMA: &str = "zfold.run-state/1";

/// A run as it is now. Figures that a run of another version does not report are 0.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct RunState {
    pub(crate) schema: String,
    /// The number of the process that the shell started.
    pub(crate) pid: u32,
    /// The program and its arguments.
    pub(crate) command: String,
    /// The limit is chosen again and again.
    pub(crate) limit_auto: bool,
    /// None of its processes runs.
    /// The codec.
    pub(crate) codec: String,
    /// The other machines, if pages go there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) far: Option<Box<FarReport>>,
    #[serde(flatten, with = "in_state")]
    pub(crate) figures: Figures,
    /// How much memory it touched, if that is seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) touched: Option<Known<Touched>>,
    /// The latency of faults: bound of a bucket, faults in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) fault_histogram_ns: Vec<(u64, u64)>,
}

impl RunState {
    /// Returns the bytes that cannot leave, and that the kernel cannot take back either.
    pub(crate) fn stays(&self) -> u64 {
        let of = &self.figures;
        let counts = of.locked_bytes + of.protected_bytes + of.left_open_bytes;
        counts + of.shared_bytes + of.page_table_bytes
    }
}
