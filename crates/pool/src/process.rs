//! Which process made a value.
//!
//! A child of `fork` has a copy of its parent's memory and one thread. A lock that another thread
//! held at the fork stays held there for ever, so a call of a pool, a store or a cache, or dropping
//! one, can wait for ever in the child. [`Local`] keeps a value from forked children: it is refused
//! before any lock is taken, and not dropped there.
//!
//! A page that the kernel gives a forked child as zeros (`MADV_WIPEONFORK`, Linux 4.14) holds the
//! number of the process. This costs two loads for a call, no system call, and it is right for a
//! `clone` that the C library does not know of, and where two processes have the same pid in
//! different namespaces. Where the kernel has no such pages, the pid stands for the number.
//!
//! - P1: the page, once there is one, stays mapped for ever.
//! - P2: the numbers of a process and of its ancestors differ, those of siblings need not: a
//!   process has only objects that it or an ancestor made. A child begins to count where its parent
//!   was.
//! - P3: nothing here waits, as a lock might that was held at the fork.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::sys;

/// The number of the process; 0: it has none yet; [`NO_PAGE`]: the pid counts.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// In the place of a page, where there cannot be one.
static INSTEAD: AtomicU64 = AtomicU64::new(NO_PAGE);

const NO_PAGE: u64 = u64::MAX;

/// The last number that this process or one of its ancestors took.
static LAST: AtomicU64 = AtomicU64::new(0);

/// A process, distinguished from its forked children and its ancestors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// Returns the process that runs this.
    ///
    /// # Cost
    /// The first call in a process makes a few system calls.
    #[must_use]
    pub fn current() -> Self {
        let page = page();
        match page.load(Ordering::Relaxed) {
            0 => {
                // Relaxed: a child has the memory as it was at the fork, whatever the order (P2).
                let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
                let set = page.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
                Self(set.map_or_else(|other| other, |_| number))
            }
            number => Self(number_of(number)),
        }
    }

    /// Returns whether this process runs this, not a forked child of it.
    #[must_use]
    #[inline]
    pub fn is_current(self) -> bool {
        let page = PAGE.load(Ordering::Acquire);
        // SAFETY: null, or a page that stays (P1), or `INSTEAD`.
        let page = unsafe { page.as_ref() };
        page.is_some_and(|page| number_of(page.load(Ordering::Relaxed)) == self.0)
    }
}

/// The number that a page stands for.
#[inline]
fn number_of(number: u64) -> u64 {
    // Above all counted ones.
    if number == NO_PAGE { 1 << 63 | u64::from(std::process::id()) } else { number }
}

/// The page, which the first caller makes; threads that come at the same time agree on one.
fn page() -> &'static AtomicU64 {
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        let made = sys::wiped_page();
        let new = made.map_or((&raw const INSTEAD).cast_mut(), |page| page.as_ptr().cast());
        // Release: a thread finds it wiped, or `INSTEAD`.
        let set = PAGE.compare_exchange(page, new, Ordering::AcqRel, Ordering::Acquire);
        page = set.map_or_else(|other| other, |_| new);
        if let Some(made) = made
            && set.is_err()
        {
            // SAFETY: made above, and no other thread has seen it.
            unsafe { sys::unreserve(made, sys::page_bytes()) };
        }
    }
    // SAFETY: not null; a page that stays (P1), aligned, zeros at first, or `INSTEAD`.
    unsafe { &*page }
}

/// A value for the process that makes it. A forked child cannot reach it, and does not drop it:
/// both could wait for a lock that a thread of the parent held at the fork.
///
/// ```
/// use zfold_pool::process::Local;
/// use zfold_pool::{Pool, PoolOptions};
///
/// let pool: Local<Box<dyn Pool>> = Local::new(zfold_pool::create("p", &PoolOptions::default())?);
/// let handle = pool.get()?.insert(b"bytes")?; // Err(Forked) in a forked child, at once
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Local<T> {
    process: Process,
    value: ManuallyDrop<T>,
}

impl<T> Local<T> {
    /// Takes a value that this process made.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { process: Process::current(), value: ManuallyDrop::new(value) }
    }

    /// Returns the value.
    ///
    /// # Errors
    /// [`Forked`] in a forked child.
    ///
    /// # Cost
    /// Two loads.
    #[inline]
    pub fn get(&self) -> Result<&T, Forked> {
        if self.process.is_current() { Ok(&self.value) } else { Err(Forked) }
    }
}

impl<T> Drop for Local<T> {
    fn drop(&mut self) {
        if self.process.is_current() {
            // SAFETY: dropped here only, and no longer used.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

impl<T> fmt::Debug for Local<T> {
    // Without the value, whose locks may be held.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("process", &self.process).finish_non_exhaustive()
    }
}

/// A forked child used a value that its parent made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forked;

impl fmt::Display for Forked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this was made by the parent process: make a new one after a fork")
    }
}

impl std::error::Error for Forked {}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    /// Forks; returns what `work` says in the child.
    fn in_child(work: &dyn Fn() -> bool) -> bool {
        // SAFETY: the child calls nothing that could wait for a lock of another thread, and ends.
        match unsafe { libc::fork() } {
            // SAFETY: ends the child at once.
            0 => unsafe { libc::_exit(i32::from(!work())) },
            child => {
                let mut status = 0;
                // SAFETY: waits for a child of this thread's.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                status == 0
            }
        }
    }

    struct Ends<'a>(&'a AtomicU64);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_value_is_its_process_own_through_generations_of_forks() {
        let ended = AtomicU64::new(0);
        let mine = Local::new(Ends(&ended));
        assert!(mine.get().is_ok() && Process::current() == Process::current());
        assert!(in_child(&|| {
            let childs = Local::new(());
            let apart = mine.get().err() == Some(Forked) && childs.get().is_ok();
            apart
                && in_child(&|| {
                    let own = Local::new(());
                    mine.get().is_err() && childs.get().is_err() && own.get().is_ok()
                })
                // A child that has not been recognised yet.
                && in_child(&|| mine.get().is_err() && childs.get().is_err())
        }));
        assert!(mine.get().is_ok());
        drop(mine);
        assert_eq!(ended.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_forked_child_does_not_drop_it() {
        let ended = AtomicU64::new(0);
        let local = std::cell::Cell::new(Some(Local::new(Ends(&ended))));
        assert!(in_child(&|| {
            drop(local.take());
            ended.load(Ordering::Relaxed) == 0
        }));
    }

    #[test]
    fn a_clone_that_the_c_library_does_not_know_of_is_noticed() {
        let mine = Local::new(());
        // SAFETY: as fork: no flags but the signal, no stack; the child only looks and ends.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(mine.get().is_ok())) };
        }
        let (child, mut status) = (child as libc::pid_t, 1);
        // SAFETY: waits for a child of this thread's.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn without_pages_that_are_wiped_the_pid_counts() {
        let here = Process(number_of(NO_PAGE));
        assert_eq!(here.0, 1 << 63 | u64::from(std::process::id()));
        assert!(in_child(&|| number_of(NO_PAGE) != here.0));
    }
}
