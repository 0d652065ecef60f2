//! The locks of pools: a spin lock that a panic poisons, and a reader-writer lock.
//!
//! What they guard takes some tens of nanoseconds, so waiting threads spin, then offer their
//! processor to others, among whom the holder may be. Taking a lock is one read-modify-write;
//! giving a spin lock back is a plain store, which does not wait for the stores before it (the
//! copy of an object into cold memory, usually), as the swap in `std::sync::Mutex` does.
//!
//! A lock can be watched: then it keeps the counters of [`crate::lock_stat`]. While it is not, that
//! costs one load of a byte beside the lock's own, which is in the cache with it.
//!
//! - N1: `value` and `watch` of a spin lock are accessed only between a successful exchange of
//!   `state` from free to held and the store that gives it back. The exchange acquires what that
//!   store of the holder before released.
//! - N2: a holder that panics leaves the state dead for ever; nobody gets at the value as a
//!   consistent one again.
//! - N3: a reader-writer lock has one writer and no reader, or no writer. A writer that waits
//!   keeps new readers out.
//! - N4: a thread takes locks in the order of their [`Rank`], those of one rank in the order of
//!   their addresses. Debug builds assert it.

use std::time::Instant;

use crate::lock_stat::{Counters, LockStat};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use crate::sync::{SPINS, UnsafeCell, yield_now};

const FREE: u8 = 0;
const HELD: u8 = 1;
const DEAD: u8 = 2;

/// The lock order: a thread that holds a lock takes only locks of a higher rank (N4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// zsmalloc, hierarchical: the pool's lock against migration.
    Migrate,
    /// A pool's only lock, or that of a heap or shard.
    Heap,
    /// Where heaps get pages and cells from.
    Depot,
    /// The counters of a watched reader-writer lock.
    Counters,
}

/// Keeps the locks that a thread holds, and asserts N4.
#[cfg(all(debug_assertions, not(loom)))]
mod order {
    use super::Rank;
    use std::cell::RefCell;

    thread_local! {
        static TAKEN: RefCell<Vec<(Rank, usize)>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn assert_next(rank: Rank, lock: usize) {
        // A thread whose locals are gone takes no second lock.
        let _ = TAKEN.try_with(|taken| {
            let highest = taken.borrow().iter().copied().max();
            let fits = highest.is_none_or(|highest| highest < (rank, lock));
            assert!(fits, "lock order: {:?} after {highest:?}", (rank, lock));
        });
    }

    pub(super) fn taken(rank: Rank, lock: usize) {
        let _ = TAKEN.try_with(|taken| taken.borrow_mut().push((rank, lock)));
    }

    pub(super) fn given_back(rank: Rank, lock: usize) {
        let _ = TAKEN.try_with(|taken| {
            let mut taken = taken.borrow_mut();
            let at = taken.iter().rposition(|&held| held == (rank, lock));
            at.map(|at| taken.swap_remove(at));
        });
    }
}

#[cfg(not(all(debug_assertions, not(loom))))]
mod order {
    use super::Rank;

    #[inline]
    pub(super) fn assert_next(_: Rank, _: usize) {}
    #[inline]
    pub(super) fn taken(_: Rank, _: usize) {}
    #[inline]
    pub(super) fn given_back(_: Rank, _: usize) {}
}

/// A value behind a spin lock. See the module documentation.
#[derive(Debug)]
pub(crate) struct SpinLock<T> {
    state: AtomicU8,
    watched: AtomicBool,
    rank: Rank,
    value: UnsafeCell<T>,
    watch: UnsafeCell<Watch>,
}

/// What a watched lock's holder keeps.
#[derive(Debug, Default)]
struct Watch {
    counters: Counters,
    /// When the present holder got the lock.
    since: Option<Instant>,
}

// SAFETY: N1: the value is reached by one thread at a time, so `T: Send` suffices, as for Mutex.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// The holder of a lock panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dead;

impl<T> SpinLock<T> {
    /// Returns a free lock of rank [`Rank::Heap`].
    pub(crate) fn new(value: T) -> Self {
        Self::ranked(value, Rank::Heap)
    }

    /// Returns a free lock of a rank.
    pub(crate) fn ranked(value: T, rank: Rank) -> Self {
        Self {
            state: AtomicU8::new(FREE),
            watched: AtomicBool::new(false),
            rank,
            value: UnsafeCell::new(value),
            watch: UnsafeCell::new(Watch::default()),
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(&self.state).addr()
    }

    /// Takes the lock; waits while another thread holds it.
    #[inline]
    pub(crate) fn lock(&self) -> Result<SpinGuard<'_, T>, Dead> {
        order::assert_next(self.rank, self.address());
        let taken = self.try_take();
        if !taken || self.is_watched() {
            self.take_watched(taken)?;
        }
        Ok(self.guard())
    }

    #[inline]
    fn guard(&self) -> SpinGuard<'_, T> {
        order::taken(self.rank, self.address());
        SpinGuard { lock: self, panicking: std::thread::panicking() }
    }

    #[inline]
    fn try_take(&self) -> bool {
        // Acquire pairs with the Release in SpinGuard::drop (N1).
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn is_watched(&self) -> bool {
        // Relaxed: a switch that may take effect one hold later.
        self.watched.load(Ordering::Relaxed)
    }

    /// Takes the lock if it is not `taken` yet, and counts that if it is watched.
    #[cold]
    fn take_watched(&self, taken: bool) -> Result<(), Dead> {
        let waiting = (!taken && self.is_watched()).then(Instant::now);
        if !taken {
            self.wait()?;
        }
        if self.is_watched() {
            let now = Instant::now();
            self.watch.with_mut(|watch| {
                // SAFETY: N1: this thread holds the lock.
                let watch = unsafe { &mut *watch };
                watch.counters.acquired(waiting, now);
                watch.since = Some(now);
            });
        }
        Ok(())
    }

    /// Waits until the lock is taken by this thread.
    #[cold]
    fn wait(&self) -> Result<(), Dead> {
        let mut spins = 0;
        loop {
            match self.state.load(Ordering::Relaxed) {
                DEAD => return Err(Dead),
                FREE if self.try_take() => return Ok(()),
                _ if spins < SPINS => std::hint::spin_loop(),
                _ => yield_now(),
            }
            spins += 1;
        }
    }

    /// Watches the lock from now on, counting from zero, or no longer.
    pub(crate) fn watch(&self, on: bool) {
        self.watched.store(false, Ordering::Relaxed);
        if on && let Ok(guard) = self.lock() {
            // SAFETY: N1: `guard` holds the lock.
            self.watch.with_mut(|watch| unsafe { *watch = Watch::default() });
            drop(guard);
            self.watched.store(true, Ordering::Relaxed);
        }
    }

    /// Returns what the lock counted since it is watched; zeros if it is dead.
    pub(crate) fn stat(&self, name: &'static str, index: usize) -> LockStat {
        let Ok(guard) = self.lock() else {
            return LockStat { name, index, ..LockStat::default() };
        };
        // SAFETY: N1: `guard` holds the lock.
        let stat = self.watch.with(|watch| unsafe { (*watch).counters.report(name, index) });
        drop(guard);
        stat
    }

    /// Calls `look` with the value under the lock, or, once the lock is dead, with what the
    /// panic left.
    pub(crate) fn with_even_dead<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        // Acquire pairs with the Release of DEAD by the holder that panicked. A dead lock is not
        // waited for, so it has no place in the lock order.
        if self.state.load(Ordering::Acquire) != DEAD
            && let Ok(guard) = self.lock()
        {
            return look(&guard);
        }
        self.state.load(Ordering::Acquire);
        // SAFETY: a dead lock is never taken again (N2), so nobody has a unique reference, and
        // the holder's writes are seen because of the load above.
        self.value.with(|value| look(unsafe { &*value }))
    }
}

/// The right to the value; gives the lock back when dropped.
#[derive(Debug)]
pub(crate) struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    /// The thread was unwinding already when it took the lock; the lock has nothing to do with
    /// it.
    panicking: bool,
}

impl<T> std::ops::Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists only while its thread holds the lock (N1).
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T> std::ops::DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed uniquely.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let lock = self.lock;
        if lock.is_watched() {
            lock.watch.with_mut(|watch| {
                // SAFETY: N1: the guard holds the lock.
                let watch = unsafe { &mut *watch };
                // None: watched only since this holder took the lock.
                if let Some(since) = watch.since.take() {
                    watch.counters.released(since);
                }
            });
        }
        order::given_back(lock.rank, lock.address());
        let state = if std::thread::panicking() && !self.panicking { DEAD } else { FREE };
        lock.state.store(state, Ordering::Release);
    }
}

const WRITER: u32 = 1 << 31;
const WRITER_WAITS: u32 = 1 << 30;

/// A reader-writer lock that guards no value of its own (N3).
#[derive(Debug)]
pub(crate) struct RwLock {
    /// Readers, and the bits of a writer that holds or waits.
    state: AtomicU32,
    watched: AtomicBool,
    rank: Rank,
    counters: SpinLock<Counters>,
}

impl RwLock {
    /// Returns a free lock.
    pub(crate) fn new(rank: Rank) -> Self {
        Self {
            state: AtomicU32::new(0),
            watched: AtomicBool::new(false),
            rank,
            counters: SpinLock::ranked(Counters::default(), Rank::Counters),
        }
    }

    /// Takes the lock together with other readers; waits for writers.
    #[inline]
    pub(crate) fn read(&self) -> RwGuard<'_> {
        // Acquire pairs with the Release of a writer's guard.
        self.take(1, |state| (state < WRITER_WAITS).then_some(state + 1))
    }

    /// Takes the lock alone; waits for all others.
    pub(crate) fn write(&self) -> RwGuard<'_> {
        self.take(WRITER, |state| (state & !WRITER_WAITS == 0).then_some(WRITER))
    }

    #[inline]
    fn take(&self, unit: u32, taken: impl Fn(u32) -> Option<u32>) -> RwGuard<'_> {
        order::assert_next(self.rank, std::ptr::from_ref(self).addr());
        let (mut spins, mut waiting) = (0, None);
        // Relaxed: the exchange decides.
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if let Some(next) = taken(state) {
                // Acquire pairs with the Release of the guards before (N3).
                let done = self.state.compare_exchange_weak(
                    state,
                    next,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                match done {
                    Ok(_) => break,
                    Err(now) => state = now,
                }
                continue;
            }
            if waiting.is_none() && self.is_watched() {
                waiting = Some(Instant::now());
            }
            if unit == WRITER {
                self.state.fetch_or(WRITER_WAITS, Ordering::Relaxed);
            }
            if spins < SPINS {
                std::hint::spin_loop()
            } else {
                yield_now()
            }
            spins += 1;
            state = self.state.load(Ordering::Relaxed);
        }
        order::taken(self.rank, std::ptr::from_ref(self).addr());
        let since = self.is_watched().then(|| self.count_acquired(waiting));
        RwGuard { lock: self, unit, since }
    }

    #[inline]
    fn is_watched(&self) -> bool {
        // Relaxed: a switch that may take effect one hold later.
        self.watched.load(Ordering::Relaxed)
    }

    #[cold]
    fn count_acquired(&self, waiting: Option<Instant>) -> Instant {
        let now = Instant::now();
        if let Ok(mut counters) = self.counters.lock() {
            counters.acquired(waiting, now);
        }
        now
    }

    /// Watches the lock from now on, counting from zero, or no longer.
    pub(crate) fn watch(&self, on: bool) {
        if on && let Ok(mut counters) = self.counters.lock() {
            *counters = Counters::default();
        }
        self.watched.store(on, Ordering::Relaxed);
    }

    /// Returns what the lock counted since it is watched.
    pub(crate) fn stat(&self, name: &'static str) -> LockStat {
        self.counters.with_even_dead(|counters| counters.report(name, 0))
    }
}

/// A share of a reader-writer lock, or all of it; gives it back when dropped.
#[derive(Debug)]
pub(crate) struct RwGuard<'a> {
    lock: &'a RwLock,
    /// What was added to the state.
    unit: u32,
    since: Option<Instant>,
}

impl Drop for RwGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(since) = self.since
            && let Ok(mut counters) = self.lock.counters.lock()
        {
            counters.released(since);
        }
        order::given_back(self.lock.rank, std::ptr::from_ref(self.lock).addr());
        // Release pairs with the Acquire of whoever takes it next (N3).
        self.lock.state.fetch_sub(self.unit, Ordering::Release);
    }
}

/// Models: N1 and N3 under every interleaving of two threads, and twins with a broken step, which
/// loom must catch. Loom does not see the reads and writes that follow a `deref`, only where they
/// begin; that is enough for a lock.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;

    /// Two threads change the value under `lock`, which `run` takes and gives back.
    fn increments(run: impl Fn(&SpinLock<u32>) + Clone + Send + Sync + 'static) {
        loom::model(move || {
            let lock = Arc::new(SpinLock::new(0));
            let (other, run_other) = (Arc::clone(&lock), run.clone());
            let thread = loom::thread::spawn(move || run_other(&other));
            run(&lock);
            thread.join().unwrap();
            assert_eq!(*lock.lock().unwrap(), 2);
        });
    }

    #[test]
    fn holders_exclude_each_other_and_see_what_the_last_one_did() {
        increments(|lock| *lock.lock().unwrap() += 1);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn a_twin_that_gives_back_without_release_is_caught() {
        increments(|lock| {
            while !lock.try_take() {
                yield_now();
            }
            // SAFETY: none: this is the bug that the model must see.
            lock.value.with_mut(|value| unsafe { *value += 1 });
            lock.state.store(FREE, Ordering::Relaxed);
        });
    }

    /// A reader and a writer of one cell, whose guards `read` and `write` take.
    fn reads_and_writes(read: fn(&RwLock) -> RwGuard<'_>, write: fn(&RwLock) -> RwGuard<'_>) {
        loom::model(move || {
            let shared = Arc::new((RwLock::new(Rank::Migrate), UnsafeCell::new(0)));
            let other = Arc::clone(&shared);
            let writer = loom::thread::spawn(move || {
                let _guard = write(&other.0);
                // SAFETY: the lock under test; loom sees it if that does not hold.
                other.1.with_mut(|value| unsafe { *value += 1 });
            });
            {
                let _guard = read(&shared.0);
                // SAFETY: as above.
                let seen = shared.1.with(|value| unsafe { *value });
                assert!(seen < 2);
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn a_writer_excludes_readers() {
        reads_and_writes(RwLock::read, RwLock::write);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn a_twin_whose_writer_takes_a_readers_share_is_caught() {
        reads_and_writes(RwLock::read, RwLock::read);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn increments_of_many_threads_all_count() {
        let (lock, rounds) = (SpinLock::new(0), if cfg!(miri) { 50 } else { 20_000 });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..rounds).for_each(|_| *lock.lock().unwrap() += 1));
            }
        });
        assert_eq!(*lock.lock().unwrap(), 4 * rounds);
    }

    #[test]
    fn writers_are_alone_among_many_readers() {
        let (lock, value) = (RwLock::new(Rank::Migrate), std::sync::atomic::AtomicU32::new(0));
        let rounds = if cfg!(miri) { 20 } else { 5_000 };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let _guard = lock.read();
                        assert_eq!(value.load(Ordering::Relaxed) % 2, 0, "a half-made change");
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..rounds {
                    let _guard = lock.write();
                    value.fetch_add(1, Ordering::Relaxed);
                    value.fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        assert_eq!(value.into_inner(), 2 * rounds);
        assert_eq!(lock.state.load(Ordering::Relaxed), 0);
    }

    /// Waits until another thread is about to take a lock, and a while longer, so that it waits.
    fn wait_for(comes: &AtomicBool) {
        while !comes.load(Ordering::Relaxed) {
            yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
    }

    #[test]
    fn a_watched_lock_counts_what_happens_to_it() {
        let lock = SpinLock::new(0);
        *lock.lock().unwrap() += 1;
        lock.watch(true);
        (0..10).for_each(|_| *lock.lock().unwrap() += 1);
        let comes = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let guard = lock.lock().unwrap();
            let waiter = scope.spawn(|| {
                comes.store(true, Ordering::Relaxed);
                *lock.lock().unwrap() += 1;
            });
            wait_for(&comes);
            drop(guard);
            waiter.join().unwrap();
        });
        lock.watch(false);
        *lock.lock().unwrap() += 1;
        let stat = lock.stat("test", 3);
        assert_eq!((stat.name, stat.index), ("test", 3));
        assert_eq!((stat.acquisitions, stat.contentions), (12, 1));
        assert!(stat.wait_max >= Duration::from_millis(5), "{stat:?}");
        assert!(stat.hold_max >= Duration::from_millis(5), "{stat:?}");
        assert!(stat.hold_min <= stat.hold_avg() && stat.hold_avg() <= stat.hold_max);
        assert!(stat.con_bounces <= stat.acq_bounces);
        lock.watch(true);
        assert_eq!(lock.stat("test", 3).acquisitions, 0, "watching starts from zero");
    }

    #[test]
    fn a_watched_reader_writer_lock_counts_both_sides() {
        let lock = RwLock::new(Rank::Migrate);
        lock.watch(true);
        drop((lock.read(), ()));
        drop(lock.write());
        let comes = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let guard = lock.write();
            let waiter = scope.spawn(|| {
                comes.store(true, Ordering::Relaxed);
                drop(lock.read());
            });
            wait_for(&comes);
            drop(guard);
            waiter.join().unwrap();
        });
        let stat = lock.stat("migrate");
        assert_eq!((stat.acquisitions, stat.contentions), (4, 1));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order")]
    fn taking_locks_in_the_wrong_order_is_caught() {
        let (heap, depot) = (SpinLock::new(()), SpinLock::ranked((), Rank::Depot));
        let _depot = depot.lock();
        let _heap = heap.lock();
    }

    #[test]
    fn a_panic_of_the_holder_is_seen_by_all_others() {
        let lock = SpinLock::new(5);
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let mut value = lock.lock().unwrap();
                *value = 6;
                panic!("while holding");
            });
            assert!(holder.join().is_err());
        });
        assert_eq!(lock.lock().err(), Some(Dead));
        assert_eq!(lock.with_even_dead(|value| *value), 6);
    }
}
