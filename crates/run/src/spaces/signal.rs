//! Calls a thread that has something to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use zfold_pool::sound;

use crate::spaces::managed::lock;

/// Wakes a thread that has something to do.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    called: AtomicBool,
    stopped: Mutex<bool>,
    condition: Condvar,
}

impl Signal {
    /// Calls the thread.
    pub(crate) fn call(&self) {
        // One pending call is enough. AcqRel, with `wait`: the thread sees what was done before a
        // call that is left out once it has taken the pending one.
        if !self.called.swap(true, Ordering::AcqRel) {
            // A thread that has not seen it waits by then.
            drop(lock(&self.stopped));
            self.condition.notify_one();
        }
    }

    /// Ends it, and all other threads that wait for the same signal.
    pub(crate) fn stop(&self) {
        *lock(&self.stopped) = true;
        self.condition.notify_all();
    }

    /// The thread waits for a call; returns whether it should stop.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let is_idle = |stopped: &mut bool| !*stopped && !self.called.load(Ordering::Relaxed);
        let waited = self.condition.wait_timeout_while(lock(&self.stopped), time, is_idle);
        let stopped = sound(waited).0;
        self.called.swap(false, Ordering::AcqRel);
        *stopped
    }
}
