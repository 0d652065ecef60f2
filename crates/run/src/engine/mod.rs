//! The memory side of the manager, as the tracer calls it: none of these calls waits.
//! [`shared`](crate::shared) has the lock order, and which threads wait for which.

mod figures;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use zfold_figures::Histogram;
use zfold_store::Store;

use crate::cold::Cold;
use crate::core::ranges::{PageNo, Pages, page_of, pages_of};
use crate::faults::{ends, readers};
use crate::figures::Counters;
use crate::limit::forks;
use crate::limit::requests::{fetch, set_access};
use crate::limit::strangers;
use crate::limit::watch::Watcher;
use crate::link::{Attached, Ending, Growth, Memory, Request, SpaceId, Ticket, Tracing};
use crate::options::{Unmanaged, page_size};
use crate::permission::sees_accesses;
use crate::reclaim::evictor::Evictor;
use crate::reclaim::let_go;
use crate::seen::Seen;
use crate::shared::Shared;
use crate::spaces::asked::{PageOut, Task};
use crate::spaces::books::Books;
use crate::spaces::budget::Budget;
use crate::spaces::keys::Stock;
use crate::spaces::managed::{Managed, lock};
use crate::spaces::maps::marked_of;
use crate::spaces::sharing::Sharing;
use crate::spaces::signal::Signal;
use zfold_uffd::page::page_len;

/// Most keys of a store: 256 GiB of pages of 4 KiB.
pub(crate) const KEYS: u64 = 1 << 26;

/// Options of the memory side.
pub(crate) struct EngineOptions {
    /// Most bytes of anonymous memory of the tree.
    pub limit_bytes: u64,
    /// Where pages go.
    pub store: Arc<Store>,
    /// Memory that may be closed; all memory, except in tests.
    pub window: Pages,
    /// The scheduler prefers this process' threads.
    pub urgent: bool,
    /// The whole tree ends if memory finds no room, and not only its largest process.
    pub whole: bool,
}

impl EngineOptions {
    /// Returns the defaults for a limit.
    pub(crate) fn new(limit_bytes: u64, store: Arc<Store>) -> Self {
        Self { limit_bytes, store, window: 0..PageNo::MAX, urgent: true, whole: false }
    }
}

/// The memory side. Dropping it ends its threads; the spaces should be gone by then.
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
    /// What of the program's memory is touched.
    pub(crate) seen: Arc<Seen>,
    threads: Vec<JoinHandle<()>>,
}

impl Engine {
    /// Starts the memory side.
    ///
    /// # Errors
    /// The store cannot be made, or the system starts no thread.
    pub(crate) fn start(options: EngineOptions, tracing: Arc<dyn Tracing>) -> io::Result<Self> {
        prepare(&options.store)?;
        let budget = Arc::new(Budget::new(options.limit_bytes, options.urgent));
        let stock = Arc::new(Stock::new(options.store));
        let books = Arc::new(Books::new(budget.clone(), stock.clone())?);
        let counters = Arc::new(Counters::default());
        let cold = Cold::new(stock, books.clone(), budget.clone(), counters.clone())?;
        let shared = Arc::new(Shared {
            books,
            budget,
            cold,
            tracing,
            counters,
            latency: Histogram::default(),
            pending: Mutex::default(),
            retries: Mutex::default(),
            page_outs: Mutex::default(),
            work: Mutex::default(),
            whole: options.whole,
            kinds: Mutex::default(),
            evictor: Signal::default(),
            watcher: Signal::default(),
            strangers: Signal::default(),
            compressors: Signal::default(),
            window: options.window,
            is_ending: AtomicBool::new(false),
        });
        // Its threads end when it is dropped, also if one cannot be started.
        let mut engine = Self { shared, seen: Arc::default(), threads: Vec::new() };
        let evictor = Evictor::new(Arc::clone(&engine.shared));
        engine.spawn("evictor", move || evictor.run())?;
        let watcher = Watcher::new(Arc::clone(&engine.shared));
        engine.spawn("watcher", move || watcher.run())?;
        if engine.shared.looks() {
            let shared = Arc::clone(&engine.shared);
            engine.spawn("strangers", move || strangers::look(&shared))?;
        }
        if sees_accesses() && engine.shared.looks() {
            let (shared, seen) = (Arc::clone(&engine.shared), Arc::clone(&engine.seen));
            engine.spawn("seen", move || seen.run(&shared))?;
        }
        let_go::start(&engine.shared, &mut engine.threads)?;
        readers::start(&engine.shared, &mut engine.threads)?;
        Ok(engine)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(run)?);
        Ok(())
    }

    /// Returns the processes that turned out not to be managed since the last call.
    pub(crate) fn newly_unmanaged(&self) -> Vec<Unmanaged> {
        std::mem::take(&mut lock(&self.shared.books.unmanaged).untold)
    }

    /// Returns where the pages go.
    pub(crate) fn store(&self) -> &Store {
        &self.shared.cold.store
    }

    /// Changes the limit, and wakes the threads that act on it.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.shared.budget.set_limit(bytes);
        self.shared.watcher.call();
        self.shared.evictor.call();
    }

    /// The same with the limit of what is resident and what the store holds, together.
    pub(crate) fn set_limit_together(&self, bytes: u64) {
        let budget = &self.shared.budget;
        let before = budget.limit();
        budget.set_held(self.store().held_bytes());
        budget.set_limit_together(bytes);
        // Most of the time another limit is lower.
        if budget.limit() != before {
            self.shared.watcher.call();
            self.shared.evictor.call();
        }
    }

    /// Counts what parent and child share in both until it is measured.
    fn share(&self, parent: &Managed, child: &Managed) {
        child.seen(parent.charged());
        child.set_credit(child.charged());
        let due = Instant::now() + FIRST_LOOK;
        // A child begins without faults.
        *lock(&child.sharing) =
            Some(Sharing::new(&self.shared.budget, due, Some((0, child.open()))));
        lock(&parent.sharing).get_or_insert_with(|| Sharing::new(&self.shared.budget, due, None));
        if self.shared.budget.is_high_without_credit() {
            self.shared.evictor.call();
        }
    }

    /// Leaves memory open that a program wants wiped at a fork, so that the kernel wipes it.
    fn leave_wiped_open(managed: &Managed) -> io::Result<()> {
        let mut space = managed.lock();
        let wiped = marked_of(managed)?.into_iter().filter(|mapping| mapping.wiped);
        wiped.for_each(|mapping| space.leave_open(&mapping.pages));
        Ok(())
    }
}

/// Makes a store one of a run.
///
/// # Errors
/// Its pages have another size.
fn prepare(store: &Store) -> io::Result<()> {
    let size = page_size();
    if store.stats().pool.page_size != size {
        let message = format!("the pages of a run have {size}: use a pool of such");
        return Err(io::Error::other(message));
    }
    // A refused page ends the program, so a store that has reached its limit takes pages again as
    // soon as dropped copies make room.
    let mut tunables = store.tunables();
    tunables.accept_percent = 100;
    store.tune(&tunables).map_err(io::Error::other)
}

/// Time from a fork to the first measurement of what it shares: most children have called exec by
/// then.
const FIRST_LOOK: Duration = Duration::from_millis(10);

impl Memory for Engine {
    fn exec(&self, pid: i32) -> SpaceId {
        let managed = self.shared.books.new_space(pid);
        let id = managed.id;
        lock(&managed.tasks).insert(pid);
        self.shared.books.insert(managed);
        // The first memory comes soon.
        self.shared.watcher.call();
        id
    }

    fn found(&self, pid: i32) -> SpaceId {
        let id = self.exec(pid);
        if let Some(managed) = self.shared.books.find(id) {
            *lock(&managed.sharing) = Some(Sharing::new(&self.shared.budget, Instant::now(), None));
        }
        id
    }

    fn forked(&self, parent: SpaceId, pid: i32) -> SpaceId {
        let Some(parent) = self.shared.books.find(parent) else { return self.exec(pid) };
        lock(&parent.kept).set_number(None);
        let unclaimed = {
            let mut unclaimed = lock(&parent.unclaimed);
            (!unclaimed.is_empty()).then(|| unclaimed.remove(0))
        };
        let (child, is_new) = match unclaimed {
            Some(child) => (child, false),
            None => (self.shared.books.new_space(pid), true),
        };
        child.set_pid(pid);
        lock(&child.tasks).insert(pid);
        self.share(&parent, &child);
        let id = child.id;
        if is_new {
            self.shared.books.insert(child);
        }
        id
    }

    fn joined(&self, space: SpaceId, thread: i32) {
        let Some(managed) = self.shared.books.find(space) else { return };
        lock(&managed.tasks).insert(thread);
        lock(&managed.kept).remove(thread);
    }

    fn ends(&self, space: SpaceId, ending: &Ending<'_>, ticket: Ticket) -> bool {
        ends::begin(&self.shared, space, ending, ticket)
    }

    fn left(&self, space: SpaceId, thread: i32) {
        let Some(managed) = self.shared.books.find(space) else { return };
        lock(&managed.tasks).remove(&thread);
        lock(&managed.asked_for).remove(&thread);
    }

    fn doubt(&self, space: SpaceId) {
        if let Some(managed) = self.shared.books.find(space) {
            managed.doubt.store(true, Ordering::Release);
        }
    }

    fn wants(&self, space: SpaceId) -> bool {
        let budget = &self.shared.budget;
        let wants = |managed: &Managed| {
            let is_large = || managed.charged() >= crate::limit::close::close_min();
            let is_soon = budget.is_small() || (budget.is_growing() && is_large());
            is_soon && managed.is_worth_helper()
        };
        self.shared.books.find(space).is_some_and(|managed| {
            managed.may_be_attached() && !managed.refused.load(Ordering::Relaxed) && wants(&managed)
        })
    }

    fn descriptor(&self, space: SpaceId) -> io::Result<Option<OwnedFd>> {
        match self.shared.books.find(space) {
            Some(managed) => {
                managed.access().map(crate::spaces::access::Access::duplicate).transpose()
            }
            None => Ok(None),
        }
    }

    fn is_attached(&self, space: SpaceId) -> bool {
        self.shared.books.find(space).is_some_and(|managed| managed.access().is_some())
    }

    fn attach(&self, space: SpaceId, mut attached: Attached, ticket: Ticket) {
        let Some(managed) = self.shared.books.find(space) else {
            return self.shared.tracing.go_on(ticket);
        };
        // The tracer asks next whether the new space is attached; the rest waits for the helper.
        let is_new = managed.access().is_none();
        if is_new {
            if let Err(error) = Self::leave_wiped_open(&managed) {
                self.cannot_attach(space, format!("its mappings cannot be read: {error}"));
                return self.shared.tracing.go_on(ticket);
            }
            set_access(&managed, &mut attached);
            self.shared.books.polls.add(&managed);
        }
        let attached = Box::new(attached);
        self.shared.ask(managed, Task::Attached { attached, is_new }, Some(ticket));
    }

    fn cannot_attach(&self, space: SpaceId, reason: String) {
        if let Some(managed) = self.shared.books.find(space) {
            self.shared.books.cannot_attach(&managed, reason);
        }
    }

    fn does_without(&self, space: SpaceId, reason: String) {
        let Some(managed) = self.shared.books.find(space) else { return };
        // Its number may be that of its helper.
        let pid = lock(&managed.tasks).first().copied().unwrap_or(managed.pid());
        self.shared.books.does_without(pid, reason);
    }

    fn stands(&self, space: SpaceId, turn: u64) {
        if let Some(managed) = self.shared.books.find(space) {
            managed.stands.store(turn, Ordering::Release);
        }
    }

    fn unattached(&self, space: SpaceId) {
        if let Some(managed) = self.shared.books.find(space) {
            managed.unattached();
        }
    }

    fn request(&self, space: SpaceId, request: Request, ticket: Ticket) -> bool {
        let Some(managed) = self.shared.books.find(space) else { return true };
        if managed.access().is_none() || managed.is_dead() {
            return true;
        }
        let is_done = match &request {
            Request::PageOut { .. } | Request::Protect { .. } if !managed.is_attached() => true,
            Request::Protect { .. } if !self.shared.budget.is_near() => true,
            Request::PageOut { range } | Request::Protect { range } => {
                let asked = PageOut { managed, pages: pages_of(range), closed: false, ticket };
                lock(&self.shared.page_outs).push_back(asked);
                self.shared.evictor.call();
                return false;
            }
            Request::Fetch { address } => return !fetch(&self.shared, *address, ticket),
            Request::Opened => {
                lock(&managed.asked_for).remove(&ticket.thread);
                true
            }
            Request::Level { range, len } => managed.try_lock().is_some_and(|mut space| {
                let is_open = !space.closed().touches(&pages_of(range));
                if is_open {
                    space.set_moving(Some(len.div_ceil(page_len())));
                }
                is_open
            }),
            Request::Moved { from, to } => managed.try_lock().is_some_and(|mut space| {
                let is_closed = |to| space.closed().touches(&pages_of(to));
                let is_open = to
                    .as_ref()
                    .is_none_or(|to| !is_closed(to) && !space.own().touches(&pages_of(from)));
                if is_open {
                    space.set_moving(None);
                }
                is_open
            }),
            Request::Fork { number_at } => {
                let is_there = forks::keep_number(&managed, number_at.map(page_of));
                is_there && !self.shared.budget.is_together()
            }
            Request::Open { .. }
            | Request::Mapped { .. }
            | Request::Grown { .. }
            | Request::Hold { .. } => false,
        };
        if !is_done {
            self.shared.ask(managed, Task::Request(request), Some(ticket));
        }
        is_done
    }

    fn fits(&self, bytes: usize) -> bool {
        self.shared.budget.fits(bytes.div_ceil(page_len()))
    }

    fn growth(&self) -> Growth {
        self.shared.budget.growth()
    }

    fn born(&self, parent: SpaceId, child: SpaceId, attached: Attached, ticket: Ticket) {
        match (self.shared.books.find(parent), self.shared.books.find(child)) {
            (Some(parent), Some(child)) => {
                let attached = Box::new(attached);
                self.shared.ask(parent, Task::Born { child, attached }, Some(ticket));
            }
            _ => self.shared.tracing.go_on(ticket),
        }
    }

    fn unborn(&self, parent: SpaceId) {
        if let Some(parent) = self.shared.books.find(parent) {
            lock(&parent.kept).set_number(None);
            // The kernel may have reported a child that it abandoned afterwards.
            let unclaimed = std::mem::take(&mut *lock(&parent.unclaimed));
            unclaimed.iter().for_each(|child| self.gone(child.id));
            self.shared.ask(parent, Task::Unborn, None);
        }
    }

    fn visited(&self, space: SpaceId, thread: i32) {
        if let Some(managed) = self.shared.books.find(space) {
            lock(&managed.visited).insert(thread);
        }
    }

    fn gone(&self, space: SpaceId) {
        let Some(managed) = self.shared.books.take(space) else { return };
        managed.die();
        // Children that were never claimed are gone, too.
        let unclaimed = std::mem::take(&mut *lock(&managed.unclaimed));
        unclaimed.iter().for_each(|child| self.gone(child.id));
        self.shared.ask(managed, Task::Gone, None);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for space in self.shared.books.all().iter() {
            self.gone(space.id);
        }
        self.shared.books.polls.stop();
        let Shared { evictor, watcher, strangers, compressors, .. } = &*self.shared;
        [evictor, watcher, strangers, compressors].into_iter().for_each(Signal::stop);
        self.seen.signal.stop();
        for thread in self.threads.drain(..) {
            // The thread panicked: the tests see that, and there is nothing else to do.
            let _ = thread.join();
        }
    }
}
