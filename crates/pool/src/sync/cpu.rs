//! Which CPU a thread runs on: where per-CPU designs look first.
//!
//! The number comes from `sched_getcpu`, which glibc 2.35 and later answer from the thread's
//! restartable-sequence area (a load from memory that the kernel keeps current), and older ones
//! from the vDSO. A thread asks once for [`CALLS`] times and remembers the answer in between: it is
//! a hint anyway, because a thread may be moved right after the call, so whatever is chosen by it
//! has a lock of its own. A wrong hint costs cache misses, no more.

use std::cell::Cell;

/// Times that an answer is used.
const CALLS: u32 = 64;

thread_local! {
    /// The last answer, and how often it may still be used.
    static HINT: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// Returns the number of the CPU that the calling thread runs on, or ran on a moment ago; 0 if the
/// system does not report it.
#[inline]
pub(crate) fn hint() -> usize {
    // A thread whose locals are gone uses the first.
    HINT.try_with(|hint| match hint.get() {
        (_, 0) => ask(hint),
        (cpu, left) => {
            hint.set((cpu, left - 1));
            cpu as usize
        }
    })
    .unwrap_or(0)
}

#[cold]
fn ask(hint: &Cell<(u32, u32)>) -> usize {
    let cpu = current();
    hint.set((cpu as u32, CALLS - 1));
    cpu
}

/// As [`hint`], of this moment.
pub(crate) fn current() -> usize {
    if cfg!(any(loom, miri)) { 0 } else { crate::sys::cpu() }
}

/// Returns how many CPUs this process may run on.
pub(crate) fn count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
