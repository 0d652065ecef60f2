//! What tests of the backing share.

use std::thread;
use std::time::{Duration, Instant};

/// Waits for what another thread does.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let late = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < late, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
