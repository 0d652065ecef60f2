//! Threads of a pool's own, each woken by a *bell*.
//!
//! ```text
//!             start            await_ring            ring
//!   VACANT ----------> AWAKE <===========> ASLEEP ----------> RUNG
//!      ^                 |  <----------------------------------^
//!      | thread ends     +-------------------------------------+ ring
//!      +-------- STOPPED <---- any, when the worker is dropped
//! ```
//!
//! Ringing costs a load while the worker has not answered the last ring, and one
//! read-modify-write while it is at work; only a worker that sleeps costs a system call.
//!
//! - B1: a thread that rings has put the work under a lock which the worker takes, in its round, to
//!   look for work. So work is never overlooked: a ring that finds RUNG is either seen by a worker
//!   that has yet to look, or, if the worker had looked before the work came, the lock's order
//!   shows the ringer that the worker took the old RUNG away.
//! - B2: the worker sleeps only from AWAKE to ASLEEP in one step, with `sleep` locked; a thread
//!   that takes ASLEEP away locks `sleep` before it notifies.
//! - B3: a bell without a worker is VACANT or STOPPED, also after a panic of the thread.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::lock::sound;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{Condvar, Mutex};

/// No worker answers the bell.
const VACANT: u8 = 0;
/// The worker is at work and has not been rung for since it began.
const AWAKE: u8 = 1;
/// The worker will do another round.
const RUNG: u8 = 2;
const ASLEEP: u8 = 3;
/// The worker ends.
const STOPPED: u8 = 4;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Bell {
    state: AtomicU8,
    sleep: Mutex<()>,
    wake: Condvar,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU8::new(VACANT), sleep: Mutex::new(()), wake: Condvar::new() }
    }

    /// Returns whether a worker answers the bell.
    #[inline]
    pub(crate) fn is_served(&self) -> bool {
        !matches!(self.state.load(Ordering::Relaxed), VACANT | STOPPED)
    }

    /// Has the worker do another round, if there is a worker. B1 is the caller's.
    pub(crate) fn ring(&self) {
        // Relaxed if nothing changes: see B1. AcqRel otherwise, as any hand-over.
        let rung = self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |state| {
            matches!(state, AWAKE | ASLEEP).then_some(RUNG)
        });
        if rung == Ok(ASLEEP) {
            self.notify();
        }
    }

    /// Has the worker end after its round.
    fn stop(&self) {
        if self.state.swap(STOPPED, Ordering::AcqRel) == ASLEEP {
            self.notify();
        }
    }

    #[cold]
    fn notify(&self) {
        // B2: the worker waits by now, or will see the state before it does.
        drop(sound(self.sleep.lock()));
        self.wake.notify_one();
    }

    /// Sleeps until the bell is rung; returns false if the worker is to end.
    fn await_ring(&self) -> bool {
        let change = |from, to| {
            self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        let mut sleep = sound(self.sleep.lock());
        change(AWAKE, ASLEEP);
        while self.state.load(Ordering::Acquire) == ASLEEP {
            sleep = sound(self.wake.wait(sleep));
        }
        change(RUNG, AWAKE)
    }
}

/// A thread that does a round of work whenever its bell is rung. Dropped, it ends and is joined.
#[derive(Debug)]
pub(crate) struct Worker {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread that answers `bell`; `None` if the system does not start one.
    pub(crate) fn start(
        thread: Builder,
        bell: Arc<Bell>,
        round: impl Fn() + Send + 'static,
    ) -> Option<Self> {
        let served = Served(Arc::clone(&bell));
        bell.state.store(AWAKE, Ordering::Release);
        // If there is no thread, `served` is dropped with the closure.
        let run = move || {
            while served.0.await_ring() {
                round();
            }
        };
        Some(Self { bell, thread: Some(thread.spawn(run).ok()?) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.bell.stop();
        if let Some(thread) = self.thread.take() {
            // A round that panicked has killed what it worked on; it is reported there.
            let _ = thread.join();
        }
    }
}

/// Keeps B3.
#[derive(Debug)]
struct Served(Arc<Bell>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.state.store(VACANT, Ordering::Release);
    }
}

/// Models: a worker does all that it was rung for, under every interleaving with a ringer, and a
/// worker that has fallen asleep has overlooked nothing; twins that ring before the work is
/// there, or fall asleep in two steps, have.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::spin::SpinLock;
    use loom::sync::Arc;

    fn awake() -> Bell {
        let bell = Bell::new();
        bell.state.store(AWAKE, Ordering::Release);
        bell
    }

    fn take(work: &SpinLock<u32>) -> u32 {
        std::mem::take(&mut *work.lock().unwrap())
    }

    fn add(bell: &Bell, work: &SpinLock<u32>) {
        *work.lock().unwrap() += 1;
        bell.ring();
    }

    #[test]
    fn work_that_was_rung_for_is_done() {
        loom::model(|| {
            let shared = Arc::new((awake(), SpinLock::new(0)));
            let worker = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                let mut done = 0;
                while done < 2 {
                    assert!(worker.0.await_ring(), "nobody stopped the worker");
                    done += take(&worker.1);
                }
            });
            (0..2).for_each(|_| add(&shared.0, &shared.1));
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_worker_that_is_stopped_ends() {
        loom::model(|| {
            let bell = Arc::new(awake());
            let worker = Arc::clone(&bell);
            let thread = loom::thread::spawn(move || while worker.await_ring() {});
            bell.ring();
            bell.stop();
            thread.join().unwrap();
        });
    }

    /// Has one thread add work twice, and another work until it `dozes`, which says whether it
    /// fell asleep. It must not have while work is left that no ring will wake it for.
    fn nothing_is_overlooked(
        add: impl Fn(&Bell, &SpinLock<u32>) + Send + Sync + 'static,
        dozes: impl Fn(&AtomicU8) -> bool + Clone + Send + Sync + 'static,
    ) {
        loom::model(move || {
            let shared = Arc::new((awake(), SpinLock::new(0)));
            let (worker, dozes) = (Arc::clone(&shared), dozes.clone());
            let thread = loom::thread::spawn(move || {
                while !dozes(&worker.0.state) {
                    take(&worker.1);
                }
            });
            (0..2).for_each(|_| add(&shared.0, &shared.1));
            thread.join().unwrap();
            let woken = shared.0.state.load(Ordering::Acquire) == RUNG;
            assert!(woken || take(&shared.1) == 0, "work was overlooked");
        });
    }

    /// Falls asleep as `await_ring` does, unless rung for.
    fn dozes(state: &AtomicU8) -> bool {
        let slept = state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        if slept.is_err() {
            state.swap(AWAKE, Ordering::AcqRel);
        }
        slept.is_ok()
    }

    #[test]
    fn a_worker_that_fell_asleep_has_overlooked_nothing() {
        nothing_is_overlooked(add, dozes);
    }

    #[test]
    #[should_panic(expected = "work was overlooked")]
    fn a_twin_that_rings_before_the_work_is_there_is_caught() {
        let early = |bell: &Bell, work: &SpinLock<u32>| {
            bell.ring();
            *work.lock().unwrap() += 1;
        };
        nothing_is_overlooked(early, dozes);
    }

    #[test]
    #[should_panic(expected = "work was overlooked")]
    fn a_twin_that_falls_asleep_in_two_steps_is_caught() {
        nothing_is_overlooked(add, |state| {
            let sleeps = state.load(Ordering::Acquire) == AWAKE;
            state.store(if sleeps { ASLEEP } else { AWAKE }, Ordering::Release);
            sleeps
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::spin::SpinLock;
    use std::sync::Weak;
    use zfold_testing::wait_until;

    #[test]
    fn a_worker_does_all_it_is_rung_for_and_ends_when_dropped() {
        let (bell, work) = (Arc::new(Bell::new()), Arc::new(SpinLock::new((0, 0))));
        let weak: Weak<_> = Arc::downgrade(&work);
        let at_work = Arc::clone(&work);
        let worker = Worker::start(Builder::new(), Arc::clone(&bell), move || {
            let (waiting, done) = &mut *at_work.lock().unwrap();
            *done += std::mem::take(waiting);
        });
        let pieces = if cfg!(miri) { 50 } else { 20_000 };
        for n in 0..pieces {
            work.lock().unwrap().0 += 1;
            bell.ring();
            if n % 1000 == 0 {
                wait_until("the work is done", || work.lock().unwrap().0 == 0);
            }
        }
        wait_until("all work is done", || *work.lock().unwrap() == (0, pieces));
        assert!(bell.is_served());
        drop((worker, work));
        assert!(weak.upgrade().is_none() && !bell.is_served());
    }

    #[test]
    fn a_bell_whose_worker_panicked_or_never_started_is_not_served() {
        let bell = Arc::new(Bell::new());
        let worker = Worker::start(Builder::new(), Arc::clone(&bell), || panic!("in a round"));
        bell.ring();
        wait_until("the worker has ended", || !bell.is_served());
        drop(worker);
        let endless = Builder::new().stack_size(1 << 60);
        assert!(Worker::start(endless, Arc::clone(&bell), || ()).is_none());
        assert!(!bell.is_served());
    }
}
