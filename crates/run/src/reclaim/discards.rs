//! Finds the threads of a space that may be discarding memory, and waits until none is.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use crate::link::SpaceId;
use crate::shared::Shared;
use crate::spaces::managed::{Managed, lock};
use crate::sys::proc;

/// How often to check a thread that was in a call.
const LOOK: Duration = Duration::from_millis(1);
/// How long faults wait for announced calls to end when nothing else can leave.
const CALL_MAX: Duration = Duration::from_millis(20);

/// Waits for announced calls to end, one for each space.
#[derive(Default)]
pub(crate) struct Waits(Vec<Wait>);

/// A wait for the calls that threads of a space may be in. It holds only a weak reference: an open
/// descriptor of a space that has gone would make unmapping wait for a reader.
struct Wait {
    space: SpaceId,
    number: u32,
    /// Threads that were not seen outside of such a call.
    threads: BTreeSet<i32>,
    since: Instant,
    next: Instant,
}

impl Waits {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has(&self, space: SpaceId) -> bool {
        self.0.iter().any(|wait| wait.space == space)
    }

    /// Begins the wait of this number, unless the threads of the space cannot be listed.
    pub(crate) fn begin(&mut self, managed: &Managed, number: u32) {
        let Ok(threads) = threads_of(managed) else { return };
        lock(&managed.visited).clear();
        let (space, now) = (managed.id, Instant::now());
        self.0.push(Wait { space, number, threads, since: now, next: now });
    }

    /// Checks which announced calls have ended; returns whether all of any space have.
    pub(crate) fn look(&mut self, shared: &Shared) -> bool {
        let mut over = false;
        self.0.retain_mut(|wait| {
            let Some(managed) = shared.books.find(wait.space) else { return false };
            if wait.next <= Instant::now() {
                wait.next = Instant::now() + LOOK;
                let visited = std::mem::take(&mut *lock(&managed.visited));
                wait.threads.retain(|thread| !visited.contains(thread));
                let visit = |thread| shared.tracing.visit(thread);
                wait.threads.retain(|&thread| may_discard(thread, visit));
            }
            if wait.threads.is_empty() {
                managed.lock().outlived(wait.number);
                over = true;
            }
            !wait.threads.is_empty() && !managed.is_dead()
        });
        over
    }

    /// Waits a moment for calls to end; returns false if there are none, or if they take long.
    pub(crate) fn rest(&self) -> bool {
        let rests = self.0.iter().any(|wait| wait.since.elapsed() < CALL_MAX);
        if rests {
            std::thread::sleep(LOOK);
        }
        rests
    }
}

/// Threads that may have announced a discard: all that share the space.
///
/// # Errors
/// They cannot be listed: any thread may have announced one.
fn threads_of(managed: &Managed) -> io::Result<BTreeSet<i32>> {
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

/// Returns whether a thread may still be in a call that discards memory; true if its state cannot
/// be read. A running thread is stopped for a moment, by `visit`: then it is in no such call.
fn may_discard(thread: i32, visit: impl Fn(i32)) -> bool {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{thread}/{name}"));
    let stat = match read("stat") {
        Ok(stat) => stat,
        // A thread that is gone is in no call.
        Err(error) => return !proc::is_gone(&error),
    };
    let Some((name, rest)) = stat.rsplit_once(") ") else { return true };
    let state = rest.chars().next();
    if name.contains("(iou-wrk-") {
        // Between two requests its sleep is interruptible.
        return state != Some('S');
    }
    if matches!(state, Some('Z' | 'X')) {
        return false;
    }
    let call = match read("syscall") {
        Ok(call) => call,
        Err(error) => {
            // It cannot be read for a program that has made itself unreadable.
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
    let may = number.parse().map_or(true, |number| calls.contains(&number));
    if may && matches!(state, Some('t' | 'T')) {
        // It may be stopped after the call, or before it.
        visit(thread);
    }
    may
}
