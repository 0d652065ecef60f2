//! A limit for what requests hold of the server's memory.
//!
//! Bytes are held from the moment a request is read until its reply is sent. Each connection has
//! [`RESERVE`] bytes of its own, and draws what it needs beyond them from what all connections
//! [share](Shared). So small requests touch nothing that is shared, and clients that hold the whole
//! share do not make others wait: a large request that finds no room in it is served in pieces,
//! from the reserve, once it is the only one of its connection.

use std::sync::Condvar;
use std::sync::atomic::{AtomicU64, Ordering};

use zfold_store::pool::{Lock, sound};

/// The bytes that a connection may hold whatever others hold.
pub(super) const RESERVE: u64 = 256 << 10;

/// The bytes that the connections of a server may hold beyond their reserves.
#[derive(Debug)]
pub(super) struct Shared {
    limit: u64,
    drawn: AtomicU64,
}

/// The bytes that a connection holds. A client that does not read its replies runs out of them, and
/// is no longer read from.
#[derive(Debug)]
pub(super) struct Budget<'a> {
    shared: &'a Shared,
    state: Lock<Held>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    held: u64,
    waiting: bool,
    closed: bool,
}

/// How a request may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reserved {
    /// As a whole: its memory was reserved.
    Whole,
    /// In pieces: nothing else of the connection is under way, and the reserve was reserved.
    Pieces,
    /// Not at all: the budget is closed.
    Closed,
}

impl Shared {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, drawn: AtomicU64::new(0) }
    }

    /// Draws `bytes`, or nothing.
    fn try_draw(&self, bytes: u64) -> bool {
        let more = |drawn: u64| drawn.checked_add(bytes).filter(|drawn| *drawn <= self.limit);
        // Relaxed: a number that guards nothing.
        self.drawn.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.drawn.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Returns how much of `held` bytes is drawn from the share.
fn drawn(held: u64) -> u64 {
    held.saturating_sub(RESERVE)
}

impl<'a> Budget<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        Self { shared, state: Lock::default(), released: Condvar::new() }
    }

    /// Takes `bytes`, at once or not at all.
    pub(super) fn try_reserve(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        !state.closed && self.take(&mut state, bytes)
    }

    /// Takes `bytes`, or the reserve where they are not to be had; waits for memory that the
    /// connection itself holds. Only a thread that holds nothing may wait, or it could wait for
    /// itself.
    pub(super) fn reserve(&self, bytes: u64) -> Reserved {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return Reserved::Closed;
            }
            if self.take(&mut state, bytes) {
                return Reserved::Whole;
            }
            if state.held == 0 {
                state.held = RESERVE;
                return Reserved::Pieces;
            }
            state.waiting = true;
            state = sound(self.released.wait(state));
        }
    }

    /// Gives `bytes` back.
    pub(super) fn release(&self, bytes: u64) {
        let mut state = self.state.lock();
        self.give_back(&mut state, bytes);
        if state.waiting {
            state.waiting = false;
            self.released.notify_all();
        }
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.released.notify_all();
    }

    fn take(&self, state: &mut Held, bytes: u64) -> bool {
        let held = state.held + bytes;
        let more = drawn(held) - drawn(state.held);
        let fits = more == 0 || self.shared.try_draw(more);
        if fits {
            state.held = held;
        }
        fits
    }

    fn give_back(&self, state: &mut Held, bytes: u64) {
        let held = state.held - bytes;
        self.shared.give_back(drawn(state.held) - drawn(held));
        state.held = held;
    }
}

impl Drop for Budget<'_> {
    /// Gives back what is still held after a panic.
    fn drop(&mut self) {
        let held = self.state.lock().held;
        self.shared.give_back(drawn(held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_limited() {
        let shared = Shared::new(100);
        let [one, other] = [Budget::new(&shared), Budget::new(&shared)];
        assert!(one.try_reserve(RESERVE) && other.try_reserve(RESERVE), "nothing is shared yet");
        assert!(one.try_reserve(60));
        assert!(!other.try_reserve(41) && other.try_reserve(40));
        one.release(10);
        assert!(!one.try_reserve(11) && one.try_reserve(10));
        drop(one);
        assert!(other.try_reserve(60), "a connection that has ended holds nothing");
        other.release(RESERVE + 100);
        assert_eq!(shared.drawn.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_does_not_fit_goes_in_pieces_once_it_is_alone() {
        let shared = Shared::new(100);
        let [one, hog] = [Budget::new(&shared), Budget::new(&shared)];
        assert_eq!(hog.reserve(RESERVE + 100), Reserved::Whole);
        assert_eq!(one.reserve(RESERVE + 1), Reserved::Pieces);
        assert!(!one.try_reserve(1), "the reserve is in use");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| one.reserve(RESERVE + 1));
            std::thread::sleep(std::time::Duration::from_millis(10));
            assert!(!waiting.is_finished());
            one.release(RESERVE);
            assert_eq!(waiting.join().unwrap(), Reserved::Pieces, "the hog holds on");
        });
        one.release(RESERVE);
        hog.release(RESERVE + 100);
        assert_eq!(one.reserve(RESERVE + 1), Reserved::Whole);
    }

    #[test]
    fn a_closed_budget_makes_nobody_wait() {
        let shared = Shared::new(0);
        let budget = Budget::new(&shared);
        assert_eq!(budget.reserve(10), Reserved::Whole);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| budget.reserve(RESERVE));
            budget.close();
            assert_eq!(waiting.join().unwrap(), Reserved::Closed);
        });
        assert!(!budget.try_reserve(0));
    }
}
