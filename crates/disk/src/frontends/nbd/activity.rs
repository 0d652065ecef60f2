//! Since when a connection has been idle.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The activity of a connection, reported by its threads. Relaxed throughout: an old value makes an
/// idle time longer or shorter by the moment that it is old.
#[derive(Debug)]
pub(super) struct Activity {
    began: Instant,
    /// Nanoseconds from there to when something happened last.
    last: AtomicU64,
    /// Requests that the device is at.
    busy: AtomicUsize,
}

/// A request that the device is at, until this is dropped.
#[derive(Debug)]
pub(super) struct Busy<'a>(&'a Activity);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.note();
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Activity {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), last: AtomicU64::new(0), busy: AtomicUsize::new(0) }
    }

    /// Something happens now.
    pub(super) fn note(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// The device begins with a request.
    pub(super) fn begin(&self) -> Busy<'_> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(self)
    }

    /// Returns for how long nothing has happened; `None` while the device is at a request.
    pub(super) fn idle(&self) -> Option<Duration> {
        let idle = self.now().saturating_sub(self.last.load(Ordering::Relaxed));
        (self.busy.load(Ordering::Relaxed) == 0).then(|| Duration::from_nanos(idle))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_unless_the_device_is_at_a_request() {
        let activity = Activity::new();
        let before = activity.idle().unwrap();
        let (one, other) = (activity.begin(), activity.begin());
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
}
