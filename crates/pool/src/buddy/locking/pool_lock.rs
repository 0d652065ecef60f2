//! The plain lock design: one spin lock over a core. Also what [`super::per_cpu`] has many of.
//!
//! Every call takes the lock for as long as the core needs, and nothing else. Work that must not
//! happen under a lock happens outside it: memory is returned to the system, owners' evict hooks
//! run, and readers read. A reader holds a pin instead, which the core respects.
//!
//! - L1: the spin lock is the only one, held never across the release of pool pages, a hook or a
//!   reader's use of its bytes. Two rare system calls do happen under it: opening 16 MiB more of
//!   the arena, and giving back the page of a record table that has become empty.
//! - L2: a panic under the lock marks the pool dead; every later call says so instead of trusting
//!   a half-made change.
//! - L3: `held_bytes` mirrors the core's figure as of the last change; it is read without the
//!   lock, for limits.
//! - L4: a worker is rung for when the lock has been given back, after a hold that found work for
//!   it. Memory whose release no worker sees to in time is released by the caller.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::buddy::core::Core;
use crate::buddy::pins::Pins;
use crate::handle::Handle;
use crate::memory::arena::Arena;
use crate::options::Contexts;
use crate::pool::{
    AllocError, HandleError, PinOwner, Pool, PoolStats, ReadGuard, ReclaimError, Refused, check_len,
};
use crate::reclaim::{Victim, reclaim_until};
use crate::sync::gate::Gate;
use crate::sync::spin::{Dead, SpinGuard, SpinLock};
use crate::sync::stat::LockStat;
use crate::sync::worker::Bell;
use crate::units::PageCount;

/// A pool made of a core and one lock.
#[derive(Debug)]
pub(crate) struct Locked<C> {
    name: String,
    len_max: usize,
    huge_len: usize,
    reclaim: bool,
    compacting: Gate,
    bells: Bells,
    held_bytes: AtomicU64,
    state: SpinLock<Guarded<C>>,
}

/// The data that the lock guards.
#[derive(Debug)]
pub(crate) struct Guarded<C> {
    pub(crate) core: C,
    pins: Pins,
}

/// How workers are woken, if the pool has any.
#[derive(Clone, Debug)]
pub(crate) struct Bells {
    /// For the one that calls [`Locked::optimise_some`].
    pub(crate) layout: Bell,
    /// For the one that calls [`Locked::release_due`].
    pub(crate) release: Bell,
}

impl<C: Core> Locked<C> {
    pub(crate) fn new(name: &str, core: C, reclaim: bool, contexts: Contexts) -> Self {
        let bells = Bells { layout: Bell::new().0, release: Bell::new().0 };
        Self { reclaim, ..Self::with_bells(name, core, contexts, bells) }
    }

    /// Returns a pool without reclaim whose workers, if there are any, answer `bells`.
    pub(crate) fn with_bells(name: &str, core: C, contexts: Contexts, bells: Bells) -> Self {
        Self {
            name: name.to_owned(),
            len_max: core.len_max(),
            huge_len: core.huge_len(),
            reclaim: false,
            compacting: Gate::new(contexts.is_single()),
            bells,
            held_bytes: AtomicU64::new(core.held_bytes()),
            state: SpinLock::new(Guarded { core, pins: Pins::default() }),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Result<SpinGuard<'_, Guarded<C>>, Dead> {
        self.state.lock()
    }

    /// Unlocks after a change of the core; sees to upkeep if that is due.
    #[inline]
    fn unlock(&self, mut state: SpinGuard<'_, Guarded<C>>) {
        self.publish(&state.core);
        if state.core.arena().release_due() || state.core.optimise_due() {
            self.keep_up(state);
        }
    }

    /// Has the workers do what is due, or releases memory here (L4).
    #[cold]
    fn keep_up(&self, mut state: SpinGuard<'_, Guarded<C>>) {
        let optimise = state.core.optimise_due();
        let arena = state.core.arena();
        let (due, overdue) = (arena.release_due(), arena.release_overdue());
        drop(state);
        if due && (overdue || !self.bells.release.ring()) {
            self.release_due();
        }
        if optimise {
            self.bells.layout.ring();
        }
    }

    /// Has the core put its layout optimisation off, for a worker or [`Locked::settle`].
    pub(crate) fn defer_layout(&self) {
        if let Ok(mut state) = self.lock() {
            state.core.defer_layout();
        }
    }

    /// Does some of the work that the core put off; returns how many pages still wait.
    pub(crate) fn optimise_some(&self) -> usize {
        let Ok(mut state) = self.lock() else { return 0 };
        let Guarded { core, pins } = &mut *state;
        let left = core.optimise_some(pins);
        self.unlock(state);
        left
    }

    /// Does all the work that the core has put off, or some of it if others keep putting off more.
    pub(crate) fn settle(&self) {
        let mut left = usize::MAX;
        while left > 0 {
            let before = std::mem::replace(&mut left, self.optimise_some());
            if left >= before {
                break;
            }
        }
    }

    /// Releases memory if that is due.
    pub(crate) fn release_due(&self) {
        if let Ok(mut state) = self.lock()
            && state.core.arena().release_due()
        {
            self.release(state, Arena::warm_keep);
        }
    }

    /// Returns what the lock counted, under a name.
    pub(crate) fn lock_stat(&self, name: &'static str, index: usize) -> LockStat {
        self.state.stat(name, index)
    }

    /// Keeps L3; writes the shared word only if the figure changed.
    #[inline]
    fn publish(&self, core: &C) {
        let held = core.held_bytes();
        // Relaxed: a figure for limits; it orders nothing.
        if self.held_bytes.load(Ordering::Relaxed) != held {
            self.held_bytes.store(held, Ordering::Relaxed);
        }
    }

    /// Returns idle memory to the system, all but what `keep` says, without the lock.
    #[cold]
    fn release(&self, mut state: SpinGuard<'_, Guarded<C>>, keep: impl Fn(&Arena) -> PageCount) {
        let arena = state.core.arena();
        let keep = keep(arena);
        let batch = arena.begin_release(keep);
        drop(state);
        batch.release();
        if let Ok(mut state) = self.lock() {
            state.core.arena().end_release(batch);
            self.publish(&state.core);
        }
    }
}

/// Copies `bytes` to the beginning of an object.
///
/// # Safety
/// `object` is the place of a live object that has at least as many bytes, the pool's lock is
/// held, and no guard pins the object.
#[inline]
unsafe fn copy_in(object: NonNull<[u8]>, bytes: &[u8]) {
    let target = object.cast::<u8>();
    // SAFETY: the target has room and is committed (part of an object), no reference to it exists
    // (frames/M1), so `bytes`, a live borrow, cannot overlap it.
    unsafe { target.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
}

impl<C: Core> PinOwner for Locked<C> {
    fn unpin(&self, handle: Handle) {
        // A dead pool frees nothing any more, so its pins need no care.
        if let Ok(mut state) = self.lock() {
            state.pins.remove(handle);
        }
    }
}

impl<C: Core> Pool for Locked<C> {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_max(&self) -> usize {
        self.len_max
    }

    fn huge_len(&self) -> usize {
        self.huge_len
    }

    fn insert(&self, bytes: &[u8]) -> Result<Handle, AllocError> {
        check_len(bytes.len(), self.len_max)?;
        let mut state = self.lock()?;
        let (handle, place) = state.core.alloc(bytes.len())?;
        // SAFETY: a new object of that length, which no other thread has a handle of.
        unsafe { copy_in(place, bytes) };
        self.unlock(state);
        Ok(handle)
    }

    fn read(&self, handle: Handle) -> Result<ReadGuard<'_>, HandleError> {
        let mut state = self.lock()?;
        let bytes = state.core.locate(handle)?;
        state.pins.add(handle);
        drop(state);
        // SAFETY: the bytes are those of a live object, initialised (frames start as zeros), and
        // the pin keeps every writer away from them and the object in place until the guard is
        // dropped (pool/P3, frames/M1). The arena lives as long as `self`, which the guard borrows.
        let bytes = unsafe { bytes.as_ref() };
        Ok(ReadGuard::new(bytes, self, handle))
    }

    fn free(&self, handle: Handle) -> Result<(), HandleError> {
        let mut state = self.lock()?;
        if state.pins.contains(handle) {
            return Err(HandleError::Busy);
        }
        let Guarded { core, pins } = &mut *state;
        core.free(handle, pins)?;
        self.unlock(state);
        Ok(())
    }

    fn compact_until(&self, pages: u64, stop: &AtomicBool) -> u64 {
        let Some(_inside) = self.compacting.enter() else { return 0 };
        let mut freed = 0;
        // Relaxed: a request that may be seen one step later.
        while freed < pages && !stop.load(Ordering::Relaxed) {
            let Ok(mut state) = self.lock() else { break };
            let Guarded { core, pins } = &mut *state;
            let step = core.compact_step(pins);
            self.unlock(state);
            freed += step.freed;
            if step.done {
                break;
            }
        }
        if let Ok(state) = self.lock() {
            self.release(state, |_| PageCount::ZERO);
        }
        if let Ok(mut state) = self.lock() {
            state.core.arena().trim();
            self.publish(&state.core);
        }
        freed
    }

    fn reclaim(
        &self,
        pages: PageCount,
        evict: &mut dyn FnMut(Handle) -> Result<(), Refused>,
    ) -> Result<PageCount, ReclaimError> {
        if !self.reclaim {
            return Err(ReclaimError::Disabled);
        }
        let begin = || Ok(self.lock()?.core.begin_reclaim());
        let end = |victim: &Victim| {
            let Ok(mut state) = self.lock() else { return 0 };
            let gone = state.core.end_reclaim(victim);
            self.unlock(state);
            gone
        };
        reclaim_until(pages, evict, begin, end)
    }

    fn watch_locks(&self, on: bool) {
        self.state.watch(on);
    }

    fn lock_stats(&self) -> Vec<LockStat> {
        vec![self.lock_stat("pool", 0)]
    }

    fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    fn stats(&self) -> PoolStats {
        // A dead pool's counters may be off by one change; they are still the best there is.
        self.state.with_even_dead(|state| state.core.stats())
    }

    fn check(&self) {
        let state = self.lock().unwrap_or_else(|_| panic!("pool {} is dead", self.name));
        state.core.check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::create;
    use crate::options::{Allocator, KernelRules, Locking, PoolOptions};
    use crate::testing::HookedPages;
    use std::sync::{Arc, Barrier};

    /// The first caller is held where it releases memory; meanwhile another one comes.
    #[test]
    fn a_second_compaction_returns_at_once_unless_any_number_may_run() {
        let designs = [
            (Allocator::Zbud, Locking::PoolLock),
            (Allocator::Z3fold, Locking::PoolLock),
            (Allocator::Z3fold, Locking::PerCpu),
        ];
        for ((allocator, locking), contexts) in
            designs.iter().flat_map(|design| Contexts::ALL.map(|contexts| (design, contexts)))
        {
            let (inside, leave) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
            let first = AtomicBool::new(true);
            let hook = {
                let (inside, leave) = (Arc::clone(&inside), Arc::clone(&leave));
                move || {
                    if first.swap(false, Ordering::Relaxed) {
                        inside.wait();
                        leave.wait();
                    }
                }
            };
            let options = PoolOptions {
                locking: Some(*locking),
                rules: KernelRules { contexts, ..KernelRules::default() },
                cpus: Some(1),
                arena_bytes: 1 << 20,
                source: Arc::new(HookedPages(Arc::new(hook))),
                ..PoolOptions::new(*allocator)
            };
            let pool = create("contexts", &options).unwrap();
            let leave_idle = |pages: u64| {
                let handles: Vec<_> =
                    (0..pages).map(|_| pool.insert(&[1; 3900]).unwrap()).collect();
                handles.into_iter().for_each(|handle| pool.free(handle).unwrap());
            };
            std::thread::scope(|scope| {
                leave_idle(10);
                scope.spawn(|| pool.compact(u64::MAX));
                inside.wait();
                leave_idle(5);
                assert_eq!(pool.compact(u64::MAX), 0);
                let left = if contexts == Contexts::Concurrent { 0 } else { 5 };
                assert_eq!(pool.stats().idle_pages, PageCount(left), "{allocator}, {contexts}");
                leave.wait();
            });
            leave_idle(1);
            pool.compact(u64::MAX);
            assert_eq!(pool.stats().idle_pages, PageCount::ZERO, "the gate is open again");
        }
    }
}
