//! `run`: a program and its children whose anonymous memory is kept under a limit.
//!
//! The manager, a process of its own, starts the program and traces it. It looks how much memory
//! the program has; when that nears the limit, it gives the large address spaces a helper, a
//! process that shares their memory and makes system calls there, and closes their memory: has
//! userfaultfd tell of missing pages and of changes. Nothing of zfold runs inside the program's
//! threads, and nothing of it stands in their way before that.
//!
//! | room | what is there |
//! | --- | --- |
//! | `link` | what the tracer and the memory side say to each other |
//! | `trace` | the tracer: stops, helpers |
//! | `spaces` | who has what: address spaces, the store, what is charged; the order of locks |
//! | `faults` | a missing page comes |
//! | `reclaim` | a page leaves |
//! | `limit` | how much there is, and what is closed when that comes near the limit |
//! | `engine` | the memory side as a whole: its threads |
//! | `core` | what is decided about the pages of one address space, as plain data |
//! | `sys` | system calls about other processes |

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod control;
mod core;
mod engine;
mod faults;
mod limit;
pub(crate) mod link;
mod options;
mod permission;
mod reclaim;
mod spaces;
mod sys;
mod trace;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zfold_store::Store;

use engine::{Engine, EngineOptions};
use link::Tracing as _;
use sys::urgency::may_be_urgent;
use trace::{Handle, News, Program};

pub use control::{Control, State};
pub use options::{Event, Exit, Kind, Report, RunOptions, Staying, UNMANAGED_MAX, Unmanaged};
pub use permission::{Access, Denied, access, may_follow_forks, may_trace};
pub use sys::inherited::Inherited;

/// What the program `zfold` does besides, whose crate forbids unsafe code. No part of the library's
/// interface: it changes without notice.
#[doc(hidden)]
pub mod internals {
    pub use super::sys::inherited::{Files, die_of, tell};
    pub use super::trace::HELPER_AT;
}

/// Runs a program under a limit, from the process that calls: its descendants are traced and end
/// if it ends. Gives out the control of the run, tells of the program's start and end, and returns
/// when its last descendant has ended.
///
/// # Errors
/// The program could not be started, or had to be ended; the error names the remedy.
pub fn manage(
    options: RunOptions,
    access: &Access,
    steer: impl FnOnce(Control),
    mut tell: impl FnMut(Event) + Send,
) -> Result<Report, RunError> {
    let began = Instant::now();
    let RunOptions { program, args, limit_bytes, inherited, pool, mut store, strict } = options;
    store.slots = engine::KEYS;
    let store =
        Store::new(pool, &store).map_err(|error| RunError::System(io::Error::other(error)))?;
    let handle = Arc::new(Handle::default());
    let memory = EngineOptions {
        store: Some(Arc::new(store)),
        urgent: may_be_urgent(),
        ..EngineOptions::new(limit_bytes)
    };
    let memory = Engine::start(memory, Arc::clone(&handle) as _).map_err(RunError::System)?;
    let memory = Arc::new(memory);
    steer(Control::new(Arc::clone(&memory)));
    let program = Program { inherited, ..Program::new(program, args) };
    let mut wall = Duration::ZERO;
    let exit =
        trace::trace(&program, Arc::clone(&memory) as _, &handle, access.clone(), &mut |news| {
            for unmanaged in memory.newly_unmanaged() {
                if strict {
                    let Unmanaged { pid, program, reason } = &unmanaged;
                    let line = format!("process {pid} ({program}) is not managed: {reason}");
                    handle.end(line);
                }
                tell(Event::Unmanaged(unmanaged));
            }
            memory.newly_staying().into_iter().for_each(|staying| tell(Event::Stays(staying)));
            match news {
                News::Refused => {}
                News::Started(pid) => tell(Event::Started(pid)),
                News::TracesItself(pid) => tell(Event::TracesItself(pid, sys::proc::name(pid))),
                News::Stopped => tell(Event::Stopped),
                News::GoesOn => tell(Event::GoesOn),
                News::Ended(exit) => {
                    wall = began.elapsed();
                    tell(Event::Ended(exit.into()));
                }
            }
        })
        .map_err(|error| RunError::Ended(error.to_string()))?;
    match exit {
        trace::Exit::NotRun(libc::ENOENT) => {
            Err(RunError::NotFound(io::Error::from_raw_os_error(libc::ENOENT)))
        }
        trace::Exit::NotRun(error) => {
            Err(RunError::NotExecutable(io::Error::from_raw_os_error(error)))
        }
        _ => Ok(memory.report(wall)),
    }
}

impl From<trace::Exit> for Exit {
    fn from(exit: trace::Exit) -> Self {
        match exit {
            trace::Exit::Signal { number, .. } => Self::Signal(number),
            other => Self::Code(other.status()),
        }
    }
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
