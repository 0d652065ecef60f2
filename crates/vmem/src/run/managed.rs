//! One address space with its lock, its threads and its access.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::access::Access;
use super::budget::Budget;
use super::memory::SpaceId;
use super::ranges::{PAGE, Pages, Ranges};
use super::space::Space;
use crate::sys::interrupt::Interruptible;

/// A thread that answers faults.
#[derive(Debug)]
pub(crate) struct Reader {
    pub interruptible: Arc<Interruptible>,
    pub thread: JoinHandle<()>,
}

/// When what a fork shares is measured next.
#[derive(Debug)]
pub(crate) struct Sharing {
    pub next: Instant,
    pub pause: Duration,
}

/// An address space.
pub(crate) struct Managed {
    pub id: SpaceId,
    /// A process that has it, as far as known; once attached, the helper.
    pid: AtomicI32,
    budget: Arc<Budget>,
    space: Mutex<Space>,
    /// Pages that were busy are not any more.
    settled: Condvar,
    access: OnceLock<Access>,
    /// It should be attached.
    pub wanted: AtomicBool,
    /// Since when the evictor wants it attached.
    pub asked: Mutex<Option<Instant>>,
    /// It cannot be.
    pub refused: AtomicBool,
    /// The address space is gone or lost: nothing more can be done there.
    pub dead: AtomicBool,
    /// Open pages, at most: mappings that were unmapped count until the next survey.
    open: AtomicUsize,
    /// Pages that were unmapped since the last survey and may still count as open.
    pub stale: AtomicUsize,
    /// End of the heap in bytes; 0 if unknown.
    pub heap_end: AtomicUsize,
    /// Pages that are counted here and elsewhere.
    credit: AtomicUsize,
    /// Present if it was forked, or forked from, and shares pages.
    pub sharing: Mutex<Option<Sharing>>,
    pub readers: Mutex<Vec<Reader>>,
    /// What the program watches itself: it stays open.
    pub own: Mutex<Ranges>,
}

/// Takes a lock; a thread that panicked under it left what it guards usable or ended the tree.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Managed {
    /// Returns a space that is all open, of which nothing is charged yet.
    pub(crate) fn new(id: SpaceId, pid: i32, budget: &Arc<Budget>, space: Space) -> Self {
        let managed = Self {
            id,
            pid: AtomicI32::new(pid),
            budget: Arc::clone(budget),
            space: Mutex::default(),
            settled: Condvar::new(),
            access: OnceLock::new(),
            wanted: AtomicBool::new(false),
            asked: Mutex::default(),
            refused: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            stale: AtomicUsize::new(0),
            heap_end: AtomicUsize::new(0),
            credit: AtomicUsize::new(0),
            sharing: Mutex::new(None),
            readers: Mutex::default(),
            own: Mutex::default(),
        };
        *managed.lock() = space;
        managed
    }

    /// Takes the lock of the core. What changes under it is charged when it is released.
    pub(crate) fn lock(&self) -> Held<'_> {
        let space = lock(&self.space);
        let charged = space.counts().present;
        Held { managed: self, charged, space: Some(space) }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Returns the access, if it is attached.
    pub(crate) fn access(&self) -> Option<&Access> {
        self.access.get()
    }

    /// Sets the access, once.
    pub(crate) fn set_access(&self, access: Access) {
        self.pid.store(access.pid(), Ordering::Relaxed);
        assert!(self.access.set(access).is_ok(), "attached once");
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Returns how many pages are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Charges pages that are opened.
    pub(crate) fn add_open(&self, pages: usize) {
        self.open.fetch_add(pages, Ordering::Relaxed);
        self.budget.change(0, pages);
    }

    /// No longer charges pages that were open.
    pub(crate) fn remove_open(&self, pages: usize) {
        let took = |open: usize| Some(open - pages.min(open));
        let was = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, took);
        let was = was.unwrap_or_else(|open| open);
        self.budget.change(pages.min(was), 0);
    }

    /// Returns how many pages are charged here, shared ones included.
    pub(crate) fn charged(&self) -> usize {
        self.open() + self.lock().counts().present
    }

    /// Sets how many of these pages are counted elsewhere as well.
    pub(crate) fn set_credit(&self, pages: usize) {
        let was = self.credit.swap(pages, Ordering::Relaxed);
        self.budget.change_credit(was, pages);
    }

    /// Wakes who waits for busy pages.
    pub(crate) fn settle(&self) {
        self.settled.notify_all();
    }

    /// Marks it as gone: readers end, waiters go on.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
        // Under the lock, so that a waiter has either seen it or is told.
        drop(self.lock());
        self.settled.notify_all();
    }
}

/// The core of a space, locked.
pub(crate) struct Held<'a> {
    managed: &'a Managed,
    charged: usize,
    /// `None` only while waiting.
    space: Option<MutexGuard<'a, Space>>,
}

impl Held<'_> {
    /// From now on, so many pages of those that are no longer present are charged elsewhere: what
    /// is charged does not change.
    pub(crate) fn hand_over(&mut self, pages: usize) {
        self.charged -= pages;
    }

    fn charge(&mut self) {
        let charged = self.counts().present;
        self.managed.budget.change(self.charged, charged);
        self.charged = charged;
    }

    /// Waits until `is_settled`, which is looked at whenever pages are no longer busy; returns
    /// whether it is, which it is not when the time is over.
    pub(crate) fn wait(&mut self, time: Duration, is_settled: impl Fn(&Space) -> bool) -> bool {
        let end = Instant::now() + time;
        while !is_settled(self) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.charge();
            let guard = self.space.take().expect("held");
            let waited = self.managed.settled.wait_timeout(guard, left);
            self.space = Some(waited.unwrap_or_else(PoisonError::into_inner).0);
            self.charged = self.counts().present;
        }
        true
    }
}

impl std::ops::Deref for Held<'_> {
    type Target = Space;

    fn deref(&self) -> &Space {
        self.space.as_ref().expect("held")
    }
}

impl std::ops::DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Space {
        self.space.as_mut().expect("held")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.charge();
    }
}

/// Returns the pages of a range of bytes that begins at `at`.
pub(crate) fn pages_at(at: usize, len: usize) -> Pages {
    at / PAGE..at.saturating_add(len).div_ceil(PAGE)
}
