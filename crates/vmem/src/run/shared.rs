//! What the threads of the memory side share.
//!
//! Locks, in the order in which they are taken; nobody takes an earlier one while holding a
//! later one, and of one kind only one at a time:
//!
//! 1. `spaces`: held to look up or change the table, nothing else
//! 2. a space's mover (`Access::mover`): held by the evictor while the helper works
//! 3. a space's core (`Managed::lock`): short; never across compression, loading or calls of the
//!    helper. Filling in one page of a message that may be old, registering and scanning a slice
//!    of a range happen under it, so that nothing leaves meanwhile.
//! 4. leaves: keys, second chances, pending faults, a space's sharing and readers, the signal of
//!    the evictor
//!
//! Who waits for whom:
//!
//! - The tracer waits (in `before` and `fork`) for pages that are leaving or arriving: for the
//!   evictor and readers. Never for room.
//! - The evictor waits for the helper, which may wait for a fault of its own: for readers.
//! - Readers wait for nobody. A fault that cannot be answered now is left to whoever makes it
//!   answerable: that thread wakes the page, and the fault comes again. One for which there is no
//!   room is left to the evictor.
//! - The program waits for readers and the evictor, and for the tracer when it changes its
//!   address space.
//!
//! So the chain ends at the readers. A space that is lost (its helper died) is dead: nobody waits
//! for anything there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use zfold_store::{LoadError, Store, StoreError};

use super::budget::Budget;
use super::chance::{Batch, Chances};
use super::keys::Keys;
use super::managed::{Managed, lock};
use super::memory::{SpaceId, Tracing};
use super::pages::{Key, Page};
use super::ranges::{PageNo, Pages};
use super::stats::Counters;

/// How long a space whose helper is gone may take to end.
const LOST: Duration = Duration::from_secs(2);

/// A fault that waits for room.
pub(crate) struct Pending {
    pub managed: Arc<Managed>,
    pub page: PageNo,
}

/// What calls the evictor.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    called: AtomicBool,
    pub state: Mutex<Call>,
    pub condition: Condvar,
}

/// What the evictor is called for.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub work: bool,
    pub stop: bool,
}

/// The memory side without its threads.
pub(crate) struct Shared {
    pub budget: Arc<Budget>,
    pub store: Arc<Store>,
    pub tracing: Arc<dyn Tracing>,
    pub counters: Counters,
    pub latency: Mutex<Histogram<u64>>,
    pub spaces: RwLock<BTreeMap<SpaceId, Arc<Managed>>>,
    pub keys: Mutex<Keys>,
    pub chances: Mutex<Chances>,
    pub pending: Mutex<VecDeque<Pending>>,
    /// Spaces that are gone and whose readers are still to end.
    pub grave: Mutex<Vec<Arc<Managed>>>,
    /// Spaces whose helper is gone, and since when; they should be gone soon, too.
    pub lost: Mutex<Vec<(SpaceId, Instant)>>,
    /// Why spaces could not be attached.
    pub refusals: Mutex<Vec<String>>,
    pub signal: Signal,
    /// Memory that may be closed; all of it but in tests that are their own program.
    pub window: Pages,
    /// Pages that the second-chance buffer holds when nothing presses.
    pub chance_max: usize,
}

impl Shared {
    /// Returns a space.
    pub(crate) fn find(&self, id: SpaceId) -> Option<Arc<Managed>> {
        let spaces = self.spaces.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        spaces.get(&id).cloned()
    }

    /// Returns all spaces in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Arc<Managed>> {
        let spaces = self.spaces.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        spaces.values().cloned().collect()
    }

    /// Calls the evictor.
    pub(crate) fn call_evictor(&self) {
        // A call that was made and not taken is enough. AcqRel, with `wait_for_call`: what was done
        // before a call that is left out is seen by the evictor after it has taken the other.
        if !self.signal.called.swap(true, Ordering::AcqRel) {
            lock(&self.signal.state).work = true;
            self.signal.condition.notify_one();
        }
    }

    /// Calls it if there is too much.
    pub(crate) fn call_evictor_if_high(&self) {
        if self.budget.is_high() {
            self.call_evictor();
        }
    }

    /// The evictor waits for a call; returns whether it should stop.
    pub(crate) fn wait_for_call(&self, time: Duration) -> bool {
        let state = lock(&self.signal.state);
        let idle = |state: &mut Call| !state.work && !state.stop;
        let waited = self.signal.condition.wait_timeout_while(state, time, idle);
        let mut state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        state.work = false;
        self.signal.called.swap(false, Ordering::AcqRel);
        state.stop
    }

    /// Releases what states name that were taken out of a space (S6).
    ///
    /// # Cost
    /// A free in the store for each stored page.
    pub(crate) fn release(&self, pages: &[(PageNo, Page)]) {
        let keys = pages.iter().filter_map(|(_, state)| match state {
            Page::Stored(key) => Some(*key),
            _ => None,
        });
        self.release_keys(keys);
    }

    /// Releases keys.
    pub(crate) fn release_keys(&self, keys: impl Iterator<Item = Key>) {
        let last: Vec<Key> = {
            let mut of = None;
            keys.filter(|&key| of.get_or_insert_with(|| lock(&self.keys)).release(key)).collect()
        };
        for &key in &last {
            self.store.invalidate(u64::from(key));
        }
        if !last.is_empty() {
            let mut keys = lock(&self.keys);
            last.into_iter().for_each(|key| keys.put_back(key));
        }
    }

    /// Stores the pages of a batch that are still in it, so that none is left there.
    ///
    /// # Errors
    /// The store takes no more; the tree is being ended, the pages stay.
    pub(crate) fn store_batch(&self, batch: &Batch, managed: &Managed) -> Result<(), ()> {
        let live: Vec<usize> = {
            let space = managed.lock();
            (0..batch.len()).filter(|&at| space.holds(batch.owner(at), batch.slot(at))).collect()
        };
        let keys: Vec<Key> = {
            let mut keys = lock(&self.keys);
            live.iter().map_while(|_| keys.take()).collect()
        };
        let stored = live.iter().zip(&keys).try_for_each(|(&at, &key)| {
            self.store.store(u64::from(key), batch.page(at)).map(|_| ())
        });
        let failure = match stored {
            Err(error) => Some(error),
            Ok(()) if keys.len() < live.len() => Some(StoreError::Full),
            Ok(()) => None,
        };
        if let Some(error) = failure {
            self.release_keys(keys.into_iter());
            self.end_full(error);
            return Err(());
        }
        let mut unused = Vec::new();
        {
            let mut space = managed.lock();
            for (&at, &key) in live.iter().zip(&keys) {
                if !space.stored(batch.owner(at), batch.slot(at), key) {
                    unused.push(key);
                }
            }
        }
        self.counters.stored.add(live.len() - unused.len());
        self.release_keys(unused.into_iter());
        Ok(())
    }

    /// Stores one page whose slot is gone; returns where it is.
    pub(crate) fn keep(&self, bytes: &[u8]) -> Page {
        let Some(key) = lock(&self.keys).take() else {
            self.end_full(StoreError::Full);
            return Page::Absent;
        };
        match self.store.store(u64::from(key), bytes) {
            Ok(_) => Page::Stored(key),
            Err(error) => {
                self.release_keys(std::iter::once(key));
                self.end_full(error);
                Page::Absent
            }
        }
    }

    fn end_full(&self, error: StoreError) {
        self.tracing.end(format!(
            "memory that left the program cannot be kept: {error}; give a larger --limit, or a \
             file for what does not fit with --backing"
        ));
    }

    /// Ends the tree because a page cannot be loaded.
    pub(crate) fn end_load(&self, error: &LoadError) {
        self.tracing.end(format!("a page of the program cannot be given back: {error}"));
    }

    /// Notes that a space's helper is gone. That should mean that the space is, and that the
    /// tracer is about to say so; see [`check_lost`](Self::check_lost).
    pub(crate) fn lost(&self, managed: &Managed) {
        managed.die();
        lock(&self.lost).push((managed.id, Instant::now()));
    }

    /// Ends the tree if a space has lost its helper and goes on.
    pub(crate) fn check_lost(&self) {
        let mut lost = lock(&self.lost);
        lost.retain(|(id, _)| self.find(*id).is_some());
        if lost.iter().any(|(_, since)| since.elapsed() > LOST) {
            lost.clear();
            self.tracing.end("the helper that gives a program its memory was killed".to_owned());
        }
    }
}
