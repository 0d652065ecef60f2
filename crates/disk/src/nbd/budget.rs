//! A limit for what the requests of a connection hold of the server's memory.

use std::sync::{Condvar, Mutex};

use super::lock;

/// Bytes that are held from the moment a request is read until its reply is sent. A client that
/// does not read its replies runs out of it, and is not read from any more.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held: u64,
    waiting: bool,
    closed: bool,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default(), released: Condvar::new() }
    }

    /// Takes `bytes`, at once or not at all.
    pub(super) fn try_reserve(&self, bytes: u64) -> bool {
        let mut state = lock(&self.state);
        let fits = !state.closed && state.held + bytes <= self.limit;
        state.held += if fits { bytes } else { 0 };
        fits
    }

    /// Takes `bytes` once they are there; more than the limit when nothing is held. Only a thread
    /// that holds nothing may wait, or it could wait for itself. Returns whether it got them: not
    /// so once the budget is closed.
    pub(super) fn reserve(&self, bytes: u64) -> bool {
        let mut state = lock(&self.state);
        while !state.closed && state.held > 0 && state.held + bytes > self.limit {
            state.waiting = true;
            state = self.released.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.held += bytes;
        !state.closed
    }

    /// Gives `bytes` back.
    pub(super) fn release(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.held -= bytes;
        if state.waiting {
            state.waiting = false;
            self.released.notify_all();
        }
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_limited() {
        let budget = Budget::new(100);
        assert!(budget.try_reserve(60));
        assert!(!budget.try_reserve(41));
        assert!(budget.reserve(40));
        budget.release(100);
        assert!(budget.reserve(1000), "one request may be larger than the limit");
        assert!(!budget.try_reserve(1));
    }

    #[test]
    fn a_waiting_thread_goes_on_when_bytes_are_released() {
        let budget = Budget::new(10);
        assert!(budget.reserve(10));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| budget.reserve(5));
            budget.release(10);
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn a_closed_budget_makes_nobody_wait() {
        let budget = Budget::new(10);
        assert!(budget.reserve(10));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| budget.reserve(5));
            budget.close();
            assert!(!waiting.join().unwrap());
        });
        assert!(!budget.try_reserve(0));
    }
}
