//! Which signals of the front to pass on to the program (F1).
//!
//! The manager gets every signal that is sent to the group, and takes note of it; one that the
//! front got and the manager did not was meant for the front alone. The kernel sends the two one
//! after the other, in either order, so the manager waits a little until its own is sent. On a busy
//! machine it takes longer until a thread has taken note of that: first it is pending, then it is
//! coming, when a handler has got it. Both can be seen, and such a signal is waited for.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use signal_hook::flag;
use zfold_pool::{Lock, sound};

use super::passed::passed;
use crate::shared::rights::bits;

/// How long after the front's report of a signal the manager's own may be sent.
pub(super) const GRACE: Duration = Duration::from_millis(20);

/// How long before the front's report it may have come, and how long it may be on its way: longer
/// than a thread waits for a processor.
const MEMORY: Duration = Duration::from_secs(2);
const LATE: Duration = Duration::from_secs(5);

/// How often is looked whether it still is.
const LOOK: Duration = Duration::from_millis(5);

/// The signals that the manager itself got.
#[derive(Debug, Default)]
pub(super) struct Own {
    recent: Lock<Vec<(i32, Instant)>>,
    arrived: Condvar,
    /// Set by the handlers, and reset when the signal is noted, with `recent` locked.
    coming: Vec<(i32, Arc<AtomicBool>)>,
}

impl Own {
    /// Returns what takes note of the signals that are the program's.
    pub(super) fn new() -> Self {
        let coming = passed().map(|signal| {
            let coming = Arc::default();
            // One that cannot be caught does not come.
            let _ = flag::register(signal, Arc::clone(&coming));
            (signal, coming)
        });
        Self { coming: coming.collect(), ..Self::default() }
    }

    /// Takes note of a signal.
    pub(super) fn note(&self, signal: i32, now: Instant) {
        let mut recent = self.recent.lock();
        // Relaxed: whoever looks has the lock.
        self.coming(signal).inspect(|coming| coming.store(false, Ordering::Relaxed));
        recent.retain(|(_, when)| now.duration_since(*when) < MEMORY);
        recent.push((signal, now));
        self.arrived.notify_all();
    }

    /// Returns whether the manager got `signal`, too, which the front reported at `told`; each of
    /// its own answers for one of the front. Waits for up to `grace` if none was sent to it yet.
    pub(super) fn matches(&self, signal: i32, told: Instant, grace: Duration) -> bool {
        let is_it = |(own, when): &(i32, Instant)| {
            *own == signal && told.saturating_duration_since(*when) < MEMORY
        };
        let mut recent = self.recent.lock();
        loop {
            if let Some(index) = recent.iter().position(is_it) {
                recent.swap_remove(index);
                return true;
            }
            let mut left = grace.saturating_sub(told.elapsed());
            if left.is_zero() {
                if told.elapsed() > LATE || !self.is_on_its_way(signal) {
                    return false;
                }
                left = LOOK;
            }
            let waited = self.arrived.wait_timeout(recent, left);
            recent = sound(waited).0;
        }
    }

    /// Returns whether a signal was sent to this process that is not noted. `recent` is locked.
    fn is_on_its_way(&self, signal: i32) -> bool {
        // In the order in which it goes, so that it is not missed between the two.
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        is_pending(&status, signal)
            || self.coming(signal).is_some_and(|coming| coming.load(Ordering::Relaxed))
    }

    fn coming(&self, signal: i32) -> Option<&AtomicBool> {
        self.coming.iter().find(|(of, _)| *of == signal).map(|(_, coming)| &**coming)
    }
}

/// Returns whether a process has not got a signal yet that was sent to it, by its status.
fn is_pending(status: &str, signal: i32) -> bool {
    bits(status, "ShdPnd:") >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_own_signal_answers_for_one() {
        let own = Own::default();
        let now = Instant::now();
        own.note(15, now);
        assert!(!own.matches(1, now, GRACE), "another signal");
        assert!(own.matches(15, now, GRACE));
        assert!(!own.matches(15, now, GRACE), "it has answered");
    }

    #[test]
    fn an_old_one_does_not_answer() {
        let own = Own::default();
        let Some(past) = Instant::now().checked_sub(MEMORY) else { return };
        own.note(15, past);
        assert!(!own.matches(15, Instant::now(), GRACE));
    }

    /// Where its thread waits for a processor, that may take longer than any grace.
    #[test]
    fn one_that_is_on_its_way_is_waited_for() {
        let coming = Arc::new(AtomicBool::new(true));
        let own = Own { coming: vec![(15, Arc::clone(&coming))], ..Own::default() };
        std::thread::scope(|scope| {
            let (told, own) = (Instant::now(), &own);
            let waiting = scope.spawn(move || own.matches(15, told, Duration::ZERO));
            assert!(!own.matches(1, told, Duration::ZERO), "another one is not");
            std::thread::sleep(GRACE);
            own.note(15, Instant::now());
            assert!(waiting.join().expect("no panic"));
        });
        assert!(!coming.load(Ordering::Relaxed) && !own.matches(15, Instant::now(), GRACE));
    }

    #[test]
    fn what_is_pending_is_told_by_the_kernel() {
        let status = "SigPnd:\t0000000000004000\nShdPnd:\t8000000000000001\nSigBlk:\t0\n";
        assert!(is_pending(status, 1) && is_pending(status, 64));
        assert!(!is_pending(status, 15) && !is_pending("", 1));
    }

    #[test]
    fn one_that_comes_a_little_later_answers() {
        let own = Own::default();
        std::thread::scope(|scope| {
            let told = Instant::now();
            let own = &own;
            let waiting = scope.spawn(move || own.matches(15, told, GRACE * 1000));
            own.note(15, Instant::now());
            assert!(waiting.join().expect("no panic"));
        });
    }
}
