//! Waiting for what another thread or process does. No test hangs on how long that takes.

use std::fmt::{Debug, Display};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How often is looked. Looking can mean to start a program.
const INTERVAL: Duration = Duration::from_millis(5);

/// Returns a deadline for what takes no time: long enough for anything that comes at all.
pub fn soon() -> Instant {
    Instant::now() + PATIENCE / 2
}

/// Waits until `done`.
pub fn wait_until(what: impl Display, mut done: impl FnMut() -> bool) {
    let late = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < late, "waited in vain until {what}");
        thread::sleep(INTERVAL);
    }
}

/// Waits until `found` returns a value, and returns that. What it returns before is for the message
/// of a test that fails.
pub fn wait_for<T, E: Debug>(mut found: impl FnMut() -> Result<T, E>) -> T {
    let late = Instant::now() + PATIENCE;
    loop {
        match found() {
            Ok(value) => return value,
            Err(state) => assert!(Instant::now() < late, "waited in vain: {state:?}"),
        }
        thread::sleep(INTERVAL);
    }
}
