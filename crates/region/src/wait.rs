//! Sleeps until a word changes, also inside a signal handler.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::thread::futex;

/// Sleeps while `word` is `value`, until it is woken or `most` has passed; may return early.
pub(super) fn sleep_while(word: &AtomicU32, value: u32, most: Duration) {
    let timeout =
        futex::Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
    // Whatever the result (changed, interrupted, late), the caller looks again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, Some(&timeout));
}

/// Wakes up to `count` threads that sleep on `word`.
pub(super) fn wake(word: &AtomicU32, count: u32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, count);
}
