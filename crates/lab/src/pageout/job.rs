//! The job of a process of the workload, and its answer: a line of JSON each.

use serde::{Deserialize, Serialize};

use crate::experiment::Error;

/// The job of the processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    /// The memory that each of them works on.
    pub(super) memory: Kind,
    /// Pages of each.
    pub(super) pages: usize,
    /// The work on them.
    pub(super) work: Work,
    /// Of all random choices.
    pub(super) seed: u64,
    /// The role of the process with this job.
    pub(super) role: Role,
}

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// Private and anonymous, as the system maps it.
    Mapping,
    /// A `Region` of zfold, of which at most this many bytes are resident.
    Region { resident_bytes: u64 },
}

/// The work on the memory after it was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Work {
    /// All leaves if `out`, a random quarter is read, and all processes unmap at once.
    Unmap { out: bool },
    /// This many random pages are read and written, one after the other.
    Access { times: usize },
}

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    /// Starts this many others and has them do each step together.
    Leader(u32),
    /// One of those, by number from 0.
    Worker(u32),
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// All bytes were right.
    Done(Done),
    /// A byte came back wrong.
    Wrong(String),
    /// Something else went wrong.
    Failed(String),
}

/// The measurements, of one process or summed up over several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Done {
    /// Seconds that it took to page out, for each process.
    pub(super) page_out: Vec<f64>,
    /// Pages that left by that.
    pub(super) left_pages: usize,
    /// Nanoseconds of each access that faulted.
    pub(super) faults: Vec<u64>,
    /// Seconds that it took to unmap, for each process.
    pub(super) unmap: Vec<f64>,
}

impl Done {
    /// Adds what another process measured.
    pub(super) fn add(&mut self, other: Self) {
        self.page_out.extend(other.page_out);
        self.left_pages += other.left_pages;
        self.faults.extend(other.faults);
        self.unmap.extend(other.unmap);
    }
}

impl From<Result<Done, Error>> for Answer {
    fn from(result: Result<Done, Error>) -> Self {
        match result {
            Ok(done) => Self::Done(done),
            Err(Error::WrongBytes { what, .. }) => Self::Wrong(what),
            Err(error) => Self::Failed(error.to_string()),
        }
    }
}
