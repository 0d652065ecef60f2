//! What a run is asked for, and what it ends with.

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use zfold_figures::Quantiles;
use zfold_pool::{PageSize, Pool};
use zfold_store::StoreOptions;

use crate::figures::{Figures, Touched};
use crate::running::{Refused, Running};
use crate::sys::inherited::Inherited;
use crate::sys::process::remedy;
use zfold_uffd::page::page_len;

/// Returns the page size of a run, and so of its pool: the system's.
#[must_use]
pub fn page_size() -> PageSize {
    PageSize::new(page_len()).expect("a page of Linux has 4, 16 or 64 KiB on these processors")
}

/// What gets a limit.
#[derive(Debug)]
pub enum Subject {
    /// A program that is started.
    Program {
        /// Its name, looked for in `PATH` as a shell does, and its arguments.
        command: Vec<OsString>,
        /// The signals and standard streams that it is started with.
        inherited: Inherited,
    },
    /// Processes that already run, each once, with their descendants.
    Running(Vec<Running>),
}

/// Something to run under a limit.
#[derive(Debug)]
#[non_exhaustive]
pub struct RunOptions {
    /// What gets the limit.
    pub subject: Subject,
    /// Most bytes of anonymous memory of it and its descendants that are resident, what waits
    /// uncompressed to leave included. What is compressed comes on top.
    pub limit_bytes: u64,
    /// The pool that holds what is compressed, in pages of [`page_size`].
    pub pool: Box<dyn Pool>,
    /// The store over it: codec, its own limit, where it writes back to. The number of slots is
    /// set by the run.
    pub store: StoreOptions,
}

impl RunOptions {
    /// Returns a run under this limit.
    #[must_use]
    pub fn new(
        subject: Subject,
        limit_bytes: u64,
        pool: Box<dyn Pool>,
        store: StoreOptions,
    ) -> Self {
        Self { subject, limit_bytes, pool, store }
    }
}

/// A process whose memory is not managed, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmanaged {
    /// Its number.
    pub pid: i32,
    /// The name of its program, as the kernel has it.
    pub program: String,
    /// Why.
    pub reason: String,
}

/// A kind of memory that cannot leave its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Locked by `mlock`. Counts against the limit.
    Locked,
    /// Anonymous memory that cannot be moved at present, mostly because the program has made it
    /// read-only or inaccessible. Counts against the limit.
    Protected,
    /// Anonymous memory that is left to the kernel: what was written to private mappings of files,
    /// and what is in small mappings. Counts against the limit.
    Open,
    /// Shared memory: of `MAP_SHARED`, memfd, `/dev/shm`, System V. Does not count.
    Shared,
    /// Pages of files, such as code. Does not count, and the kernel takes most of it back itself.
    File,
    /// The kernel's tables of the pages. Do not count.
    PageTables,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Locked, Self::Protected, Self::Open, Self::Shared, Self::File, Self::PageTables];

    /// Returns whether it counts against the limit.
    #[must_use]
    pub fn counts(self) -> bool {
        matches!(self, Self::Locked | Self::Protected | Self::Open)
    }
}

/// Much memory of a kind that cannot leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staying {
    /// Its kind.
    pub kind: Kind,
    /// How much of it all processes have, each page counted once.
    pub bytes: u64,
    /// The process that has most of it.
    pub pid: i32,
    /// The name of its program, as the kernel has it.
    pub program: String,
}

/// What happens in a run before it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The program begins, as this process.
    Started(i32),
    /// So many processes that ran already are under the limit now, with so many threads.
    Caught {
        /// Processes, descendants included.
        processes: usize,
        /// Their threads.
        threads: usize,
    },
    /// A process has, or is about to have, memory that the run cannot manage. Told of each once;
    /// what it has counts against the limit and stays.
    Unmanaged(Unmanaged),
    /// More than a quarter of the limit is memory of this kind, which cannot leave. Told once of
    /// each kind, and again when it has doubled.
    Stays(Staying),
    /// A process is about to trace itself, as LeakSanitizer does, which fails in a run: its number
    /// and its program. Told once.
    TracesItself(i32, String),
    /// A process is ended, because memory that leaves finds no room: its number, its program, why,
    /// and the remedy. It is the process whose end frees the most; the others go on. Not told if it
    /// is the program itself: then the run ends with that error.
    NoRoom(i32, String, String),
    /// SIGKILL ends a process, its number and its program; it was not sent by the run.
    Killed(i32, String),
    /// The program itself was stopped by a signal, as a job of a shell is.
    Stopped,
    /// It goes on after that, or was ended.
    GoesOn,
    /// The program itself has ended; its descendants may go on. Not told of one that had to be
    /// ended: the error of the run says why.
    Ended(ExitStatus),
}

/// Most unmanaged processes that a report lists.
pub const UNMANAGED_MAX: usize = 100;

/// What other limits would have done, as far as it follows from how soon evicted pages came back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Percents of the limit, and how many pages would have come back; `None` where nothing is
    /// known, as of lower limits.
    pub returns: Vec<(u32, Option<u64>)>,
    /// The least limit under which at most one in a hundred would have come back.
    pub enough_bytes: Option<u64>,
}

/// What a run did, from its start to the end of the last process in it. Times of faults are from
/// the kernel's message to the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// From the start of the program to its end.
    pub wall: Duration,
    /// What it held and did.
    pub figures: Figures,
    /// How much memory it touched, if that was seen.
    pub touched: Option<Touched>,
    /// Processes whose memory could not be managed, the first [`UNMANAGED_MAX`] of them.
    pub unmanaged: Vec<Unmanaged>,
    /// Latency of faults in nanoseconds: upper bound of a bucket, number of faults in it.
    pub fault_latency: Vec<(u64, u64)>,
    /// Quantiles of the same in nanoseconds.
    pub fault_quantiles: Quantiles,
    /// What other limits would have done, if this one did not change.
    pub estimate: Estimate,
}

/// Says what failed and what to do about it, also where the system has only a word for it.
fn said(error: &io::Error) -> String {
    let is_bare = error.raw_os_error().is_some();
    let what = if is_bare { "the system refuses what a run needs: " } else { "" };
    format!("{what}{error}{}", remedy(error))
}

/// Why a run did not go to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// There is no such program, or it cannot be executed.
    #[error("{0}")]
    NotRun(io::Error),
    /// The system refuses what a run needs, such as tracing, or the program was ended, because
    /// something that it needs could not be served.
    #[error("{0}")]
    Failed(String),
    /// Processes that ran already are not under a limit and go on as before.
    #[error("{0}")]
    Refused(Refused),
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Failed(said(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_refuses_is_a_sentence_with_a_remedy() {
        let few = said(&io::Error::from_raw_os_error(libc::EAGAIN));
        let begins = few.starts_with("the system refuses what a run needs: ");
        assert!(begins && few.ends_with("(ulimit -u)"), "{few}");
        let told = said(&io::Error::other("cannot reserve the slot table"));
        assert_eq!(told, "cannot reserve the slot table");
    }
}
