//! Threads that answer soon where processors are busy.
//!
//! Linux lets a thread that wakes up go first if its slice of time is shorter than that of the one
//! that runs; its share of the processor stays the same. A guest waits for one answer after
//! another, and where other work keeps all processors busy, it would wait for a slice of that each
//! time. Linux 6.12; earlier versions ignore it.

/// Nanoseconds of a slice: the least that the kernel takes, and longer than an answer takes.
const SLICE_NS: u64 = 100_000;

/// Gives this thread short slices, if it is an ordinary one; threads that it starts have them, too.
pub(crate) fn be_prompt() {
    let len = size_of::<libc::sched_attr>();
    let mut attr = libc::sched_attr {
        size: len as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: it writes no more than these bytes, which are the structure's; any are valid.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, len, 0) };
    if got != 0 || attr.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attr.sched_runtime = SLICE_NS;
    // SAFETY: it reads the structure, whose size is in it. If refused, answers take longer.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}
