//! What a connection is doing: since when it has been idle, and whether requests may still begin.
//!
//! - A1: one word counts the requests that the device is at and, of them, those that change it, and
//!   says whether the connection has broken. A request is counted before it begins. So once the
//!   connection is marked as broken, no request of it begins, and those counted before are all
//!   that there are to wait for.
//! - A2: `break_off` returns when no change is under way. It reads the word and falls asleep in one
//!   step, with `ended` locked; the change that ends last locks `ended` before it notifies.
//! - A3: no thread calls `break_off` with a request of its own counted, so changes wait for no
//!   thread that waits for them.

use std::time::{Duration, Instant};

#[cfg(loom)]
use loom::sync::{
    Condvar, Mutex,
    atomic::{AtomicU64, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Condvar, Mutex,
    atomic::{AtomicU64, Ordering},
};

use zfold_store::pool::sound;

/// One request in the word.
const REQUEST: u64 = 1;
/// One change besides.
const CHANGE: u64 = 1 << 32;
/// The connection has broken.
const BROKEN: u64 = 1 << 63;

/// The activity of a connection, reported by its threads.
#[derive(Debug)]
pub(super) struct Activity {
    began: Instant,
    /// Nanoseconds from there to when something happened last. Relaxed: an old value makes an idle
    /// time longer or shorter by the moment that it is old.
    last: AtomicU64,
    /// [A1](self).
    word: AtomicU64,
    ended: Mutex<()>,
    quiet: Condvar,
}

/// A request that the device is at, until this is dropped.
#[derive(Debug)]
pub(super) struct Busy<'a> {
    activity: &'a Activity,
    counted: u64,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.activity.note();
        self.activity.end(self.counted);
    }
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            last: AtomicU64::new(0),
            word: AtomicU64::new(0),
            ended: Mutex::new(()),
            quiet: Condvar::new(),
        }
    }

    /// Something happens now.
    pub(super) fn note(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// The device begins with a request, which `changes` it or does not. `None` if the connection
    /// has broken: the request is not to be served.
    pub(super) fn begin(&self, changes: bool) -> Option<Busy<'_>> {
        let counted = if changes { REQUEST + CHANGE } else { REQUEST };
        // Acquire: what is done to the device comes after the count (A1).
        if self.word.fetch_add(counted, Ordering::AcqRel) & BROKEN == 0 {
            return Some(Busy { activity: self, counted });
        }
        self.end(counted);
        None
    }

    fn end(&self, counted: u64) {
        // Release: what was done to the device comes before.
        let left = self.word.fetch_sub(counted, Ordering::AcqRel) - counted;
        if left >= BROKEN && counted >= CHANGE && left - BROKEN < CHANGE {
            self.notify();
        }
    }

    #[cold]
    fn notify(&self) {
        // A2: a thread that saw the change waits by now.
        drop(sound(self.ended.lock()));
        self.quiet.notify_all();
    }

    /// Marks the connection as broken, and returns when no change of it is under way any longer: a
    /// moment for each that was begun, since nothing of the peer is waited for.
    pub(super) fn break_off(&self) {
        self.word.fetch_or(BROKEN, Ordering::AcqRel);
        let mut ended = sound(self.ended.lock());
        while self.word.load(Ordering::Acquire) - BROKEN >= CHANGE {
            ended = sound(self.quiet.wait(ended));
        }
    }

    /// Returns for how long nothing has happened; `None` while the device is at a request.
    pub(super) fn idle(&self) -> Option<Duration> {
        let idle = self.now().saturating_sub(self.last.load(Ordering::Relaxed));
        (self.word.load(Ordering::Relaxed) & !BROKEN == 0).then(|| Duration::from_nanos(idle))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Models: nothing that a broken connection has sent is carried out after `break_off`, under the
/// interleavings of two threads of it and one of another connection with three preemptions; twins
/// that look before they count, or mark and do not wait, are caught.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;

    /// Has threads of a connection write by `change` while another connection, which has seen it
    /// break, calls `settle` and then writes.
    fn the_later_write_stays(
        threads: usize,
        change: fn(&Activity, &AtomicU32),
        settle: fn(&Activity),
    ) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let shared = Arc::new((Activity::new(), AtomicU32::new(0)));
            let broken: Vec<_> = (0..threads)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || change(&shared.0, &shared.1))
                })
                .collect();
            settle(&shared.0);
            shared.1.store(2, Ordering::Relaxed);
            broken.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(shared.1.load(Ordering::Relaxed), 2, "an older write came later");
        });
    }

    fn change(activity: &Activity, page: &AtomicU32) {
        if let Some(_busy) = activity.begin(true) {
            page.store(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn no_change_of_a_broken_connection_comes_later() {
        the_later_write_stays(1, change, Activity::break_off);
        the_later_write_stays(2, change, Activity::break_off);
    }

    #[test]
    #[should_panic(expected = "an older write came later")]
    fn a_twin_that_looks_before_it_counts_is_caught() {
        let change = |activity: &Activity, page: &AtomicU32| {
            if activity.word.load(Ordering::Acquire) & BROKEN == 0 {
                activity.word.fetch_add(REQUEST + CHANGE, Ordering::AcqRel);
                page.store(1, Ordering::Relaxed);
                activity.end(REQUEST + CHANGE);
            }
        };
        the_later_write_stays(1, change, Activity::break_off);
    }

    #[test]
    #[should_panic(expected = "an older write came later")]
    fn a_twin_that_does_not_wait_is_caught() {
        the_later_write_stays(1, change, |activity| {
            activity.word.fetch_or(BROKEN, Ordering::AcqRel);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_unless_the_device_is_at_a_request() {
        let activity = Activity::new();
        let before = activity.idle().unwrap();
        let (one, other) = (activity.begin(false), activity.begin(true));
        drop(one);
        assert_eq!(activity.idle(), None);
        drop(other);
        assert!(activity.idle().is_some());
        while activity.idle().unwrap() <= before {}
        activity.note();
        let noted = activity.idle().unwrap();
        while activity.idle().unwrap() == noted {}
        assert!(activity.idle().unwrap() > noted);
    }

    #[test]
    fn a_broken_connection_begins_nothing_and_its_reads_are_not_waited_for() {
        let activity = Activity::new();
        let (read, change) = (activity.begin(false), activity.begin(true));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| activity.break_off());
            while activity.begin(true).is_some() {}
            assert!(activity.begin(false).is_none());
            assert!(!waiting.is_finished(), "a change is under way");
            drop(change);
        });
        assert_eq!(activity.idle(), None);
        drop(read);
        assert!(activity.idle().is_some());
    }
}
