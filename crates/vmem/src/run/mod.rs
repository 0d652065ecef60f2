//! `run`: a program and its children whose anonymous memory is kept under a limit.
//!
//! The manager, a process of its own, starts the program and traces it. It learns of every change
//! of an address space before and after it happens ([`memory::Memory`]), is told of missing pages
//! by userfaultfd, and has a helper in each large address space: a process that shares its memory
//! and makes system calls there on demand. Nothing of zfold runs inside the program's threads.

mod permission;
mod calls;
mod helper;
mod inject;
mod memory;
mod options;
mod task;
mod tracer;

pub use crate::sys::inherited::{Files, Inherited, die_of, tell};
pub use permission::{Access, Denied, access};
pub use options::{Event, Exit, Report, RunOptions};

/// Runs a program under a limit, from the process that calls: its descendants are traced and end
/// if it ends. Tells of the program's start and end (`tell` may be called from any thread), and
/// returns when its last descendant has ended.
///
/// # Errors
/// The program could not be started, or had to be ended; the error names the remedy.
pub fn manage(
    options: RunOptions,
    access: &Access,
    tell: impl FnMut(Event) + Send,
) -> Result<Report, RunError> {
    let _ = (options, access, tell);
    Err(RunError::Ended(String::from("not joined yet")))
}

/// Why a run did not go to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// There is no such program.
    NotFound(std::io::Error),
    /// The program cannot be executed.
    NotExecutable(std::io::Error),
    /// The system refuses what a run needs, such as tracing.
    System(std::io::Error),
    /// The program was ended, because something that it needs could not be served.
    Ended(String),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound(error) | Self::NotExecutable(error) | Self::System(error) => {
                error.fmt(f)
            }
            Self::Ended(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for RunError {}
