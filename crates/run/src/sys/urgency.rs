//! Has the scheduler prefer a thread that runs for microseconds, and for which others wait.

/// Time that the scheduler should give it at once, in nanoseconds: a thread that asks for little
/// is preferred to those that ask for more, also without any right.
const SLICE: u64 = 100_000;
/// What the thread's niceness is lowered to where that is permitted.
const NICE: i32 = -10;

/// The kernel's `struct sched_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks for it for the calling thread, and for the threads and processes that it starts from now
/// on; as [`make_urgent`].
pub(crate) fn be_urgent() {
    make_urgent(0);
}

/// Returns whether this process may lower niceness: without that, a thread that is called may wait
/// for others' slices of time on a busy machine.
pub(crate) fn may_be_urgent() -> bool {
    std::thread::spawn(|| make_urgent(0)).join().unwrap_or(false)
}

/// Asks for it for a thread (0: the calling one), by niceness where that is permitted and by a
/// short slice of time in any case (Linux 6.12; others ignore it). Returns whether niceness was
/// permitted. Nothing depends on it but how fast things are.
pub(crate) fn make_urgent(tid: i32) -> bool {
    for nice in [NICE, 0] {
        let wanted = Attributes {
            size: size_of::<Attributes>() as u32,
            policy: libc::SCHED_OTHER as u32,
            nice,
            runtime: SLICE,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads a structure of integers, which lives across the call.
        let done = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const wanted, 0) };
        if done == 0 {
            return nice == NICE;
        }
    }
    false
}
