//! The tracer: starts a program, follows all its threads and children, and makes helpers.
//!
//! One thread does all this, since the kernel binds a traced thread to its tracing thread. It waits
//! for the next stop of any thread; requests of others ([`Handle`]) reach it as a stop, too: of a
//! child of its own that does nothing else (the *bell*), which they signal.
//!
//! Before the first helper, the program stops only at fork, clone and exec, at the birth of
//! children and at the ends of threads ([`ends`]). A program with a helper runs under a filter,
//! which stops the few calls that the kernel does not report in time ([`calls`]).
//!
//! Invariants:
//! - T1: the handler of its event lets a stopped thread continue, or holds it by a ticket, whose
//!   owner lets it continue ([`Tracing::go_on`]).
//! - T2: the events of a child and of its parent come in any order. A child that is seen first
//!   waits in `unclaimed`, one that ends first in `stillborn`.
//! - T3: a space is `gone` when the last thread in it ends or leaves it by exec. Its helper ends
//!   before the end of that thread is received, or before exec continues, so that a process that
//!   waits for it does not find the executable or the mounts of its program busy; except for an end
//!   that is received during a call in another thread. The helper has stepped aside before, and its
//!   parent has reaped it, unless SIGKILL ended the parent ([`aside`]).
//! - T4: the tracer waits only for events. It receives those of all threads while it waits for one,
//!   and threads are held while the memory side works for them.
//! - T5: in an attached space, only one thread at a time moves a mapping or forks: the messages of
//!   two such calls would not show their order.
//! - T6: while a space is to stand still, each of its threads was asked to stop since it last
//!   stopped: the kernel forgets a request at each stop. If it stops for no other reason, it is
//!   held until the space may move again.
//! - T7: a program whose space should be attached from the beginning is attached at its exec,
//!   before its first instruction: it cannot exceed a small limit while it is being asked to stop.
//! - T8: every process that has an attached space runs under the filter, which is installed on all
//!   threads of one process at once: a space that another process also has is attached only after
//!   that has left it. A child of vfork or fork that was made just before is recognized by its
//!   filters.
//! - T9: a space of processes that ran before is attached only when each of its threads has been
//!   met or is gone ([`caught`], [`meet`]).

mod alone;
mod areas;
mod aside;
mod asked;
mod asks;
mod attach;
pub(crate) mod begin;
mod birth;
mod calls;
mod caught;
mod channel;
mod children;
mod ends;
mod events;
mod few;
mod filters;
mod handle;
mod helper;
mod inject;
mod meet;
mod modes;
mod restart;
mod steps;
mod still;
mod stops;
mod task;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};

use crate::link::{Memory, Request, SpaceId, Ticket};
use crate::options::{self, RunError};
use crate::permission::Access;
use crate::sys::pids::Pids;
use crate::sys::process::{self, Waiting};
use crate::sys::ptrace::{self, Event};

use asks::Asks;
pub use channel::AT as HELPER_AT;
use events::Queue;
use helper::Helper;
use inject::At;
use task::{Spaces, Task, Waits};

/// Gets what happens; `None`: the memory side knows more of what cannot be managed, and why.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(Option<options::Event>);

/// The tracer as others see it; made before it starts.
#[derive(Default)]
pub(crate) struct Handle {
    requests: Mutex<Requests>,
}

/// What is done at the next opportunity.
type Asked = Box<dyn FnOnce(&mut Tracer<'_>) + Send>;

/// Requests that the tracer has not taken yet.
#[derive(Default)]
struct Requests {
    waiting: Vec<Asked>,
    /// The spaces that are to be attached.
    asks: Asks,
    bell: Option<OwnedFd>,
}

struct Tracer<'a> {
    memory: Arc<dyn Memory>,
    handle: &'a Handle,
    access: Access,
    tell: Tell<'a>,
    /// Whether a process that traces itself was reported.
    traces_itself: bool,
    /// The process that was started, and how it ended, or why it never began.
    main: i32,
    exit: Option<io::Result<ExitStatus>>,
    /// It was reported as stopped.
    is_stopped: bool,
    /// Why everything is being ended.
    ended: Option<String>,
    /// Everything is being ended.
    kills: bool,
    /// Knows why it could not become the program; `None` once it has.
    outcome: Option<Waiting>,
    bell: i32,
    tasks: HashMap<i32, Task>,
    spaces: Spaces,
    /// Helpers that live, with their spaces.
    helpers: HashMap<i32, SpaceId>,
    /// Helpers that have ended before their parents.
    buried: HashSet<i32>,
    unclaimed: HashSet<i32>,
    stillborn: HashSet<i32>,
    /// Threads that are to be stopped for a moment.
    visits: HashSet<i32>,
    /// Forks of attached spaces whose parent was killed, and whose child was not seen.
    lost_forks: usize,
    /// How many more processes may be made, and whether it was reported that few may.
    pids: Pids,
    told_few: bool,
    /// Tickets that were made.
    turns: u64,
    queue: Queue,
}

/// A thread may end at any moment, which its own event reports: errors of calls about it are
/// ignored.
fn let_go(result: io::Result<()>) {
    if let Err(error) = result {
        debug_assert_eq!(error.raw_os_error(), Some(libc::ESRCH), "{error}");
    }
}

impl Tracer<'_> {
    fn run(&mut self) -> Result<ExitStatus, RunError> {
        while !self.tasks.is_empty() || !self.helpers.is_empty() || !self.unclaimed.is_empty() {
            self.serve_requests();
            let (tid, event) = match self.queue.pop_front() {
                Some(event) => event,
                None => self.next_event()?,
            };
            self.handle_event(tid, event);
        }
        match (self.ended.take(), self.exit.take()) {
            (None, Some(exit)) => exit.map_err(RunError::NotRun),
            (Some(message), _) => Err(RunError::Failed(message)),
            (None, None) => Err(RunError::Failed("the program is lost".to_owned())),
        }
    }

    /// Waits for an event. A helper ends before the last thread of its program is received (T3).
    fn next_event(&mut self) -> io::Result<(i32, Event)> {
        if self.helpers.is_empty() {
            return ptrace::wait(0);
        }
        loop {
            let (tid, is_end) = ptrace::peek()?;
            if is_end
                && let Some(space) = self.tasks.get(&tid).and_then(|task| task.space)
                && let Some(helper) = self.spaces.last_helper(space)
            {
                self.end_helper(helper);
            }
            // A helper that is killed leaves its stop by itself, and its end may come after that of
            // others: it is not waited for alone.
            if let Some(event) = ptrace::wait_now(tid)? {
                return Ok((tid, event));
            }
        }
    }

    fn end_helper(&mut self, helper: Helper) {
        if self.helpers.remove(&helper.pid).is_some() {
            process::kill(helper.pid);
            helper::wait_for_end(helper.pid, &mut self.queue);
            self.buried.insert(helper.pid);
        }
    }

    fn end(&mut self, message: String) {
        self.ended.get_or_insert(message);
        self.kill_all();
    }

    /// Ends all processes, and those that are being made.
    fn kill_all(&mut self) {
        self.kills = true;
        for &tid in self.tasks.keys().chain(&self.unclaimed) {
            process::kill(tid);
        }
    }

    fn handle_event(&mut self, tid: i32, event: Event) {
        if tid == self.bell {
            if !event.is_end() {
                let_go(ptrace::cont(tid, 0));
            }
            return;
        }
        if self.helpers.contains_key(&tid) {
            return self.helper_event(tid, event);
        }
        if self.tasks.contains_key(&tid) {
            self.task_event(tid, event);
        } else {
            self.unknown_event(tid, event);
        }
        // It did not exist when all others were killed.
        if self.kills && !event.is_end() && event != Event::Ending && !self.is_queued(tid) {
            process::kill(tid);
        }
    }

    /// A helper blocks its signals; SIGSTOP cannot be blocked, and is not meant for it.
    fn helper_event(&mut self, pid: i32, event: Event) {
        match event {
            Event::Ended(_) => {
                if let Some(space) = self.helpers.remove(&pid) {
                    self.buried.insert(pid);
                    self.helper_died(space, pid);
                }
            }
            Event::Signal(signal @ (libc::SIGSEGV | libc::SIGBUS | libc::SIGILL)) => {
                let_go(ptrace::cont(pid, signal));
            }
            _ => let_go(ptrace::cont(pid, 0)),
        }
    }

    fn task_event(&mut self, tid: i32, event: Event) {
        match event {
            Event::Ended(_) | Event::Ending => {}
            Event::Stop { .. } | Event::Signal(_) | Event::Seccomp => self.come_back(tid),
            _ => self.leave_aside(tid),
        }
        // The kernel forgets a request to stop at each stop.
        if !event.is_end() && !matches!(event, Event::Stop { .. } | Event::Ending) {
            self.ask_again(tid);
            self.stop_to_stand(tid);
        }
        match event {
            Event::Ended(status) => self.exited(tid, status),
            Event::Seccomp => self.before(tid),
            Event::Syscall => self.behind(tid),
            Event::Child => self.child(tid),
            Event::Exec => self.exec(tid),
            Event::Ending => self.ending(tid),
            Event::Stop { .. } => self.stopped(tid, event),
            Event::Signal(signal) => {
                self.soften(tid, signal);
                if !self.before_signal(tid, signal) {
                    let_go(self.resume_with(tid, signal));
                }
            }
        }
    }

    fn exited(&mut self, tid: i32, status: ExitStatus) {
        let Some(task) = self.tasks.remove(&tid) else { return };
        self.visits.remove(&tid);
        self.leave(tid, &task);
        if let Some((parent, space)) = task.birth {
            self.never_born(parent, space);
        }
        if let (Some(_), Some(space)) = (status.signal(), task.space)
            && self.spaces.get(space).is_some()
        {
            self.memory.doubt(space);
        }
        if tid == self.main {
            self.main_goes_on();
            let failure = self.outcome.take().and_then(|outcome| outcome.failure());
            // For a program that is being ended, the result has the reason.
            if failure.is_none() && self.ended.is_none() {
                (self.tell)(Some(options::Event::Ended(status)));
            }
            self.exit = Some(failure.map_or(Ok(status), Err));
        }
        self.adopt();
    }

    /// A thread has left its space; returns its helpers if that was the last.
    fn leave(&mut self, tid: i32, task: &Task) -> Vec<Helper> {
        let Some(id) = task.space else { return Vec::new() };
        if let Some(space) = self.spaces.get_mut(id) {
            space.aside -= usize::from(task.aside);
            space.ending -= usize::from(task.ends);
            space.unmet -= usize::from(task.unmet);
        }
        if matches!(task.waits, Waits::Fork(_)) {
            self.lost_forks += 1;
            self.memory.unborn(id);
        }
        if let Waits::Moved { from, old, .. } = task.waits {
            let ticket = self.ticket(tid);
            let moved = Request::Moved { from: from..from + old, to: None };
            self.memory.request(id, moved, ticket);
        }
        self.end_change(tid, id);
        self.memory.left(id, tid);
        let Some(space) = self.spaces.leave(id) else {
            // It may have been the process that others had to wait for (T8).
            if self.spaces.get_mut(id).is_some_and(|space| space.shared.is_some()) {
                self.ask_for(id);
            }
            self.tell_if_it_stands(id);
            return Vec::new();
        };
        self.memory.gone(id);
        if let Some(helper) = space.helper {
            self.end_helper(helper);
        }
        space.helper.into_iter().chain(space.ended).collect()
    }

    fn exec(&mut self, tid: i32) {
        // For a thread that is being killed, only this is known: its number is free, without an
        // event of its end.
        let is_former = |tid: &i32| !process::is_there(*tid) && !self.is_queued(*tid);
        let former =
            ptrace::message(tid).ok().or_else(|| self.tasks.keys().copied().find(is_former));
        let former = former.unwrap_or(tid);
        let mut filtered = false;
        let mut helpers = Vec::new();
        for number in [tid, former] {
            if let Some(task) = self.tasks.remove(&number) {
                filtered |= task.filtered;
                helpers.extend(self.leave(number, &task));
            }
        }
        let space = self.memory.exec(tid);
        self.spaces.add(space);
        self.tasks.insert(tid, Task { space: Some(space), filtered, ..Task::default() });
        if tid == self.main && self.outcome.take().is_some() {
            (self.tell)(Some(options::Event::Started(tid)));
        }
        self.refuse_foreign(tid, space);
        self.stop_to_stand(tid);
        helpers.retain(|helper| helper.parent == tid);
        if self.wanted(tid, space) {
            // The next attach reaps these first.
            if let Some(known) = self.spaces.get_mut(space) {
                known.ended = helpers;
            }
            self.attach(tid, space, At::Behind);
        } else if helpers.is_empty() {
            let_go(ptrace::cont(tid, 0));
        } else {
            self.forget(tid, At::Behind, &helpers);
        }
    }

    /// A ticket for a thread that is stopped.
    fn ticket(&mut self, thread: i32) -> Ticket {
        self.turns += 1;
        Ticket { thread, turn: self.turns }
    }

    /// Lets a thread continue, and stops it after a call whose time limit was shortened.
    fn resume_with(&self, tid: i32, signal: i32) -> io::Result<()> {
        let shortened = self.tasks.get(&tid).and_then(|task| task.softened.as_ref());
        if shortened.is_some_and(waits::Softened::is_shortened) {
            return ptrace::syscall(tid, signal);
        }
        ptrace::cont(tid, signal)
    }

    /// After an injection.
    fn resume_after(&mut self, tid: i32, stop: io::Result<Event>) {
        self.stop_to_stand(tid);
        match stop {
            Ok(event) if event.is_group_stop() => let_go(self.leave_stopped(tid)),
            Err(_) if self.is_queued(tid) => {}
            _ => let_go(self.resume_with(tid, 0)),
        }
    }

    /// Lets a thread stay stopped with its process until that is continued.
    fn leave_stopped(&mut self, tid: i32) -> io::Result<()> {
        if tid == self.main && !self.is_stopped {
            self.is_stopped = true;
            (self.tell)(Some(options::Event::Stopped));
        }
        ptrace::listen(tid)
    }

    /// Reports that the program continues, if it was reported as stopped.
    fn main_goes_on(&mut self) {
        if std::mem::take(&mut self.is_stopped) {
            (self.tell)(Some(options::Event::GoesOn));
        }
    }

    /// Whether an event of a thread is still to be handled; the thread may be stopped for it.
    fn is_queued(&self, tid: i32) -> bool {
        self.queue.iter().any(|(queued, _)| *queued == tid)
    }

    /// A 32-bit program makes calls by other numbers.
    fn refuse_foreign(&mut self, tid: i32, space: SpaceId) {
        if ptrace::is_foreign(tid) {
            self.refuse(space, "it is a 32-bit program".into());
        }
    }

    /// Reports, once, that a space cannot be managed.
    fn refuse(&mut self, id: SpaceId, reason: String) {
        if let Some(space) = self.spaces.get_mut(id)
            && !space.refused
        {
            space.refused = true;
            self.memory.cannot_attach(id, reason);
            (self.tell)(None);
        }
    }
}
