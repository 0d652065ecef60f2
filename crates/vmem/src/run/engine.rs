//! The memory side of the manager: what the tracer calls.
//!
//! While the charge is low, changes of open memory are only added up, and most of them cost one
//! stop. How much is open is an upper bound then (memory that was unmapped still counts); where
//! that matters, the mappings are read again (`survey`).

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use zfold_pool::{Allocator, PoolOptions};
use zfold_store::{CodecKind, Store, StoreOptions};

use super::access::Access;
use super::budget::Budget;
use super::chance::Chances;
use super::faults;
use super::keys::Keys;
use super::managed::{Managed, Sharing, lock};
use super::memory::{Attached, Change, Follow, Memory, SpaceId, Tracing};
use super::options::Report;
use super::pages::PAYLOADS;
use super::ranges::{PAGE, PageNo, Pages, Ranges, pages_of};
use super::reclaim::{Evictor, close_open, survey};
use super::shared::{Shared, Signal};
use super::space::Space;
use super::stats::{Counters, Latency, Stats, histogram};

/// Keys of a store that is made here: 256 GiB of pages.
pub(super) const KEYS: u64 = 1 << 26;
/// How long the tracer waits for pages that are being moved. It takes some 100 microseconds.
pub(super) const SETTLE: Duration = Duration::from_secs(20);

/// What the memory side is made of.
pub(crate) struct EngineOptions {
    /// Most bytes of anonymous memory of the tree.
    pub limit_bytes: u64,
    /// Where pages go. `None`: a zsmalloc pool and LZ4, in memory without a limit.
    pub store: Option<Arc<Store>>,
    /// Memory that may be closed; all but in tests.
    pub window: Pages,
}

impl EngineOptions {
    /// Returns the defaults for a limit.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, store: None, window: 0..PageNo::MAX }
    }
}

/// The memory side. Dropping it ends its threads; the spaces should be gone by then.
pub(crate) struct Engine {
    pub(super) shared: Arc<Shared>,
    evictor: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the memory side.
    ///
    /// # Errors
    /// The store cannot be made, or the system starts no thread.
    pub(crate) fn start(options: EngineOptions, tracing: Arc<dyn Tracing>) -> io::Result<Self> {
        let store = match options.store {
            Some(store) => store,
            None => Arc::new(default_store()?),
        };
        let budget = Arc::new(Budget::new(options.limit_bytes));
        let chance_max = (budget.limit() / 16).min(1024);
        let keys = u32::try_from(store.slots()).unwrap_or(PAYLOADS).min(PAYLOADS);
        let shared = Arc::new(Shared {
            budget,
            store,
            tracing,
            counters: Counters::default(),
            latency: Mutex::new(histogram()),
            spaces: RwLock::new(BTreeMap::new()),
            keys: Mutex::new(Keys::new(keys)),
            chances: Mutex::new(Chances::default()),
            pending: Mutex::default(),
            page_outs: Mutex::default(),
            grave: Mutex::default(),
            lost: Mutex::default(),
            refusals: Mutex::default(),
            signal: Signal::default(),
            window: options.window,
            chance_max,
        });
        let evictor = Evictor::new(Arc::clone(&shared));
        let evictor =
            std::thread::Builder::new().name("evictor".to_owned()).spawn(move || evictor.run())?;
        Ok(Self { shared, evictor: Some(evictor) })
    }

    /// Returns what is held and was done.
    pub(crate) fn stats(&self) -> Stats {
        let Shared { budget, counters, .. } = &*self.shared;
        let spaces = self.shared.all();
        let bytes = |pages: usize| (pages * PAGE) as u64;
        let stored_bytes = self.shared.store.held_bytes();
        let stored_pages = lock(&self.shared.keys).used() as u64;
        Stats {
            limit_bytes: bytes(budget.limit()),
            charged_bytes: bytes(budget.charge()),
            charged_bytes_peak: bytes(budget.peak()),
            open_bytes: bytes(spaces.iter().map(|space| space.open()).sum()),
            chance_bytes: bytes(lock(&self.shared.chances).pages()),
            stored_pages,
            stored_pages_peak: counters.stored_pages_peak.load(Ordering::Relaxed).max(stored_pages),
            stored_bytes,
            stored_bytes_peak: counters.stored_bytes_peak.load(Ordering::Relaxed).max(stored_bytes),
            spaces: spaces.len() as u64,
            spaces_attached: spaces.iter().filter(|space| space.access().is_some()).count() as u64,
            attached_total: counters.attached.get(),
            forks_total: counters.forks.get(),
            spaces_total: counters.spaces.get(),
            zero_faults_total: counters.zero_faults.get(),
            zero_pages_total: counters.zero_pages.get(),
            stored_faults_total: counters.stored_faults.get(),
            chance_faults_total: counters.chance_faults.get(),
            spurious_faults_total: counters.spurious_faults.get(),
            waiting_faults_total: counters.waiting_faults.get(),
            prefetched_total: counters.prefetched.get(),
            evicted_total: counters.evicted.get(),
            fixed_total: counters.fixed.get(),
            zeros_found_total: counters.zeros_found.get(),
            stored_total: counters.stored.get(),
            closed_pages_total: counters.closed_pages.get(),
            surveys_total: counters.surveys.get(),
            over_limit_total: budget.over_limit_total(),
            latency: Latency::of(&lock(&self.shared.latency)),
        }
    }

    /// Returns what was done, for the person who ran the program for this long.
    pub(crate) fn report(&self, wall: Duration) -> Report {
        let stats = self.stats();
        let latency = lock(&self.shared.latency);
        let nanos = |quantile| latency.value_at_quantile(quantile);
        Report {
            wall,
            limit_bytes: stats.limit_bytes,
            peak_charge_bytes: stats.charged_bytes_peak,
            peak_resident_bytes: stats.charged_bytes_peak,
            peak_stored_bytes: stats.stored_bytes_peak,
            peak_stored_pages: stats.stored_pages_peak,
            faults: stats.latency.count,
            first_touches: stats.zero_faults_total,
            refaults: stats.chance_faults_total,
            loads: stats.stored_faults_total,
            prefetched: stats.prefetched_total,
            evictions: stats.evicted_total,
            stores: stats.stored_total,
            over_limit: stats.over_limit_total,
            processes: stats.spaces_total,
            managed: stats.attached_total,
            fault_latency: latency
                .iter_log(1024, 2.0)
                .map(|step| (step.value_iterated_to() + 1, step.count_since_last_iteration()))
                .collect(),
            fault_quantiles: [nanos(0.5), nanos(0.9), nanos(0.99), nanos(0.999), latency.max()],
        }
    }

    /// Returns a space, for tests to look at.
    #[cfg(test)]
    pub(crate) fn space(&self, id: SpaceId) -> Arc<Managed> {
        self.shared.find(id).expect("it is there")
    }

    /// Lets threads look again whose faults waited for these pages.
    fn wake(&self, managed: &Managed, waited: &[PageNo]) {
        if let Some(access) = managed.access() {
            waited.iter().for_each(|&page| access.wake(&(page..page + 1)));
        }
    }

    fn insert(&self, managed: Arc<Managed>) {
        self.shared.counters.spaces.add(1);
        let mut spaces = self.shared.spaces.write().unwrap_or_else(PoisonError::into_inner);
        spaces.insert(managed.id, managed);
    }

    fn try_attach(&self, managed: &Arc<Managed>, attached: Attached) -> io::Result<()> {
        managed.set_access(Access::new(attached)?);
        faults::start_readers(&self.shared, managed)?;
        self.shared.counters.attached.add(1);
        Ok(())
    }

    /// Stores what the second-chance buffer has of a space.
    fn flush(&self, managed: &Managed) {
        let batches = lock(&self.shared.chances).of(managed.id);
        for batch in batches {
            if self.shared.store_batch(&batch, managed).is_err() {
                return;
            }
        }
    }

    /// The child of a fork, from what its parent was.
    fn child(&self, parent: &Managed, id: SpaceId, pid: i32) -> Option<(Managed, Ranges)> {
        let (snapshot, arrivals) = parent.lock().end_fork()?;
        let mut mapped = Ranges::default();
        for mapping in super::maps::mappings(pid).unwrap_or_default() {
            mapped.insert(mapping.pages);
        }
        let present = present_pages(pid, &arrivals);
        let (space, released) =
            Space::child(snapshot, &arrivals, &mapped, |page| present.around(page).is_some());
        self.shared.release(&released);
        let closed = space.closed().clone();
        let child = Managed::new(id, pid, &self.shared.budget, space);
        Some((child, closed))
    }

    /// What parent and child share is counted in both until it is measured.
    fn share(&self, parent: &Managed, child: &Managed) {
        child.set_credit(child.charged());
        let due = || Some(Sharing { next: Instant::now() + FIRST_LOOK, pause: FIRST_LOOK });
        *lock(&child.sharing) = due();
        lock(&parent.sharing).get_or_insert_with(|| due().expect("it is some"));
        if self.shared.budget.is_high_without_credit() {
            self.shared.call_evictor();
        }
    }
}

/// Time from a fork to the first measurement of what it shares: most children run another
/// program by then.
const FIRST_LOOK: Duration = Duration::from_millis(10);

/// Which of these pages a process has.
fn present_pages(pid: i32, pages: &std::collections::BTreeSet<PageNo>) -> Ranges {
    let mut present = Ranges::default();
    if let Ok(map) = crate::sys::pagemap::Pagemap::open(pid) {
        let mut asked = Ranges::default();
        pages.iter().for_each(|&page| asked.insert(page..page + 1));
        for part in asked.iter() {
            let found = map.present(&super::ranges::bytes_of(&part)).unwrap_or_default();
            found.iter().for_each(|range| present.insert(pages_of(range)));
        }
    }
    present
}

fn default_store() -> io::Result<Store> {
    let pool = zfold_pool::create("run", &PoolOptions::new(Allocator::Zsmalloc));
    let pool = pool.map_err(io::Error::other)?;
    Store::new(pool, &StoreOptions::new(KEYS, CodecKind::Lz4.into())).map_err(io::Error::other)
}

impl Memory for Engine {
    fn exec(&self, space: SpaceId, pid: i32) {
        let managed = Arc::new(Managed::new(space, pid, &self.shared.budget, Space::default()));
        let heaps = survey(&self.shared, &managed).into_iter().filter(|mapping| mapping.heap);
        // Later only brk says where it ends: what the evictor reads may be old by then.
        if let Some(end) = heaps.map(|heap| heap.pages.end).max() {
            managed.heap_end.store(end * PAGE, Ordering::Relaxed);
        }
        self.insert(managed);
        self.shared.call_evictor_if_high();
    }

    fn before(&self, space: SpaceId, change: &Change) -> Follow {
        let Some(managed) = self.shared.find(space).filter(|managed| !managed.is_dead()) else {
            return Follow::Go;
        };
        self.begins(&managed, change)
    }

    fn after(&self, space: SpaceId, change: &Change, result: i64) {
        let Some(managed) = self.shared.find(space).filter(|managed| !managed.is_dead()) else {
            return;
        };
        self.ended(&managed, change, result);
        self.shared.call_evictor_if_high();
    }

    fn wants(&self, space: SpaceId) -> bool {
        self.shared.find(space).is_some_and(|managed| {
            managed.wanted.load(Ordering::Relaxed) && managed.access().is_none()
        })
    }

    fn attach(&self, space: SpaceId, attached: Attached) {
        let Some(managed) = self.shared.find(space) else {
            return;
        };
        managed.wanted.store(false, Ordering::Relaxed);
        match self.try_attach(&managed, attached) {
            Ok(()) => {
                // Before the thread goes on: in open memory it is faster than the evictor.
                if self.shared.budget.is_high() {
                    close_open(&self.shared, &managed);
                }
                self.shared.call_evictor_if_high();
            }
            Err(error) => self.cannot_attach(space, error.to_string()),
        }
    }

    fn cannot_attach(&self, space: SpaceId, reason: String) {
        if let Some(managed) = self.shared.find(space) {
            managed.refused.store(true, Ordering::Relaxed);
            managed.wanted.store(false, Ordering::Relaxed);
        }
        lock(&self.shared.refusals).push(reason);
    }

    fn fork(&self, space: SpaceId) -> bool {
        let Some(managed) = self.shared.find(space).filter(|managed| !managed.is_dead()) else {
            return false;
        };
        // Also if nothing is closed: something may be before the kernel has copied the space, and
        // what left by then would be missing in the child.
        let mut space = managed.lock();
        space.shut();
        let settled = space.wait(SETTLE, |space| space.counts().busy == 0);
        drop(space);
        self.flush(&managed);
        let mut space = managed.lock();
        if !settled || space.counts().chance != 0 {
            let waited = space.open();
            drop(space);
            self.wake(&managed, &waited);
            if !managed.is_dead() {
                self.shared.tracing.end("pages of the program do not settle".to_owned());
            }
            return false;
        }
        let mut keys = lock(&self.shared.keys);
        let waited = space.begin_fork(|key| keys.share(key));
        let closed = space.forks_closed();
        drop(keys);
        drop(space);
        self.wake(&managed, &waited);
        closed
    }

    fn forked(&self, parent: SpaceId, child: Option<(SpaceId, i32, Option<Attached>)>) {
        let Some(parent) = self.shared.find(parent) else {
            return;
        };
        let Some((id, pid, attached)) = child else {
            let ended = parent.lock().end_fork();
            let mut table = ended.map(|(snapshot, _)| snapshot.table).unwrap_or_default();
            return self.shared.release(&table.take(&(0..PageNo::MAX)));
        };
        let (child, closed) = self.child(&parent, id, pid).unwrap_or_else(|| {
            (Managed::new(id, pid, &self.shared.budget, Space::default()), Ranges::default())
        });
        let child = Arc::new(child);
        child.heap_end.store(parent.heap_end.load(Ordering::Relaxed), Ordering::Relaxed);
        child.add_open(parent.open());
        child.stale.store(parent.stale.load(Ordering::Relaxed), Ordering::Relaxed);
        self.share(&parent, &child);
        self.insert(Arc::clone(&child));
        if let Some(attached) = attached {
            let done = self.try_attach(&child, attached).is_ok()
                && closed.iter().all(|part| {
                    let access = child.access().expect("attached just now");
                    access.register(&part).is_ok()
                });
            if !done {
                self.shared.tracing.end("a child of fork cannot be managed".to_owned());
            }
            self.shared.counters.forks.add(1);
        } else if !closed.is_empty() {
            self.shared.tracing.end("a child of fork was not attached".to_owned());
        }
        self.shared.call_evictor_if_high();
    }

    fn gone(&self, space: SpaceId) {
        let removed = {
            let mut spaces = self.shared.spaces.write().unwrap_or_else(PoisonError::into_inner);
            spaces.remove(&space)
        };
        let Some(managed) = removed else {
            return;
        };
        let mut space = managed.lock();
        if !space.wait(SETTLE, |space| space.counts().busy == 0) {
            self.shared.tracing.end("pages of a program that ended do not settle".to_owned());
            return;
        }
        let pages = space.forget_all();
        drop(space);
        managed.die();
        managed.remove_open(managed.open());
        managed.set_credit(0);
        *lock(&managed.sharing) = None;
        self.shared.release(&pages);
        lock(&self.shared.grave).push(managed);
        self.shared.call_evictor();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for space in self.shared.all() {
            self.gone(space.id);
        }
        lock(&self.shared.signal.state).stop = true;
        self.shared.signal.condition.notify_one();
        if let Some(evictor) = self.evictor.take() {
            // It panicked: the tests see that, and there is nothing else to do.
            let _ = evictor.join();
        }
    }
}
