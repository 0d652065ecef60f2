//! A reader-writer lock that guards no value of its own. It spins, and can be watched, as
//! [`SpinLock`] does.
//!
//! - N3: it has one writer and no reader, or no writer. A writer that waits keeps new readers out.

use std::time::Instant;

use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::backoff::Backoff;
use crate::sync::order::{self, Rank};
use crate::sync::spin::SpinLock;
use crate::sync::stat::{Counters, LockStat};

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
        let (mut backoff, mut waiting) = (Backoff::default(), None);
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
            backoff.pause();
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
    /// The number that was added to the state.
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
        // Release pairs with the Acquire of the next thread that takes it (N3).
        self.lock.state.fetch_sub(self.unit, Ordering::Release);
    }
}

/// Models: N3 under every interleaving of two threads, and a twin with a broken step, which loom
/// must catch.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::UnsafeCell;
    use loom::sync::Arc;

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
                // SAFETY: same as above.
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

    #[test]
    fn a_watched_reader_writer_lock_counts_both_sides() {
        let lock = RwLock::new(Rank::Migrate);
        lock.watch(true);
        drop((lock.read(), ()));
        drop(lock.write());
        std::thread::scope(|scope| {
            let guard = lock.read();
            scope.spawn(|| drop(lock.write()));
            while lock.state.load(Ordering::Relaxed) & WRITER_WAITS == 0 {
                std::thread::yield_now();
            }
            drop(guard);
        });
        let stat = lock.stat("migrate");
        assert_eq!((stat.acquisitions, stat.contentions), (4, 1));
    }
}
