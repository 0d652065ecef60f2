//! Which signals of the front to pass on to the program (F1).
//!
//! The manager gets every signal that is sent to the group, and takes note of it; one that the
//! front got and the manager did not was meant for the front alone. The two may get theirs in
//! either order, some moments apart, so the manager waits for its own a little.

use std::sync::Condvar;
use std::time::{Duration, Instant};

use zfold_pool::{Lock, sound};

/// How long after the front's report of a signal the manager's own may come.
pub(super) const GRACE: Duration = Duration::from_millis(20);

/// How long before it may have come.
const MEMORY: Duration = Duration::from_millis(200);

/// The signals that the manager itself got.
#[derive(Debug, Default)]
pub(super) struct Own {
    recent: Lock<Vec<(i32, Instant)>>,
    arrived: Condvar,
}

impl Own {
    /// Takes note of a signal.
    pub(super) fn note(&self, signal: i32, now: Instant) {
        let mut recent = self.recent.lock();
        recent.retain(|(_, when)| now.duration_since(*when) < MEMORY);
        recent.push((signal, now));
        self.arrived.notify_all();
    }

    /// Returns whether the manager got `signal`, too, which the front reported at `told`; each of
    /// its own answers for one of the front. Waits for up to `grace` if it did not yet.
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
            let left = grace.saturating_sub(told.elapsed());
            if left.is_zero() {
                return false;
            }
            let waited = self.arrived.wait_timeout(recent, left);
            recent = sound(waited).0;
        }
    }
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
