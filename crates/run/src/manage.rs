//! A run from its start to its end, and why it may not get there.

use std::sync::Arc;
use std::time::Instant;

use zfold_pool::Pool;
use zfold_store::pressure::MemoryLeft;
use zfold_store::{Store, StoreOptions};

use crate::control::Control;
use crate::engine::{self, Engine, EngineOptions};
use crate::options::{Event, Report, RunError, RunOptions, Subject};
use crate::permission::Access;
use crate::sys;
use crate::sys::process::Program;
use crate::sys::urgency::may_be_urgent;
use crate::trace::{Handle, begin};

/// Puts a program, or processes that already run, under a limit, from the process that calls: they
/// and their descendants are traced and end if it ends. Gives out the control of the run, tells of
/// the program's start and end, or when all processes are traced ([`Event::Caught`]), and returns
/// when the last descendant has ended.
///
/// # Errors
/// The program could not be started, the processes go on as before, or all had to be ended; the
/// error names the remedy.
pub fn manage(
    options: RunOptions,
    access: &Access,
    steer: impl FnOnce(Control),
    mut tell: impl FnMut(Event) + Send,
) -> Result<Report, RunError> {
    let began = Instant::now();
    let RunOptions { subject, limit_bytes, pool, store } = options;
    let handle = Arc::new(Handle::default());
    let group = MemoryLeft::new();
    let is_program = matches!(subject, Subject::Program { .. });
    // With processes that already run, the group of this process is not theirs.
    let whole = is_program && group.ends_together();
    let memory = start(limit_bytes, pool, store, whole, &handle)?;
    steer(Control::new(Arc::clone(&memory)));
    let mut wall = None;
    let mut tell = |event: Option<Event>| {
        memory.newly_unmanaged().into_iter().for_each(|process| tell(Event::Unmanaged(process)));
        memory.newly_staying().into_iter().for_each(|staying| tell(Event::Stays(staying)));
        if let Some(Event::Ended(_)) = event {
            wall = Some(began.elapsed());
        }
        event.into_iter().for_each(&mut tell);
    };
    let (side, access) = (Arc::clone(&memory) as _, access.clone());
    match subject {
        Subject::Program { command, inherited } => {
            let mut program = Program::new(command, inherited)?;
            // Elsewhere others would have to live with that weight.
            program.is_first_to_end = group.measure().cgroup.is_some();
            begin::trace(&program, side, &handle, access, &mut tell)?;
        }
        Subject::Running(running) => {
            begin::trace_running(&running, side, &handle, access, &mut tell)?;
        }
    }
    Ok(memory.report(wall.unwrap_or_else(|| began.elapsed())))
}

/// Starts the memory side of a run.
fn start(
    limit_bytes: u64,
    pool: Box<dyn Pool>,
    mut store: StoreOptions,
    whole: bool,
    handle: &Arc<Handle>,
) -> Result<Arc<Engine>, RunError> {
    // Where this process's addresses are limited, the table of slots takes an eighth of them.
    let slots = sys::process::address_limit().map_or(u64::MAX, |bytes| bytes / (8 * 24));
    store.slots = engine::KEYS.min(slots);
    let store = Store::new(pool, &store).map_err(|error| RunError::Failed(error.to_string()))?;
    let memory = EngineOptions {
        urgent: may_be_urgent(),
        whole,
        ..EngineOptions::new(limit_bytes, Arc::new(store))
    };
    let memory = Engine::start(memory, Arc::clone(handle) as _)?;
    Ok(Arc::new(memory))
}
