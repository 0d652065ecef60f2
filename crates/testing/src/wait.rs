//! Waiting for what another thread or process does. No test hangs on how long that takes.

use std::fmt::{Debug, Display};
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Does `work`, and beside it `again` over and over on another thread, at least once, until `work`
/// has ended.
pub fn beside<T>(mut again: impl FnMut() + Send, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            again();
            while !over.load(Ordering::Relaxed) {
                again();
            }
        });
        let _over = Over(&over);
        work()
    })
}

/// Does `work` with each of these at the same time, on threads of their own; returns what came of
/// it in their order.
pub fn at_once<I: Send, T: Send>(
    all: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = all.into_iter().map(|one| scope.spawn(move || work(one))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    })
}

/// Says at its end that all is over, also where a test fails.
#[derive(Debug)]
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        // Relaxed: a flag, nothing else.
        self.0.store(true, Ordering::Relaxed);
    }
}
