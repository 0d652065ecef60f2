//! Makes the scheduler prefer a thread that runs for microseconds while others wait for it.

/// The requested time slice in nanoseconds: a thread that asks for a short one is preferred to
/// those that ask for more, which needs no privilege.
const SLICE: u64 = 100_000;
/// The niceness of the thread, if lowering it is permitted.
const NICE: i32 = -10;
/// Threads and processes that it starts do not inherit its policy (`SCHED_FLAG_RESET_ON_FORK`).
const ALONE: u64 = libc::SCHED_FLAG_RESET_ON_FORK as u64;

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

/// Makes the calling thread urgent, and the threads and processes that it starts from now on; see
/// [`make_urgent`].
pub(crate) fn be_urgent() {
    make_urgent(0);
}

/// Returns whether this process may lower niceness: without that, a woken thread may wait for
/// others' time slices on a busy machine.
pub(crate) fn may_be_urgent() -> bool {
    let tried = std::thread::Builder::new().spawn(|| make_urgent(0));
    tried.is_ok_and(|tried| tried.join().unwrap_or(false))
}

/// Makes only the calling thread urgent, as a real-time thread if that is permitted: only other
/// real-time threads can keep it from a processor. On systems that share processors equally between
/// sessions, as many distributions do (`sched_autogroup`), niceness counts only within a session.
///
/// For a thread that mostly sleeps and on which a limit depends: with a load of 9 on two
/// processors, one of niceness -15 woke up to 77 ms late several times a second, and the watcher
/// once 3.7 s; a real-time thread was never more than 30 ms late in 15 s.
pub(crate) fn be_prompt() {
    let policy = libc::SCHED_RR as u32;
    let (flags, priority) = (ALONE, 1);
    if !set(0, &Attributes { policy, flags, priority, ..Attributes::default() }) {
        be_urgent();
    }
}

/// Makes a thread urgent (0: the calling one), by niceness if that is permitted and by a short time
/// slice in any case (Linux 6.12; others ignore it). Returns whether niceness was permitted. Only
/// speed depends on it.
pub(crate) fn make_urgent(tid: i32) -> bool {
    for nice in [NICE, 0] {
        let policy = libc::SCHED_OTHER as u32;
        let wanted = Attributes { policy, nice, runtime: SLICE, ..Attributes::default() };
        if set(tid, &wanted) {
            return nice == NICE;
        }
    }
    false
}

fn set(tid: i32, attributes: &Attributes) -> bool {
    let wanted = Attributes { size: size_of::<Attributes>() as u32, ..*attributes };
    // SAFETY: the kernel reads a structure of integers, which lives across the call.
    unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const wanted, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> i32 {
        // SAFETY: takes a number only.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn a_prompt_thread_is_so_alone() {
        let (own, inherited) = std::thread::spawn(|| {
            be_prompt();
            (policy(), std::thread::spawn(policy).join().expect("no panic"))
        })
        .join()
        .expect("no panic");
        let own = own & !libc::SCHED_RESET_ON_FORK;
        assert!([libc::SCHED_RR, libc::SCHED_OTHER].contains(&own), "{own}");
        assert!(own == libc::SCHED_RR || !may_be_urgent(), "permitted, but not asked for");
        assert_eq!(inherited, libc::SCHED_OTHER);
    }
}
