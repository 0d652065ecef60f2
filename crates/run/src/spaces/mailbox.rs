//! The box of a space: faults that were read and that no thread answers yet. Whoever adds one takes
//! faults out afterwards until there is none (shared/B1).

use std::collections::VecDeque;
use std::time::Instant;

#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(not(loom))]
use std::sync::Mutex;

use zfold_pool::sound;

use crate::core::ranges::PageNo;

/// A page that a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub page: PageNo,
    /// The thread, by the number that it has in its own namespace; 0 if none waits.
    pub thread: i32,
    /// The thread is about to write to it.
    pub writes: bool,
    /// It is answered whether or not there is room.
    pub free: bool,
    /// When the message was read.
    pub since: Instant,
}

/// See the module. Its lock is a leaf.
#[derive(Debug)]
pub(crate) struct Mailbox<T>(Mutex<VecDeque<T>>);

impl<T> Mailbox<T> {
    /// Returns an empty box.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Adds a fault, which is taken out after the others.
    pub(crate) fn add(&self, fault: T) {
        sound(self.0.lock()).push_back(fault);
    }

    /// Adds a fault that is taken out next.
    pub(crate) fn put_back(&self, fault: T) {
        sound(self.0.lock()).push_front(fault);
    }

    /// Takes a fault out.
    pub(crate) fn take(&self) -> Option<T> {
        sound(self.0.lock()).pop_front()
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug)]
    struct Space {
        faults: Mailbox<usize>,
        answered: AtomicUsize,
        at_work: AtomicUsize,
    }

    impl Space {
        fn answer(&self) {
            while self.faults.take().is_some() {
                self.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Has three threads read a fault each.
    fn all_are_answered(read: fn(&Space)) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let space = Arc::new(Space {
                faults: Mailbox::new(),
                answered: AtomicUsize::new(0),
                at_work: AtomicUsize::new(0),
            });
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let space = Arc::clone(&space);
                    loom::thread::spawn(move || read(&space))
                })
                .collect();
            read(&space);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(space.answered.load(Ordering::Relaxed), 3, "a fault was left");
        });
    }

    #[test]
    fn whoever_reads_a_fault_leaves_none() {
        all_are_answered(|space| {
            space.faults.add(1);
            space.answer();
        });
    }

    #[test]
    #[should_panic(expected = "a fault was left")]
    fn a_twin_that_leaves_it_to_a_thread_that_is_about_to_go_is_caught() {
        all_are_answered(|space| {
            space.faults.add(1);
            if space.at_work.fetch_add(1, Ordering::AcqRel) == 0 {
                space.answer();
            }
            space.at_work.fetch_sub(1, Ordering::AcqRel);
        });
    }
}
