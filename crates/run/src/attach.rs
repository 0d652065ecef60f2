//! Puts a limit on processes that already run, until they end.

use std::sync::Arc;
use std::time::Instant;

use zfold_pool::Pool;
use zfold_store::StoreOptions;

use crate::control::Control;
use crate::manage::{self, RunError};
use crate::options::{Event, Report};
use crate::permission::Access;
use crate::running::{Refused, Running};
use crate::trace::Handle;
use crate::trace::begin::{NotFollowed, trace_running};

/// Processes that already run and are to get a limit, together with their descendants.
#[derive(Debug)]
#[non_exhaustive]
pub struct AttachOptions {
    /// The processes, each once.
    pub running: Vec<Running>,
    /// The most bytes of their anonymous memory that may be resident, as for a run.
    pub limit_bytes: u64,
    /// The pool that holds compressed pages, as for a run.
    pub pool: Box<dyn Pool>,
    /// The store over it, as for a run.
    pub store: StoreOptions,
}

impl AttachOptions {
    /// Returns these processes under a limit.
    #[must_use]
    pub fn new(
        running: Vec<Running>,
        limit_bytes: u64,
        pool: Box<dyn Pool>,
        store: StoreOptions,
    ) -> Self {
        Self { running, limit_bytes, pool, store }
    }
}

/// Puts processes that already run under a limit, from the calling process, with which they end
/// from then on. Hands out the control, reports when all of them are traced ([`Event::Caught`]),
/// and returns when their last descendant has ended.
///
/// # Errors
///
/// [`RunError::Refused`]: one of them cannot be traced or managed; all go on as before.
/// Other errors: same as [`manage`](crate::manage).
pub fn attach(
    options: AttachOptions,
    access: &Access,
    steer: impl FnOnce(Control),
    mut tell: impl FnMut(Event) + Send,
) -> Result<Report, RunError> {
    let began = Instant::now();
    let AttachOptions { running, limit_bytes, pool, store } = options;
    let handle = Arc::new(Handle::default());
    let memory = manage::start(limit_bytes, pool, store, false, &handle)?;
    steer(Control::new(Arc::clone(&memory)));
    let mut on_news = |news| {
        memory.newly_unmanaged().into_iter().for_each(|process| tell(Event::Unmanaged(process)));
        memory.newly_staying().into_iter().for_each(|staying| tell(Event::Stays(staying)));
        manage::event(news).into_iter().for_each(&mut tell);
    };
    let side = Arc::clone(&memory) as _;
    match trace_running(&running, side, &handle, access.clone(), &mut on_news) {
        Ok(()) => Ok(memory.report(began.elapsed())),
        Err(NotFollowed::Refused(line)) => Err(RunError::Refused(Refused(line))),
        Err(NotFollowed::Failed(error)) => Err(RunError::Ended(manage::said(&error))),
    }
}
