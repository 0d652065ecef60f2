//! Signals that are blocked while a thread is in charge of pages, and the end of a process that
//! cannot be served.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// Blocks all signals of a thread until this is dropped, in the same thread. Threads that are
/// started meanwhile keep them blocked.
#[derive(Debug)]
pub(crate) struct Blocked {
    before: libc::sigset_t,
    _of_this_thread: PhantomData<*const ()>,
}

impl Blocked {
    /// Blocks all signals that can be blocked.
    ///
    /// # Cost
    /// Two system calls, one of them when it is dropped: about 0.2 microseconds.
    pub(crate) fn new() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: a set to be filled.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: a valid set, and room for another. The system ignores signals that cannot be
        // blocked.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: zeros, or what the system wrote, are a valid set.
        Self { before: unsafe { before.assume_init() }, _of_this_thread: PhantomData }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set that this thread had.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}

/// Writes a line to stderr and ends the process, for code that cannot return an error. If threads
/// find a reason at the same time, one of them says its own.
pub(crate) fn die(what: &str, why: &str) -> ! {
    static DYING: AtomicBool = AtomicBool::new(false);
    // Relaxed: nothing else is decided by it.
    while DYING.swap(true, Ordering::Relaxed) {
        // Another thread is about to end the process.
        rustix::thread::sched_yield();
    }
    let line = ["zfold: ", what, ": ", why, "\n"].map(|part| io::IoSlice::new(part.as_bytes()));
    let _ = rustix::io::writev(rustix::stdio::stderr(), &line);
    std::process::abort()
}
