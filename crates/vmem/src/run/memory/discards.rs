//! Which threads of a space may be giving up contents just now.

use std::collections::BTreeSet;

use super::managed::{Managed, lock};
use crate::run::sys::proc;

/// Threads that may have announced that they give up contents: all that share the space.
pub(super) fn threads_of(managed: &Managed) -> BTreeSet<i32> {
    let tasks = lock(&managed.tasks).clone();
    let mut threads = BTreeSet::new();
    for &task in &tasks {
        if threads.contains(&task) {
            continue;
        }
        threads.extend(proc::threads(task));
    }
    threads
}

/// Returns whether a thread may still be in a call that gives up contents. One that runs is asked
/// to be stopped for a moment, by `visit`: it is in none then.
pub(super) fn may_discard(thread: i32, visit: impl Fn(i32)) -> bool {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{thread}/{name}"));
    // One that is gone is in no call.
    let Ok(stat) = read("stat") else { return false };
    let Some((name, rest)) = stat.rsplit_once(") ") else { return false };
    let state = rest.chars().next();
    if name.contains("(iou-wrk-") {
        // Between two requests it sleeps so that a signal would wake it.
        return state != Some('S');
    }
    if matches!(state, Some('Z' | 'X')) {
        return false;
    }
    let Ok(call) = read("syscall") else { return false };
    let number = call.split(' ').next().unwrap_or("");
    if number == "running" {
        visit(thread);
        return true;
    }
    let number = number.trim_end().parse::<i64>().unwrap_or(-1);
    number == libc::SYS_madvise || number == libc::SYS_process_madvise
}
