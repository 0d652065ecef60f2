//! Calls a thread that has something to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::spaces::managed::lock;

/// Wakes a thread that has something to do.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    called: AtomicBool,
    state: Mutex<Call>,
    condition: Condvar,
}

#[derive(Debug, Default)]
struct Call {
    work: bool,
    stop: bool,
}

impl Signal {
    /// Calls the thread.
    pub(crate) fn call(&self) {
        // One pending call is enough. AcqRel, with `wait`: the thread sees what was done before a
        // call that is left out once it has taken the pending one.
        if !self.called.swap(true, Ordering::AcqRel) {
            lock(&self.state).work = true;
            self.condition.notify_one();
        }
    }

    /// Ends it, and all other threads that wait for the same signal.
    pub(crate) fn stop(&self) {
        lock(&self.state).stop = true;
        self.condition.notify_all();
    }

    /// The thread waits for a call; returns whether it should stop.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let state = lock(&self.state);
        let idle = |state: &mut Call| !state.work && !state.stop;
        let waited = self.condition.wait_timeout_while(state, time, idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.work = false;
        self.called.swap(false, Ordering::AcqRel);
        state.stop
    }
}
