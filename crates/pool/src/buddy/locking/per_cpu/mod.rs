//! The per-CPU lock design: for every CPU a core of its own, behind a lock of its own.
//!
//! An allocation works on the lists of the CPU that it runs on, as z3fold does since Linux 4.14;
//! every other call goes to the shard that the handle's index names ([`Split`]).
//!
//! The CPU is a hint. A thread that is moved to another CPU between looking and locking takes a
//! neighbour's lock and leaves its object there, which costs a cache miss and no more.
//!
//! - D1: an object stays in the shard that allocated it; shards share no page, no record and no
//!   cache line.
//! - D2: no thread holds the locks of two shards, but one that takes all of them, in order.
//! - D3: a shard without memory sends an allocation on to the others; it fails only if all do.
//! - D4: a panic under a lock kills that shard alone. Calls that need it say so.
//!
//! With [`Upkeep::Workers`], `free` leaves two things to threads of the pool: one optimises the
//! layout of pages that lost an object, a batch for each hold of the lock, and is woken for a whole
//! batch; the other one releases emptied pages. Their pending work shows in no counter:
//! [`Pool::stats`] and [`Pool::compact`] do it first.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;

use crate::buddy::core::Core;
use crate::buddy::locking::pool_lock::{Bells, Locked};
use crate::handle::{Handle, Split};
use crate::memory::arena::UsedPages;
use crate::options::{Contexts, Upkeep};
use crate::pool::{AllocError, HandleError, PinOwner, Pool, PoolStats, ReadGuard};
use crate::sync::cpu;
use crate::sync::gate::Gate;
use crate::sync::stat::LockStat;
use crate::sync::worker::{Bell, Rings, Worker};

/// One CPU's part of a pool, on cache lines of its own: pairs of lines are fetched together.
#[derive(Debug)]
#[repr(align(128))]
struct Shard<C>(Locked<C>);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Sharded<C> {
    name: String,
    shards: Arc<[Shard<C>]>,
    split: Split,
    used: Arc<UsedPages>,
    compacting: Gate,
    /// After `shards`: they end with the bells there.
    _workers: Vec<Worker>,
}

impl<C: Core> Sharded<C> {
    /// Returns a pool of `cores`, whose arenas count in `used` and whose indices are below
    /// [`Split::indices`].
    pub(crate) fn new(
        name: &str,
        cores: Vec<C>,
        used: Arc<UsedPages>,
        contexts: Contexts,
        upkeep: Upkeep,
    ) -> Self {
        let (split, layout, release) = (Split::among(cores.len()), Bell::new(), Bell::new());
        let bells = Bells { layout: layout.0, release: release.0 };
        let shard =
            |core| Shard(Locked::with_bells(name, core, Contexts::Concurrent, bells.clone()));
        let shards: Arc<[_]> = cores.into_iter().map(shard).collect();
        let workers = match upkeep {
            Upkeep::Inline => Vec::new(),
            Upkeep::Workers => start_workers(&shards, layout.1, release.1),
        };
        Self {
            name: name.to_owned(),
            shards,
            split,
            used,
            compacting: Gate::new(contexts.is_single()),
            _workers: workers,
        }
    }
}

/// Starts the threads for upkeep. If a thread cannot be started, the callers do its work.
fn start_workers<C: Core>(shards: &Arc<[Shard<C>]>, layout: Rings, release: Rings) -> Vec<Worker> {
    let start = |name: &str, rings, work: fn(&Locked<C>)| {
        // Not the shards themselves, which have the bells.
        let mine = Arc::downgrade(shards);
        Worker::start(Builder::new().name(name.to_owned()), rings, move || {
            mine.upgrade().iter().flat_map(|all| all.iter()).for_each(|Shard(shard)| work(shard));
        })
    };
    let layout = start("zfold-layout", layout, |shard| while shard.optimise_some() > 0 {});
    if layout.is_some() {
        shards.iter().for_each(|Shard(shard)| shard.defer_layout());
    }
    let release = start("zfold-release", release, Locked::release_due);
    layout.into_iter().chain(release).collect()
}

impl<C: Core> Sharded<C> {
    /// The shard of the CPU that the caller runs on.
    #[inline]
    fn home(&self) -> usize {
        #[cfg(test)]
        let cpu = tests::pretended_cpu().unwrap_or_else(cpu::hint);
        #[cfg(not(test))]
        let cpu = cpu::hint();
        // A division for the CPUs that have no shard of their own only.
        if cpu < self.shards.len() { cpu } else { cpu % self.shards.len() }
    }

    /// Returns the shard that a handle names, and its core's handle.
    #[inline]
    fn inner(&self, handle: Handle) -> Result<(&Locked<C>, Handle), HandleError> {
        let (shard, handle) = self.split.inner(handle).ok_or(HandleError::Stale)?;
        let Shard(shard) = self.shards.get(shard).ok_or(HandleError::Stale)?;
        Ok((shard, handle))
    }

    /// Allocates by `place` in the caller's own shard if that has memory.
    #[inline]
    fn place(
        &self,
        place: impl Fn(&Locked<C>) -> Result<Handle, AllocError>,
    ) -> Result<Handle, AllocError> {
        let home = self.home();
        match place(&self.shards[home].0) {
            Ok(handle) => Ok(self.split.outer(home, handle)),
            Err(error @ AllocError::NoMemory(_)) => self.place_anywhere(home, place).ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// Allocates in the first shard from `home` on that has memory (D3); work that was put off
    /// is done first, since it makes room.
    #[cold]
    fn place_anywhere(
        &self,
        home: usize,
        place: impl Fn(&Locked<C>) -> Result<Handle, AllocError>,
    ) -> Option<Handle> {
        let count = self.shards.len();
        (home..home + count).map(|n| n % count).find_map(|n| {
            let Shard(shard) = &self.shards[n];
            shard.settle();
            Some(self.split.outer(n, place(shard).ok()?))
        })
    }
}

impl<C: Core> PinOwner for Sharded<C> {
    fn unpin(&self, handle: Handle) {
        if let Ok((shard, handle)) = self.inner(handle) {
            shard.unpin(handle);
        }
    }
}

/// Without reclaim: there is no age order of the whole pool; [`crate::create`] refuses it.
impl<C: Core> Pool for Sharded<C> {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_max(&self) -> usize {
        self.shards[0].0.len_max()
    }

    fn huge_len(&self) -> usize {
        self.shards[0].0.huge_len()
    }

    fn insert(&self, bytes: &[u8]) -> Result<Handle, AllocError> {
        self.place(|shard| shard.insert(bytes))
    }

    fn read(&self, handle: Handle) -> Result<ReadGuard<'_>, HandleError> {
        let (shard, handle) = self.inner(handle)?;
        shard.read(handle)
    }

    fn free(&self, handle: Handle) -> Result<(), HandleError> {
        let (shard, handle) = self.inner(handle)?;
        shard.free(handle)
    }

    fn compact_until(&self, pages: u64, stop: &AtomicBool) -> u64 {
        let Some(_inside) = self.compacting.enter() else { return 0 };
        // Relaxed: a request that may be seen one step later.
        let shards = self.shards.iter().take_while(|_| !stop.load(Ordering::Relaxed));
        shards.fold(0, |freed, Shard(shard)| {
            freed + shard.compact_until(pages.saturating_sub(freed), stop)
        })
    }

    fn watch_locks(&self, on: bool) {
        self.shards.iter().for_each(|Shard(shard)| shard.watch_locks(on));
    }

    fn lock_stats(&self) -> Vec<LockStat> {
        let stat = |(n, Shard(shard)): (usize, &Shard<C>)| shard.lock_stat("cpu", n);
        self.shards.iter().enumerate().map(stat).collect()
    }

    fn held_bytes(&self) -> u64 {
        self.shards.iter().map(|Shard(shard)| shard.held_bytes()).sum()
    }

    fn stats(&self) -> PoolStats {
        self.shards.iter().for_each(|Shard(shard)| shard.settle());
        // All locks at once (D2), so that the counters are of one moment. A dead shard's may be
        // off by one change; they are still the best there is.
        let held: Vec<_> = self.shards.iter().map(|Shard(shard)| shard.lock()).collect();
        let stats = self.shards.iter().zip(&held).map(|(Shard(shard), held)| match held {
            Ok(state) => state.core.stats(),
            Err(_) => shard.stats(),
        });
        let sum = stats.reduce(PoolStats::plus).expect("a pool has a shard");
        PoolStats { pages_peak: self.used.peak(), ..sum }
    }

    fn check(&self) {
        let held: Result<Vec<_>, _> = self.shards.iter().map(|Shard(shard)| shard.lock()).collect();
        let held = held.unwrap_or_else(|_| panic!("pool {} is dead", self.name));
        held.iter().for_each(|state| state.core.check());
        let used: u64 = held.iter().map(|state| state.core.stats().pages.0).sum();
        assert_eq!(used, self.used.now().0, "D1: the pages of all shards");
    }
}
