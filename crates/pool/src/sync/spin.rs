//! A spin lock that a panic poisons.
//!
//! It is held for tens of nanoseconds, so waiting threads spin. Taking the lock is one
//! read-modify-write; giving it back is a plain store, which does not wait for the stores before it
//! (the copy of an object into cold memory, usually), as the swap in `std::sync::Mutex` does.
//!
//! A thread that takes the lock again and again, as a compaction does, would keep it from those
//! that wait: by [`SpinLock::lock_in_turn`] it lets them have it in between.
//!
//! A lock can be watched: then it keeps the counters of [`crate::sync::stat`]. While it is not,
//! that costs one load of a byte beside the lock's own, which is in the cache with it.
//!
//! - N1: `value` and `watch` are accessed only between a successful exchange of `state` from free
//!   to held and the store that gives it back. The exchange acquires what that store of the holder
//!   before released.
//! - N2: a holder that panics leaves the state dead for ever; no thread can use the value as a
//!   consistent one again.

use std::time::Instant;

use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use crate::sync::backoff::Backoff;
use crate::sync::order::{self, Rank};
use crate::sync::stat::{Counters, LockStat};

const FREE: u8 = 0;
const HELD: u8 = 1;
const DEAD: u8 = 2;

/// Looks at a lock that a thread leaves to those that wait; each of them takes tens of nanoseconds.
const TURN_SPINS: u32 = 16;

/// A value behind a spin lock. See the module documentation.
#[derive(Debug)]
pub(crate) struct SpinLock<T> {
    state: AtomicU8,
    watched: AtomicBool,
    /// Whether a thread waits, or did since [`SpinLock::lock_in_turn`]; a hint.
    wanted: AtomicBool,
    rank: Rank,
    value: UnsafeCell<T>,
    watch: UnsafeCell<Watch>,
}

/// The state of a watched lock's holder.
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
            wanted: AtomicBool::new(false),
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

    /// Takes the lock, after another thread if one has waited for it.
    pub(crate) fn lock_in_turn(&self) -> Result<SpinGuard<'_, T>, Dead> {
        // Relaxed: a hint.
        if self.wanted.load(Ordering::Relaxed) {
            self.wanted.store(false, Ordering::Relaxed);
            (0..TURN_SPINS).for_each(|_| std::hint::spin_loop());
        }
        self.lock()
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

    /// Returns whether another thread has the lock at this moment.
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        // Relaxed: it is over when the caller looks at the answer.
        self.state.load(Ordering::Relaxed) == HELD
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

    /// Records that a thread waits.
    #[inline]
    fn want(&self) {
        // Relaxed: a hint; models do without.
        if !cfg!(loom) && !self.wanted.load(Ordering::Relaxed) {
            self.wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until the lock is taken by this thread.
    #[cold]
    fn wait(&self) -> Result<(), Dead> {
        let mut backoff = Backoff::default();
        loop {
            match self.state.load(Ordering::Relaxed) {
                DEAD => return Err(Dead),
                FREE if self.try_take() => return Ok(()),
                _ => {
                    self.want();
                    backoff.pause();
                }
            }
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

    /// Calls `look` with the value under the lock, or, once the lock is dead, with the value that
    /// the panic left.
    pub(crate) fn with_even_dead<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        // Acquire pairs with the Release of DEAD by the holder that panicked. A dead lock is not
        // waited for, so it has no place in the lock order.
        if self.state.load(Ordering::Acquire) != DEAD
            && let Ok(guard) = self.lock()
        {
            return look(&guard);
        }
        self.state.load(Ordering::Acquire);
        // SAFETY: a dead lock is never taken again (N2), so no thread has a unique reference, and
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

/// Models: N1 under every interleaving of two threads, and a twin with a broken step, which loom
/// must catch. Loom does not see the reads and writes that follow a `deref`, only where they
/// begin; that is enough for a lock.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::yield_now;
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
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::yield_now;
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
    fn who_takes_a_lock_again_and_again_knows_of_those_that_wait() {
        let lock = SpinLock::new(0);
        drop(lock.lock_in_turn().unwrap());
        assert!(!lock.wanted.load(Ordering::Relaxed));
        std::thread::scope(|scope| {
            let held = lock.lock().unwrap();
            scope.spawn(|| *lock.lock().unwrap() += 1);
            while !lock.wanted.load(Ordering::Relaxed) {
                yield_now();
            }
            drop(held);
        });
        assert_eq!(*lock.lock_in_turn().unwrap(), 1);
        assert!(!lock.wanted.load(Ordering::Relaxed), "they had their turn");
    }

    #[test]
    fn a_watched_lock_counts_what_happens_to_it() {
        let lock = SpinLock::new(0);
        *lock.lock().unwrap() += 1;
        lock.watch(true);
        (0..10).for_each(|_| *lock.lock().unwrap() += 1);
        std::thread::scope(|scope| {
            let guard = lock.lock().unwrap();
            scope.spawn(|| *lock.lock().unwrap() += 1);
            while !lock.wanted.load(Ordering::Relaxed) {
                yield_now();
            }
            std::thread::sleep(Duration::from_millis(10));
            drop(guard);
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
