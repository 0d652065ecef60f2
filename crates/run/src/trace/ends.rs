//! The ends of threads.
//!
//! A thread that ends stops once more, before the kernel clears its number and walks its robust
//! mutexes. The kernel does not wait for pages then, so these pages are brought in at that stop.
//!
//! - E1: a thread that is not the first of its process is detached there. Otherwise it would stay
//!   in its process until its end is received here, and a thread that has joined it would still
//!   find it there, as unshare does. Its state is forgotten then.
//! - E2: the first thread is never detached there: its end, which the kernel reports after the ends
//!   of all others, is that of the process (T3).
//! - E3: a thread that is killed at this stop continues by itself, and one that is being killed may
//!   skip the stop. Their ends are received like that of a first thread.

use std::process::ExitStatus;

use super::task::Park;
use super::{Tracer, let_go};
use crate::link::{Ending, Tracing as _};
use crate::options::Event;
use crate::sys::ptrace::Syscall;
use crate::sys::{proc, process, ptrace};

impl Tracer<'_> {
    /// A thread is about to end.
    pub(super) fn ending(&mut self, tid: i32) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        // What it was held for is over: its tickets no longer release it.
        (task.held, task.parked) = (None, None);
        let ended = std::mem::replace(&mut task.ends, true);
        let (space, mut tid_at) = (task.space, task.tid_at);
        let is_ours = self.ended.is_some()
            || space.and_then(|id| self.spaces.get(id)).is_some_and(|space| space.victim);
        if !is_ours && ptrace::is_killed(tid) && process::is_leader(tid) {
            (self.tell)(Some(Event::Killed(tid, proc::name(tid))));
        }
        if let Some(id) = space
            && let Some(space) = self.spaces.get_mut(id)
        {
            space.ending += usize::from(!ended);
            space.waiting.retain(|waiting| *waiting != tid);
            // Nothing else would report it.
            tid_at = tid_at.filter(|_| space.tasks > 1);
            self.tell_if_it_stands(id);
        }
        let Some(space) = space.filter(|&space| self.memory.is_attached(space)) else {
            return self.let_end(tid);
        };
        let ticket = self.ticket(tid);
        if let Some(task) = self.tasks.get_mut(&tid) {
            (task.held, task.parked) = (Some(ticket.turn), Some(Park::End));
        }
        let word = |at| {
            let mut bytes = [0; 8];
            ptrace::read(tid, at, &mut bytes).ok().map(|()| usize::from_ne_bytes(bytes))
        };
        let ending = Ending { tid_at, robust: ptrace::robust_list(tid), word: &word };
        if self.memory.ends(space, &ending, ticket) {
            self.go_on(ticket);
        }
    }

    /// A thread is about to make a call; returns whether it is held for a moment, because only a
    /// process of one thread may make that, and a thread that was let go (E1) is not gone yet. It
    /// may have been joined already: the kernel wakes the threads that wait for it some time
    /// before.
    pub(super) fn waits_for_ends(&mut self, tid: i32, call: &Syscall) -> bool {
        /// A limit, because a thread may never end, such as one of io_uring.
        const LOOKS: u8 = 100;
        if call.number != libc::SYS_unshare as u64 {
            return false;
        }
        let threads = proc::threads(tid).unwrap_or_default();
        let is_going = threads.iter().any(|thread| !self.tasks.contains_key(thread));
        let Some(task) = self.tasks.get_mut(&tid) else { return false };
        if !is_going || task.fetched == LOOKS {
            task.fetched = 0;
            return false;
        }
        task.fetched += 1;
        let ticket = self.ticket(tid);
        self.hold(tid, ticket, Some(Park::Again));
        // Other events come first, and other threads run.
        self.handle.go_on(ticket);
        true
    }

    /// Lets a thread that is about to end do so.
    pub(super) fn let_end(&mut self, tid: i32) {
        // A thread that was not met is gone before its space is attached (T9).
        let is_met = self.tasks.get(&tid).is_none_or(|task| !task.unmet);
        // Asked of the kernel, which knows its number after an exec.
        if is_met && !process::is_leader(tid) && ptrace::detach(tid, 0).is_ok() {
            return self.exited(tid, ExitStatus::default());
        }
        let_go(ptrace::cont(tid, 0));
    }
}
