//! The state that the threads of the memory side share: what each room owns ([`Books`] of the
//! spaces, the [`Budget`], [`Cold`] of pages that have left), and what they leave to each other.
//!
//! Locks, in the order in which they are taken. No thread takes an earlier one while it holds a
//! later one, nor two of the same kind, except a child's while the child is made:
//!
//! 1. a space's helper (`Managed::helper`): held by the evictor while the helper works
//! 2. a space's core (`Managed::lock`): held while messages are read, pages are filled in and
//!    moved out. Never across compression or loading (but for the few pages of the swap
//!    cache at a fork), and never while a call is made that may need a page of the space.
//! 3. a space's unclaimed children: held while the message of a fork is read and the child entered
//!    in the table. The child's core, which no other thread knows yet, is locked under it, and
//!    stays locked until the child has its pages.
//! 4. leaves: all others, such as a space's box, the keys, the swap cache and the queues here
//!
//! Who works, and who waits for whom:
//!
//! - B1: a thread that reads a fault puts it in the box of its space, and when it has let the core
//!   go, answers what it finds there until that is nothing. So none is left, and nobody is called.
//! - B2: a thread that lets a core go has its changes charged, and releases keys that were given up
//!   ([`Held`](crate::spaces::managed::Held)).
//! - B3: a fault without room waits for the evictor, which gives back what all spaces share. One
//!   that meets a change waits for the watcher, which tries it again after a while: nothing reports
//!   that a change is over.
//! - B4: the tracer waits for nobody. It takes 3, 4, and the lock of a core if that is free, and
//!   answers no fault. What it asks for may take long: pages leave by the evictor, and the watcher
//!   does all else.
//! - B5: the evictor waits for the helper under the lock of a core: the helper then makes calls
//!   that touch only its own pages. When these make shared pages the space's own, it waits without
//!   that lock. If a user stops a helper, the tracer continues it.
//! - B6: any other thread waits for the lock of a core, or, the evictor, for a moment. So every
//!   chain ends at the tracer or at the helper. In a space that is lost (its helper died), which is
//!   dead, no thread waits for anything.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use zfold_figures::Histogram;
use zfold_store::LoadError;

use crate::cold::Cold;
use crate::core::ranges::{PageNo, Pages};
use crate::figures::Counters;
use crate::link::{Ticket, Tracing};
use crate::spaces::asked::{PageOut, Pending, Task, Work};
use crate::spaces::books::Books;
use crate::spaces::budget::Budget;
use crate::spaces::kinds::Kinds;
use crate::spaces::managed::{Managed, lock};
use crate::spaces::signal::Signal;
use crate::spaces::waiting::Waiting;

/// How long a helper may take to end after it was killed.
const ENDING: Duration = Duration::from_secs(5);

/// The memory side without its threads.
pub(crate) struct Shared {
    /// Which spaces there are.
    pub books: Arc<Books>,
    /// What may be resident, and is.
    pub budget: Arc<Budget>,
    /// Where pages are that have left.
    pub cold: Cold,
    pub tracing: Arc<dyn Tracing>,
    pub counters: Arc<Counters>,
    /// How long faults took, from the message to the page, in nanoseconds.
    pub latency: Histogram,
    /// Memory that cannot leave.
    pub kinds: Mutex<Kinds>,
    /// Calls the evictor.
    pub evictor: Signal,
    /// Faults that wait for room, for the evictor.
    pub pending: Mutex<Waiting>,
    /// Pages that should leave, for the evictor.
    pub page_outs: Mutex<VecDeque<PageOut>>,
    /// Calls the watcher.
    pub watcher: Signal,
    /// Faults that wait for a change to end, for the watcher.
    pub retries: Mutex<Vec<Pending>>,
    /// Requests to the watcher.
    pub work: Mutex<VecDeque<Work>>,
    /// Ends the search for untraced processes.
    pub strangers: Signal,
    /// Wakes one of the compressing helper threads.
    pub compressors: Signal,
    /// The whole tree is ended if a page finds no room.
    pub whole: bool,
    /// Memory that may be closed; all memory, except in tests that are their own program.
    pub window: Pages,
    /// The tree is being ended.
    pub is_ending: AtomicBool,
}

impl Shared {
    /// Returns whether open memory is measured: not for tests that are their own program.
    pub(crate) fn looks(&self) -> bool {
        self.window.end == PageNo::MAX
    }

    /// Wakes the evictor if the charge is too high.
    pub(crate) fn call_evictor_if_high(&self) {
        if self.budget.is_high() {
            self.evictor.call();
        }
    }

    /// Queues work for the watcher.
    pub(crate) fn ask(&self, managed: Arc<Managed>, task: Task, ticket: Option<Ticket>) {
        lock(&self.work).push_back(Work { managed, task, ticket });
        self.watcher.call();
    }

    /// Leaves a fault that waits for a change to end to the watcher.
    pub(crate) fn retry(&self, pending: Pending) {
        lock(&self.retries).push(pending);
        self.watcher.call();
    }

    /// Ends the tree.
    pub(crate) fn end(&self, why: String) {
        // Relaxed: whoever waits for a page looks again and again.
        self.is_ending.store(true, Ordering::Relaxed);
        self.tracing.end(why);
    }

    /// Ends the tree because a page cannot be loaded.
    pub(crate) fn end_load(&self, error: &LoadError) {
        self.end(format!("cannot restore a page of the program: {error}"));
    }

    /// Returns whether the tree is being ended: some pages may never come.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Ends a helper that has failed or is late, unless it has ended. Returns whether it has ended,
    /// after which it makes no more calls.
    pub(crate) fn end_helper(&self, managed: &Managed, error: &io::Error) -> bool {
        self.tracing.end_helper(managed.id);
        // It closes its socket after its last call.
        if error.kind() != io::ErrorKind::TimedOut {
            return true;
        }
        let began = Instant::now();
        while !managed.has_lost_helper() && began.elapsed() < ENDING {
            std::thread::sleep(Duration::from_millis(1));
        }
        managed.has_lost_helper()
    }
}
