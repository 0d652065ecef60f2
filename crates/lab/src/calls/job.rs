//! The job of the process, and its answer.

use serde::{Deserialize, Serialize};

use crate::experiment::Settings;
use crate::experiment::harness::sized;

/// Name of the experiment.
pub const NAME: &str = "calls";

/// Bytes that a call is about.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// Kinds of calls for which pieces are filled.
pub(super) const FILLED: usize = 3;

/// The job of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    /// Calls of each kind on unused memory.
    pub(super) calls: usize,
    /// Pieces that are filled, for each kind of call.
    pub(super) pieces: usize,
    /// Programs that are started.
    pub(super) starts: usize,
}

impl Job {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            calls: sized(settings, 50_000, 5_000).max(100),
            pieces: sized(settings, 512, 256).max(64),
            starts: sized(settings, 500, 50),
        }
    }

    /// Returns the bytes of all pieces.
    pub(super) fn bytes(&self) -> u64 {
        (self.pieces * FILLED * PIECE_BYTES) as u64
    }
}

/// The measurements of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Done {
    /// Metrics and microseconds of a call.
    pub(super) times: Vec<(String, f64)>,
    /// Share of the pages of the filled pieces that were not resident before they were used.
    pub(super) away: f64,
}
