//! Which threads of a space may be giving up contents just now.

use std::collections::BTreeSet;
use std::io;

use super::managed::{Managed, lock};
use crate::run::sys::proc;

/// Threads that may have announced that they give up contents: all that share the space.
///
/// # Errors
/// They cannot be listed: any thread may be such a one.
pub(super) fn threads_of(managed: &Managed) -> io::Result<BTreeSet<i32>> {
    let tasks = lock(&managed.tasks).clone();
    let mut threads = BTreeSet::new();
    for &task in &tasks {
        if !threads.contains(&task) {
            threads.extend(proc::threads(task)?);
        }
    }
    threads.extend(tasks);
    Ok(threads)
}

/// Returns whether a thread may still be in a call that gives up contents: it may if what it does
/// cannot be read. One that runs is asked to be stopped for a moment, by `visit`: it is in none
/// then.
pub(super) fn may_discard(thread: i32, visit: impl Fn(i32)) -> bool {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{thread}/{name}"));
    let stat = match read("stat") {
        Ok(stat) => stat,
        // One that is gone is in no call.
        Err(error) => return !proc::is_gone(&error),
    };
    let Some((name, rest)) = stat.rsplit_once(") ") else { return true };
    let state = rest.chars().next();
    if name.contains("(iou-wrk-") {
        // Between two requests it sleeps so that a signal would wake it.
        return state != Some('S');
    }
    if matches!(state, Some('Z' | 'X')) {
        return false;
    }
    let call = match read("syscall") {
        Ok(call) => call,
        Err(error) => {
            // It may not be read of a program that has made itself unreadable.
            visit(thread);
            return !proc::is_gone(&error);
        }
    };
    let number = call.trim_end().split(' ').next().unwrap_or("");
    if number == "running" {
        visit(thread);
        return true;
    }
    let calls = [libc::SYS_madvise, libc::SYS_process_madvise];
    number.parse().map_or(true, |number| calls.contains(&number))
}
