//! A run from its start to its end, and why it may not get there.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zfold_pool::Pool;
use zfold_store::pressure::MemoryLeft;
use zfold_store::{Store, StoreOptions};

use crate::control::Control;
use crate::engine::{self, Engine, EngineOptions};
use crate::link::Tracing as _;
use crate::options::{Event, Exit, Report, RunOptions, Unmanaged};
use crate::permission::Access;
use crate::running::Refused;
use crate::sys;
use crate::sys::proc::name;
use crate::sys::process::remedy;
use crate::sys::urgency::may_be_urgent;
use crate::trace::{self, Handle, News, Program, begin};

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
    let RunOptions { program, args, limit_bytes, inherited, pool, store, strict } = options;
    let handle = Arc::new(Handle::default());
    let group = MemoryLeft::new();
    let whole = strict || group.ends_together();
    let memory = start(limit_bytes, pool, store, whole, &handle)?;
    steer(Control::new(Arc::clone(&memory)));
    // Elsewhere others would have to live with that weight.
    let is_first_to_end = group.measure().cgroup.is_some();
    let program = Program { inherited, is_first_to_end, ..Program::new(program, args) };
    let mut wall = Duration::ZERO;
    let exit =
        begin::trace(&program, Arc::clone(&memory) as _, &handle, access.clone(), &mut |news| {
            for unmanaged in memory.newly_unmanaged() {
                if strict {
                    let Unmanaged { pid, program, reason } = &unmanaged;
                    let line = format!("process {pid} ({program}) is not managed: {reason}");
                    handle.end(line);
                }
                tell(Event::Unmanaged(unmanaged));
            }
            memory.newly_staying().into_iter().for_each(|staying| tell(Event::Stays(staying)));
            if let News::Ended(_) = news {
                wall = began.elapsed();
            }
            event(news).into_iter().for_each(&mut tell);
        })
        .map_err(|error| RunError::Ended(said(&error)))?;
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

/// Returns what is told of it.
pub(crate) fn event(news: News) -> Option<Event> {
    Some(match news {
        News::Refused => return None,
        News::Started(pid) => Event::Started(pid),
        News::Caught { processes, threads } => Event::Caught { processes, threads },
        News::TracesItself(pid) => Event::TracesItself(pid, name(pid)),
        News::NoRoom(pid, why) => Event::NoRoom(pid, name(pid), why),
        News::Killed(pid) => Event::Killed(pid, name(pid)),
        News::Stopped => Event::Stopped,
        News::GoesOn => Event::GoesOn,
        News::Ended(exit) => Event::Ended(exit.into()),
    })
}

/// Starts the memory side of a run.
pub(crate) fn start(
    limit_bytes: u64,
    pool: Box<dyn Pool>,
    mut store: StoreOptions,
    whole: bool,
    handle: &Arc<Handle>,
) -> Result<Arc<Engine>, RunError> {
    // Where this process's addresses are limited, the table of slots takes an eighth of them.
    let slots = sys::process::address_limit().map_or(u64::MAX, |bytes| bytes / (8 * 24));
    store.slots = engine::KEYS.min(slots);
    let store =
        Store::new(pool, &store).map_err(|error| RunError::System(io::Error::other(error)))?;
    let memory = EngineOptions {
        store: Some(Arc::new(store)),
        urgent: may_be_urgent(),
        whole,
        ..EngineOptions::new(limit_bytes)
    };
    let memory = Engine::start(memory, Arc::clone(handle) as _).map_err(RunError::System)?;
    Ok(Arc::new(memory))
}

impl From<trace::Exit> for Exit {
    fn from(exit: trace::Exit) -> Self {
        match exit {
            trace::Exit::Signal { number, .. } => Self::Signal(number),
            other => Self::Code(other.status()),
        }
    }
}

/// Says what failed and what to do about it, also where the system has only a word for it.
pub(crate) fn said(error: &io::Error) -> String {
    let is_bare = error.raw_os_error().is_some();
    let what = if is_bare { "the system refuses what a run needs: " } else { "" };
    format!("{what}{error}{}", remedy(error))
}

/// Why a run did not go to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// There is no such program.
    #[error("{0}")]
    NotFound(std::io::Error),
    /// The program cannot be executed.
    #[error("{0}")]
    NotExecutable(std::io::Error),
    /// The system refuses what a run needs, such as tracing.
    #[error("{}", said(.0))]
    System(std::io::Error),
    /// The program was ended, because something that it needs could not be served.
    #[error("{0}")]
    Ended(String),
    /// Processes that ran already are not under a limit and go on as before.
    #[error("{0}")]
    Refused(Refused),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_refuses_is_a_sentence_with_a_remedy() {
        let few = RunError::System(io::Error::from_raw_os_error(libc::EAGAIN)).to_string();
        let begins = few.starts_with("the system refuses what a run needs: ");
        assert!(begins && few.ends_with("(ulimit -u)"), "{few}");
        let told = RunError::System(io::Error::other("cannot reserve the slot table")).to_string();
        assert_eq!(told, "cannot reserve the slot table");
    }
}
