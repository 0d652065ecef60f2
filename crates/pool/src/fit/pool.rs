//! The pool: shards, each behind a lock of its own, and which of them a call goes to.
//!
//! The index of a handle names the shard and the object's cell there ([`Split`]). `pool-lock` has
//! one shard. `per-cpu` has as many as the process may use CPUs, but all threads begin in the
//! first, because best fit needs many holes of every length and each shard has its own. Threads
//! move to separate shards only where they contend for a lock and the pool is so large that this
//! costs hardly any density. A thread then stays in one shard, on whichever CPU it runs, until it
//! has met others there some times; so what it frees is mostly in its own:
//!
//! ```text
//!   allocations find a lock taken, 64 times         compaction of a pool that has become small
//!   1 shard in use ---------> 2 ---------> 4 ...    4 ---------> 1
//! ```
//!
//! - W1: an object stays in the shard that it was allocated in; shards share no segment, no cell
//!   and no cache line.
//! - W2: no thread holds the locks of two shards, but one that takes all of them, in order.
//! - W3: a shard takes fresh pages only if no hole of it fits, and none of a loose shard, as far as
//!   the hints say. An allocation fails for want of memory only if no shard has any.
//! - W4: which shards are in use and which are loose are hints ([`Crowd`]): a call that uses an
//!   outdated one takes a neighbour's lock and is just as correct.
//! - W5: a panic under a lock kills that shard alone. Calls that need it say so.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::crowd::Crowd;
use super::owned::TakenOwned;
use super::place::{HEADER_BYTES, Place};
use super::shard::{Shard, Take, Taken};
use crate::handle::{Handle, Split};
use crate::memory::arena::{Arena, UsedPages};
use crate::memory::source::Reservation;
use crate::options::{Contexts, Locking};
use crate::owned::{Address, KEYS_MAX, Nobody, Owners};
use crate::pool::{AllocError, HandleError, PinOwner, Pool, PoolStats, ReadGuard, check_len};
use crate::sync::gate::Gate;
use crate::sync::stat::LockStat;
use crate::units::PageSize;

/// Bytes that a pool holds for each further shard that it uses: one costs about ten KiB of partly
/// used pages and tables.
const SHARD_BYTES_MIN: u64 = 1 << 20;

/// A pool of the allocator fit.
#[derive(Debug)]
pub struct Fit {
    name: String,
    page_size: PageSize,
    /// The names of the locks in statistics.
    lock: &'static str,
    shards: Box<[Shard]>,
    /// By how many bits addresses tell them apart.
    shard_bits: u32,
    split: Split,
    crowd: Arc<Crowd>,
    used: Arc<UsedPages>,
    gate: Gate,
}

impl Fit {
    /// Returns a pool with a shard for each arena and the range of its cells, of which there are at
    /// most as many as [`Split::indices`] says. At least one, at most
    /// [`SHARDS_MAX`](super::SHARDS_MAX).
    pub(crate) fn new(
        name: &str,
        parts: Vec<(Arena, Arc<dyn Reservation>)>,
        locking: Locking,
        contexts: Contexts,
    ) -> Self {
        let (used, crowd) = (Arc::new(UsedPages::default()), Arc::new(Crowd::new()));
        let (page_size, split) = (parts[0].0.page_size(), Split::among(parts.len()));
        let shard_bits = parts.len().next_power_of_two().ilog2();
        let shard = |(number, (arena, cells)): (usize, (Arena, _))| {
            let arena = arena.counted_in(Arc::clone(&used));
            Shard::new(number, shard_bits, arena, cells, Arc::clone(&crowd))
        };
        let shards = parts.into_iter().enumerate().map(shard).collect();
        Self {
            name: name.to_owned(),
            page_size,
            lock: if locking == Locking::PerCpu { "cpu" } else { "pool" },
            shards,
            shard_bits,
            split,
            crowd,
            used,
            gate: Gate::new(contexts.is_single()),
        }
    }

    /// Records that an allocation contends with another call for a lock.
    #[cold]
    fn meet(&self) {
        if self.crowd.count_wait() {
            let more = (2 * self.crowd.in_use()).min(self.shards_worth());
            self.crowd.set_in_use(more.max(self.crowd.in_use()));
        }
    }

    /// Returns how many shards are worth what they cost at most, now.
    fn shards_worth(&self) -> usize {
        let worth = 1 + self.held_bytes() / SHARD_BYTES_MIN;
        self.shards.len().min(usize::try_from(worth).unwrap_or(usize::MAX))
    }

    /// Takes an object; returns its shard, too.
    #[inline]
    fn take<T: Take>(&self, len: usize) -> Result<(usize, T), AllocError> {
        check_len(len, self.len_max())?;
        let home = self.crowd.home();
        let shard = &self.shards[home];
        if shard.is_busy() {
            self.meet();
        }
        match shard.take(len, || self.crowd.loose_beside(home) == 0) {
            Ok(Some(taken)) => Ok((home, taken)),
            Ok(None) | Err(AllocError::NoMemory(_)) => self.take_elsewhere(home, len),
            Err(error) => Err(error),
        }
    }

    /// Takes an object in a hole of a loose shard, or else in the first shard from `home` on that
    /// has memory (W3). Dead shards are skipped.
    #[cold]
    fn take_elsewhere<T: Take>(&self, home: usize, len: usize) -> Result<(usize, T), AllocError> {
        let loose = self.crowd.loose_beside(home);
        for (n, shard) in self.shards.iter().enumerate().filter(|(n, _)| loose >> n & 1 == 1) {
            if let Ok(Some(taken)) = shard.take(len, || false) {
                return Ok((n, taken));
            }
        }
        let (mut failed, count) = (None, self.shards.len());
        for n in (home..home + count).map(|n| n % count) {
            match self.shards[n].take(len, || true) {
                Ok(taken) => return Ok((n, taken.expect("it may grow"))),
                Err(error) => failed.get_or_insert(error),
            };
        }
        Err(failed.expect("a pool has a shard"))
    }

    /// Returns the shard that a handle names, and the handle of the object there.
    #[inline]
    fn inner(&self, handle: Handle) -> Result<(&Shard, Handle), HandleError> {
        let (shard, handle) = self.split.inner(handle).ok_or(HandleError::Stale)?;
        Ok((self.shards.get(shard).ok_or(HandleError::Stale)?, handle))
    }
}

impl PinOwner for Fit {
    #[inline]
    fn unpin(&self, handle: Handle) {
        if let Ok((shard, handle)) = self.inner(handle) {
            shard.unpin(handle);
        }
    }
}

impl Pool for Fit {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_max(&self) -> usize {
        self.page_size.bytes()
    }

    fn huge_len(&self) -> usize {
        // The shortest that takes as many granules as a page does.
        self.page_size.bytes() - HEADER_BYTES + 1
    }

    fn insert(&self, bytes: &[u8]) -> Result<Handle, AllocError> {
        let (shard, taken) = self.take::<Taken>(bytes.len())?;
        Ok(self.split.outer(shard, self.shards[shard].fill(taken, bytes)))
    }

    fn read(&self, handle: Handle) -> Result<ReadGuard<'_>, HandleError> {
        let (shard, inner) = self.inner(handle)?;
        Ok(ReadGuard::new(shard.pin(inner)?, self, handle))
    }

    fn free(&self, handle: Handle) -> Result<(), HandleError> {
        let (shard, handle) = self.inner(handle)?;
        shard.free(handle)
    }

    fn compact_until(&self, pages: u64, stop: &AtomicBool) -> u64 {
        self.compact_owned(&Nobody, pages, stop)
    }

    fn watch_locks(&self, on: bool) {
        self.shards.iter().for_each(|shard| shard.watch(on));
    }

    fn lock_stats(&self) -> Vec<LockStat> {
        self.shards.iter().map(|shard| shard.lock_stat(self.lock)).collect()
    }

    fn held_bytes(&self) -> u64 {
        self.shards.iter().map(Shard::held_bytes).sum()
    }

    fn stats(&self) -> PoolStats {
        // All locks at once (W2), so that the counters are of one moment. A dead shard's may be
        // off by one change; they are still the best there is.
        let held: Vec<_> = self.shards.iter().map(Shard::lock).collect();
        let stats = self.shards.iter().zip(&held).map(|(shard, held)| match held {
            Ok(state) => state.stats(),
            Err(_) => shard.stats_even_dead(),
        });
        let sum = stats.reduce(PoolStats::plus).expect("a pool has a shard");
        PoolStats { pages_peak: self.used.peak(), ..sum }
    }

    fn check(&self) {
        let held: Result<Vec<_>, _> = self.shards.iter().map(Shard::lock).collect();
        let held = held.unwrap_or_else(|_| panic!("pool {} is dead", self.name));
        self.shards.iter().zip(&held).for_each(|(shard, state)| shard.check(state));
        let used: u64 = held.iter().map(|state| state.stats().pages.0).sum();
        assert_eq!(used, self.used.now().0, "W1: the pages of all shards");
        assert!((1..=self.shards.len()).contains(&self.crowd.in_use()), "W4: shards in use");
    }
}

/// Objects that have an owner instead of a handle, which costs less: owned/O1 to O5 at the head of
/// the module `owned` are the contract. Handles are as good as before beside them.
impl Fit {
    /// Returns a pool as what it is, if it is one of fit.
    #[must_use]
    #[inline]
    pub fn of<'a>(pool: &'a (dyn Pool + 'static)) -> Option<&'a Self> {
        (pool as &dyn Any).downcast_ref()
    }

    /// Puts `bytes` into an object of the owner `key`, less than [`KEYS_MAX`]; returns where it is.
    /// The owner does not name it yet (owned/O1), so it stays there.
    ///
    /// # Errors
    /// [`AllocError`]; nothing changes.
    pub fn insert_owned(&self, key: u32, bytes: &[u8]) -> Result<Address, AllocError> {
        assert!(u64::from(key) < KEYS_MAX, "key {key}");
        let (shard, taken) = self.take::<TakenOwned>(bytes.len())?;
        Ok(self.shards[shard].fill_owned(taken, key, bytes))
    }

    /// Returns the `len` bytes of the object of `key` at an address.
    ///
    /// # Errors
    /// [`HandleError::Stale`] if the key before it is another, so that something is damaged.
    ///
    /// # Safety
    /// The address is that of a live object of this pool of that many bytes, and as long as they
    /// are used the caller has the lock of the owner that names it, or no owner names it and no
    /// thread frees it (owned/O2).
    pub unsafe fn read_owned(
        &self,
        key: u32,
        at: Address,
        len: usize,
    ) -> Result<&[u8], HandleError> {
        let (shard, place) = Place::of(at, self.shard_bits);
        // SAFETY: the caller's.
        unsafe { self.shards[shard].read_owned(key, place, len) }
    }

    /// Frees the object of `len` bytes at an address.
    ///
    /// # Errors
    /// [`HandleError::Dead`]; the object stays.
    ///
    /// # Safety
    /// The address is that of a live object of this pool of that many bytes, and no owner names it
    /// (owned/O5).
    pub unsafe fn free_owned(&self, at: Address, len: usize) -> Result<(), HandleError> {
        let (shard, place) = Place::of(at, self.shard_bits);
        self.shards[shard].free_owned(place, len)
    }

    /// Compacts as [`Pool::compact_until`] does, and moves objects of `owners`, too; without these
    /// they stay, and their pages with them.
    pub fn compact_owned(&self, owners: &dyn Owners, pages: u64, stop: &AtomicBool) -> u64 {
        let Some(_inside) = self.gate.enter() else { return 0 };
        // Relaxed: a request that may be seen one step later.
        let shards = self.shards.iter().take_while(|_| !stop.load(Ordering::Relaxed));
        let freed = shards.fold(0, |freed, shard| {
            freed + shard.compact_within(owners, pages.saturating_sub(freed), stop)
        });
        self.crowd.set_in_use(self.crowd.in_use().min(self.shards_worth()));
        freed
    }

    /// Returns whether an object of that many bytes, with `key` in front of it, begins at an
    /// address.
    ///
    /// # Cost
    /// A lock: for tests.
    pub fn is_owned_at(&self, key: u32, at: Address, len: usize) -> bool {
        let (shard, place) = Place::of(at, self.shard_bits);
        self.shards.get(shard).is_some_and(|shard| shard.is_owned_at(key, place, len))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::source::PageSource;
    use crate::testing::{HeapPages, HookedPages};

    /// A pool of `shards` shards over arenas of `pages` pages each.
    fn pool(shards: usize, pages: usize, source: &dyn PageSource) -> Fit {
        let part = |_| {
            let arena = Arena::new(source.reserve(pages << 12).unwrap(), PageSize::KIB4);
            let cells = super::super::cells_range_bytes(pages << 12, 1 << 16);
            (arena, source.reserve(cells).unwrap())
        };
        Fit::new("test", (0..shards).map(part).collect(), Locking::PerCpu, Contexts::Concurrent)
    }

    fn objects(pool: &Fit) -> Vec<u64> {
        pool.shards.iter().map(|shard| shard.lock().unwrap().stats().objects).collect()
    }

    #[test]
    fn threads_part_where_they_meet_and_only_in_a_large_pool() {
        let pool = pool(3, 1024, &HeapPages);
        assert_eq!(pool.crowd.in_use(), 1);
        (0..1000).for_each(|_| pool.meet());
        assert_eq!(pool.crowd.in_use(), 1, "an empty pool");
        let handles: Vec<_> = (0..300).map(|_| pool.insert(&[1; 4000]).unwrap()).collect();
        (0..64).for_each(|_| pool.meet());
        assert_eq!(pool.crowd.in_use(), 2);
        let more: Vec<_> = (0..300).map(|_| pool.insert(&[1; 4000]).unwrap()).collect();
        (0..64).for_each(|_| pool.meet());
        assert_eq!(pool.crowd.in_use(), 3, "as many as there are");
        pool.check();
        handles.into_iter().chain(more).for_each(|handle| pool.free(handle).unwrap());
        pool.compact(u64::MAX);
        assert_eq!(pool.crowd.in_use(), 1);
        pool.check();
    }

    #[test]
    fn an_object_is_found_in_its_shard_whichever_is_home() {
        let pool = pool(3, 64, &HeapPages);
        let mut handles = Vec::new();
        for n in 0..30_u8 {
            let (shard, taken) = {
                let shard = usize::from(n % 3);
                (shard, pool.shards[shard].take::<Taken>(100, || true).unwrap().unwrap())
            };
            let handle = pool.split.outer(shard, pool.shards[shard].fill(taken, &[n; 100]));
            handles.push((n, handle));
        }
        assert_eq!(objects(&pool), [10; 3]);
        pool.check();
        for (n, handle) in handles {
            assert_eq!(*pool.read(handle).unwrap(), [n; 100]);
            pool.free(handle).unwrap();
            assert_eq!(pool.free(handle), Err(HandleError::Stale));
        }
        // A shard that there is none of.
        let made_up = pool.split.outer(3, Handle::new(0, 5));
        assert_eq!(pool.free(made_up), Err(HandleError::Stale));
        pool.check();
    }

    #[test]
    fn holes_of_a_loose_shard_are_filled_before_fresh_pages_are_taken() {
        let pool = pool(2, 1024, &HeapPages);
        let in_second = |_| {
            let taken = pool.shards[1].take::<Taken>(1004, || true).unwrap().unwrap();
            pool.split.outer(1, pool.shards[1].publish(taken))
        };
        let handles: Vec<_> = (0..400).map(in_second).collect();
        handles.iter().step_by(2).for_each(|&handle| pool.free(handle).unwrap());
        assert_eq!(pool.crowd.loose_beside(0), 0b10);
        let before = pool.stats().pages;
        (0..100).for_each(|_| {
            pool.insert(&[1; 1004]).unwrap();
        });
        assert_eq!(pool.stats().pages, before);
        assert_eq!(objects(&pool), [0, 300]);
        // No longer loose: what does not fit there grows the shard at home.
        (0..200).for_each(|_| {
            pool.insert(&[1; 1004]).unwrap();
        });
        assert_eq!(pool.crowd.loose_beside(0), 0);
        assert!(objects(&pool)[0] > 0);
        pool.check();
    }

    #[test]
    fn what_compaction_could_not_move_is_still_freeable() {
        let pool = pool(1, 1024, &HeapPages);
        let handles: Vec<_> = (0..400).map(|_| pool.insert(&[1; 1004]).unwrap()).collect();
        let (stay, go): (Vec<_>, Vec<_>) = (0..).zip(handles).partition(|(n, _)| n % 8 == 0);
        go.into_iter().for_each(|(_, handle)| pool.free(handle).unwrap());
        let freeable = pool.stats().freeable_pages;
        let pinned: Vec<_> = stay.iter().map(|&(_, handle)| pool.read(handle).unwrap()).collect();
        assert_eq!(pool.compact(u64::MAX), 0);
        assert!(freeable.0 > 0 && pool.stats().freeable_pages == freeable);
        drop(pinned);
        assert!(pool.compact(u64::MAX) >= freeable.0);
        assert_eq!(pool.stats().freeable_pages.0, 0);
        pool.check();
    }

    #[test]
    fn a_shard_without_memory_sends_allocations_to_the_others() {
        let pool = pool(3, 16, &HeapPages);
        let handles: Vec<_> = std::iter::from_fn(|| pool.insert(&[7; 4004]).ok()).collect();
        assert_eq!(objects(&pool), [16; 3]);
        assert!(matches!(pool.insert(&[7; 4004]), Err(AllocError::NoMemory(_))));
        pool.free(handles[40]).unwrap();
        assert!(pool.insert(&[7; 4004]).is_ok());
        pool.check();
    }

    #[test]
    fn a_compaction_that_is_stopped_leaves_the_other_shards_alone() {
        let stop = Arc::new(AtomicBool::new(false));
        let released = Arc::clone(&stop);
        let source = HookedPages(Arc::new(move || released.store(true, Ordering::Relaxed)));
        let pool = pool(3, 64, &source);
        for shard in &pool.shards {
            let take = |_| shard.publish(shard.take::<Taken>(4000, || true).unwrap().unwrap());
            let handles: Vec<_> = (0..16).map(take).collect();
            handles.into_iter().for_each(|handle| shard.free(handle).unwrap());
        }
        let idle = || -> Vec<_> {
            let stats = pool.shards.iter().map(|shard| shard.lock().unwrap().stats());
            stats.map(|stats| stats.idle_pages.0).collect()
        };
        assert_eq!(idle(), [16; 3]);
        assert_eq!(pool.compact_until(u64::MAX, &stop), 0);
        assert_eq!(idle(), [0, 16, 16]);
        pool.check();
    }
}
