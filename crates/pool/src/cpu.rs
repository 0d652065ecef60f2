//! Which CPU a thread runs on: where per-CPU designs look first.
//!
//! The number comes from `sched_getcpu`, which glibc 2.35 and later answer from the thread's
//! restartable-sequence area (a load from memory that the kernel keeps current), and older ones
//! from the vDSO. It is a hint: a thread may be moved to another CPU right after the call, so
//! whatever is chosen by it has a lock of its own. A wrong hint costs a cache miss, no more.

/// Returns the number of the CPU that the calling thread runs on, or ran on a moment ago; 0
/// where the system does not tell.
#[inline]
pub(crate) fn current() -> usize {
    if cfg!(any(loom, miri)) {
        return 0;
    }
    crate::sys::cpu()
}

/// Returns how many CPUs this process may run on.
pub(crate) fn count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
