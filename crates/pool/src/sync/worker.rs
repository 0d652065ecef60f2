//! Threads of a pool's own, each woken by a *bell*: a channel that holds one ring.
//!
//! - B1: a thread that rings has put the work under a lock which the worker takes, in its round, to
//!   look for work. So work is never overlooked: a ring that finds another one in the channel is
//!   seen by a worker that has yet to look, since it takes a ring before it looks.
//! - B2: a worker ends when all its bells are gone. It must not keep them alive itself, but for a
//!   round.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Bell(SyncSender<()>);

/// What a worker hears.
pub(crate) type Rings = Receiver<()>;

impl Bell {
    /// Returns a bell for a worker, and what it hears.
    pub(crate) fn new() -> (Self, Rings) {
        let (bell, rings) = sync_channel(1);
        (Self(bell), rings)
    }

    /// Has the worker do another round; returns whether there is a worker. B1 is the caller's.
    pub(crate) fn ring(&self) -> bool {
        !matches!(self.0.try_send(()), Err(TrySendError::Disconnected(())))
    }
}

/// A thread that does a round of work whenever its bell is rung. Dropped, it is joined.
#[derive(Debug)]
pub(crate) struct Worker(Option<JoinHandle<()>>);

impl Worker {
    /// Starts a thread; `None` if the system does not start one.
    pub(crate) fn start(
        thread: Builder,
        rings: Rings,
        round: impl Fn() + Send + 'static,
    ) -> Option<Self> {
        let thread = thread.spawn(move || rings.iter().for_each(|()| round()));
        Some(Self(Some(thread.ok()?)))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // A round that panicked has killed what it worked on; it is reported there.
            let _ = thread.join();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::spin::SpinLock;
    use std::sync::Arc;
    use zfold_testing::wait_until;

    #[test]
    fn a_worker_does_all_it_is_rung_for_and_ends_with_its_bell() {
        let ((bell, rings), work) = (Bell::new(), Arc::new(SpinLock::new((0, 0))));
        let (weak, at_work) = (Arc::downgrade(&work), Arc::clone(&work));
        let worker = Worker::start(Builder::new(), rings, move || {
            let (waiting, done) = &mut *at_work.lock().unwrap();
            *done += std::mem::take(waiting);
        });
        let pieces = if cfg!(miri) { 50 } else { 20_000 };
        for n in 0..pieces {
            work.lock().unwrap().0 += 1;
            assert!(bell.ring());
            if n % 1000 == 0 {
                wait_until("the work is done", || work.lock().unwrap().0 == 0);
            }
        }
        wait_until("all work is done", || *work.lock().unwrap() == (0, pieces));
        drop((bell, worker, work));
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn a_bell_whose_worker_panicked_or_never_started_says_so() {
        let (bell, rings) = Bell::new();
        let worker = Worker::start(Builder::new(), rings, || panic!("in a round"));
        bell.ring();
        wait_until("the worker has ended", || !bell.ring());
        drop(worker);
        let (bell, rings) = Bell::new();
        let endless = Builder::new().stack_size(1 << 60);
        assert!(Worker::start(endless, rings, || ()).is_none());
        assert!(!bell.ring());
    }
}
