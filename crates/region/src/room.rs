//! The limit of uncompressed pages in memory, and the threads that wait for room.
//!
//! - L1: `used` is at most `limit`. It counts pages in their place or on their way there, and
//!   pages of the staging area until they are dropped. Room is taken before a page is brought.
//! - L2: a thread that finds no room announces itself, looks again, and sleeps; a thread that gives
//!   room checks for announced threads afterwards. So no wake-up is lost (both sides are `SeqCst`);
//!   and sleeps are bounded anyway.
//! - L3: while `used` is above the low mark, a background thread is awake, or is woken by a thread
//!   that takes room.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::wait::{sleep_while, wake};

/// The longest sleep before the next check.
const SLEEP: Duration = Duration::from_millis(100);

/// Checks before a thread that waits for room sleeps: about as long as a wake-up takes.
const LOOKS: u32 = 300;

#[derive(Debug)]
pub(super) struct Room {
    limit: u32,
    /// Free pages at which eviction begins and ends.
    low: u32,
    high: u32,
    used: AtomicU32,
    /// Grows when room is given while a thread waits.
    given: AtomicU32,
    waiting: AtomicU32,
    /// Grows when there is work for background threads.
    work: AtomicU32,
    idle: AtomicU32,
}

impl Room {
    /// Room for `limit` pages.
    pub(super) fn new(limit: u32) -> Self {
        let low = (limit / 64).clamp(4, 1024);
        Self {
            limit,
            low,
            high: low * 4,
            used: AtomicU32::new(0),
            given: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            work: AtomicU32::new(0),
            idle: AtomicU32::new(0),
        }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    fn free(&self) -> u32 {
        self.limit.saturating_sub(self.used())
    }

    /// Whether eviction should begin, and continue.
    pub(super) fn is_low(&self) -> bool {
        self.free() < self.low
    }

    pub(super) fn is_below_high(&self) -> bool {
        self.free() < self.high
    }

    /// Whether a thread cannot continue because there is no room. A waiting thread for which there
    /// is room has not run since room was made, which may take long on a busy machine: no more room
    /// is made for it.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 && self.free() == 0
    }

    /// Takes room for one page if there is some.
    pub(super) fn try_take(&self) -> bool {
        self.take_up_to(1, 0) == 1
    }

    /// Takes room for up to `count` pages and leaves room for `leave`; returns for how many.
    pub(super) fn take_up_to(&self, count: u32, leave: u32) -> u32 {
        let mut taken = 0;
        let take = |used: u32| {
            taken = count.min((self.limit - used.min(self.limit)).saturating_sub(leave));
            (taken > 0).then_some(used + taken)
        };
        // SeqCst: L2, with `give`.
        let _ = self.used.fetch_update(Ordering::SeqCst, Ordering::Relaxed, take);
        if self.is_low() {
            self.call_for_work();
        }
        taken
    }

    /// Room that read-ahead leaves free. It is well below what eviction makes, so that there is
    /// room for windows under pressure.
    pub(super) fn reserve(&self) -> u32 {
        self.low / 2
    }

    /// Takes room for one page; waits for it. Returns whether it had to.
    pub(super) fn take(&self) -> bool {
        if self.try_take() {
            return false;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut looks = 0;
        loop {
            let given = self.given.load(Ordering::SeqCst);
            if self.try_take() {
                break;
            }
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
            } else {
                sleep_while(&self.given, given, SLEEP);
            }
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        true
    }

    /// Returns room.
    pub(super) fn give(&self, count: u32) {
        if count == 0 {
            return;
        }
        let before = self.used.fetch_sub(count, Ordering::SeqCst);
        debug_assert!(before >= count, "L1: {before} - {count}");
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.given.fetch_add(1, Ordering::SeqCst);
            wake(&self.given, u32::MAX);
        }
    }

    /// Wakes a background thread, if one sleeps.
    pub(super) fn call_for_work(&self) {
        if self.idle.load(Ordering::SeqCst) > 0 {
            self.work.fetch_add(1, Ordering::SeqCst);
            wake(&self.work, 1);
        }
    }

    /// Wakes all background threads, now and, by the sleep's bound, later.
    pub(super) fn call_all(&self) {
        self.work.fetch_add(1, Ordering::SeqCst);
        wake(&self.work, u32::MAX);
    }

    /// Sleeps until there is work, unless `look` finds some.
    pub(super) fn await_work(&self, look: impl Fn() -> bool) {
        self.idle.fetch_add(1, Ordering::SeqCst);
        let work = self.work.load(Ordering::SeqCst);
        if !look() {
            sleep_while(&self.work, work, SLEEP);
        }
        self.idle.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is() {
        let room = Room::new(100);
        assert_eq!(room.take_up_to(90, 0), 90);
        assert_eq!(room.take_up_to(20, 5), 5);
        assert_eq!((room.take_up_to(20, 5), room.used()), (0, 95));
        assert_eq!(room.take_up_to(20, 0), 5);
        assert!(!room.try_take());
        room.give(1);
        assert!(room.try_take() && room.is_low());
    }

    #[test]
    fn who_waits_for_room_gets_what_is_given() {
        let room = Room::new(4);
        assert_eq!(room.take_up_to(4, 0), 4);
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| room.take())).collect();
            while room.waiting.load(Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            (0..3).for_each(|_| room.give(1));
            waiters.into_iter().for_each(|waiter| assert!(waiter.join().unwrap()));
        });
        assert_eq!((room.used(), room.is_waited_for()), (4, false));
    }
}
