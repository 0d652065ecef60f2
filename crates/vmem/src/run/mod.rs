//! `run`: a program and its children whose anonymous memory is kept under a limit.
//!
//! The manager, a process of its own, starts the program and traces it (`tracer`). It learns of
//! every change of an address space before and after it happens (`memory::Memory`), is told of
//! missing pages by userfaultfd (`faults`), and has a helper in each large address space: a
//! process that shares its memory and makes system calls there on demand (`helper`). Nothing of
//! zfold runs inside the program's threads.

mod access;
mod budget;
mod calls;
mod chance;
mod changes;
mod engine;
mod faults;
mod helper;
mod inject;
mod keys;
mod managed;
mod maps;
pub(crate) mod memory;
#[cfg(test)]
mod model;
mod mover;
mod options;
mod pages;
mod permission;
mod ranges;
mod reclaim;
mod requests;
mod shared;
mod space;
mod stats;
mod streams;
mod task;
#[cfg(test)]
mod tests;
mod tracer;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zfold_store::Store;

use engine::{Engine, EngineOptions};
use tracer::{Handle, News, Program};

pub use crate::sys::inherited::{Files, Inherited, die_of, tell};
pub use options::{Event, Exit, Report, RunOptions};
pub use permission::{Access, Denied, access};

/// Runs a program under a limit, from the process that calls: its descendants are traced and end
/// if it ends. Tells of the program's start and end, and returns when its last descendant has
/// ended.
///
/// # Errors
/// The program could not be started, or had to be ended; the error names the remedy.
pub fn manage(
    options: RunOptions,
    access: &Access,
    mut tell: impl FnMut(Event) + Send,
) -> Result<Report, RunError> {
    let began = Instant::now();
    let RunOptions { program, args, limit_bytes, inherited, pool, mut store } = options;
    store.slots = engine::KEYS;
    let store =
        Store::new(pool, &store).map_err(|error| RunError::System(io::Error::other(error)))?;
    let handle = Arc::new(Handle::default());
    let memory = EngineOptions { store: Some(Arc::new(store)), ..EngineOptions::new(limit_bytes) };
    let memory = Engine::start(memory, Arc::clone(&handle) as _).map_err(RunError::System)?;
    let memory = Arc::new(memory);
    let program = Program { inherited, ..Program::new(program, args) };
    let mut wall = Duration::ZERO;
    let exit =
        tracer::trace(&program, Arc::clone(&memory) as _, &handle, access.clone(), &mut |news| {
            match news {
                News::Started(pid) => tell(Event::Started(pid)),
                News::Ended(exit) => {
                    wall = began.elapsed();
                    tell(Event::Ended(exit.into()));
                }
            }
        })
        .map_err(|error| RunError::Ended(error.to_string()))?;
    match exit {
        tracer::Exit::NotRun(libc::ENOENT) => {
            Err(RunError::NotFound(io::Error::from_raw_os_error(libc::ENOENT)))
        }
        tracer::Exit::NotRun(error) => {
            Err(RunError::NotExecutable(io::Error::from_raw_os_error(error)))
        }
        _ => Ok(memory.report(wall)),
    }
}

impl From<tracer::Exit> for Exit {
    fn from(exit: tracer::Exit) -> Self {
        match exit {
            tracer::Exit::Signal { number, .. } => Self::Signal(number),
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
