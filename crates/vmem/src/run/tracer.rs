//! The tracer: starts a program, follows all its threads and children, and tells the memory side
//! of every change of an address space before and after it is made.
//!
//! One thread does all of it, since the kernel binds a traced thread to the one that traces it. It
//! waits for the next stop of any thread; requests of others ([`Handle`]) reach it as a stop, too:
//! of a child of its own that does nothing else (the *bell*), which they signal.
//!
//! Invariants:
//! - T1: a thread that is stopped is let go by whoever handles its event, except a forking parent:
//!   it is held until its child has stopped and the memory side knows it (`Birth`).
//! - T2: the events of a child and of its parent come in any order. A child that is seen first
//!   waits in `unclaimed`, one that ends first in `stillborn`.
//! - T3: a space is `gone` when the last thread in it ends or leaves it by exec; only then its
//!   helper is killed. The thread goes on when the helper has ended, so that nobody who waits for
//!   it finds the executable or the mounts of its program busy.
//! - T4: each `before` that asks for it gets its `after`; if the thread is killed inside the call,
//!   with -EINTR.

mod program;
mod stops;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::run::helper::{self, Helper};
use crate::run::inject::{self, At, Injection, Queue};
use crate::run::memory::{Memory, SpaceId, Tracing};
use crate::run::permission::Access;
use crate::run::task::{Spaces, Task, Waits};
use crate::sys::process::{self, ChildrenKept, Outcome};
use crate::sys::ptrace::{self, Event};

pub(crate) use program::Program;

/// How the main process of a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal; whether it left a core.
    Signal {
        /// Its number.
        number: i32,
        /// Whether there is a core.
        core: bool,
    },
    /// It never began: the error number of exec.
    NotRun(i32),
}

impl Exit {
    /// The status by which a shell would tell of it.
    #[must_use]
    pub fn status(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal { number, .. } => 128 + number,
            Self::NotRun(libc::ENOENT) => 127,
            Self::NotRun(_) => 126,
        }
    }
}

#[derive(Debug)]
enum Request {
    Attach(SpaceId),
    End(String),
}

#[derive(Debug, Default)]
struct Requests {
    waiting: Vec<Request>,
    bell: Option<OwnedFd>,
}

/// The tracer as others see it; made before it starts.
#[derive(Debug, Default)]
pub(crate) struct Handle {
    requests: Mutex<Requests>,
}

impl Handle {
    fn lock(&self) -> std::sync::MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, request: Request) {
        let mut requests = self.lock();
        requests.waiting.push(request);
        if let Some(bell) = &requests.bell
            && requests.waiting.len() == 1
        {
            // Fails only when the tracer ends, which asks for nothing more.
            let _ = pidfd_send_signal(bell, Signal::USR1);
        }
    }

    fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.lock().waiting)
    }
}

impl Tracing for Handle {
    fn attach(&self, space: SpaceId) {
        self.ask(Request::Attach(space));
    }

    fn end(&self, message: String) {
        self.ask(Request::End(message));
    }
}

/// What the tracer tells while the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// The main process has become the program; this is its number.
    Started(i32),
    /// It has ended.
    Ended(Exit),
}

/// Runs a program and all its children to their end under the eyes of `memory`. `tell` is told
/// the beginning and the end of the main process at once, unless it never began; the call returns
/// when the last child has ended, too.
///
/// # Errors
/// If the program cannot be traced, or with the message of [`Tracing::end`]; nothing of the tree
/// runs then.
pub(crate) fn trace(
    program: &Program,
    memory: Arc<dyn Memory>,
    handle: &Handle,
    access: Access,
    tell: &mut dyn FnMut(News),
) -> io::Result<Exit> {
    let _children = ChildrenKept::new();
    // Orphans come here instead of to an init that may not care for them: helpers of processes that
    // have ended are such, too.
    process::adopt_orphans()?;
    let waiting = process::start(&program.image()?)?;
    let main = waiting.pid;
    ptrace::seize(main, ptrace::FOLLOW)?;
    let mut tracer = Tracer {
        memory,
        handle,
        access,
        tell,
        main,
        exit: None,
        ended: None,
        outcome: None,
        bell: 0,
        tasks: HashMap::from([(main, Task::default())]),
        spaces: Spaces::default(),
        helpers: HashMap::new(),
        buried: Vec::new(),
        unclaimed: HashSet::new(),
        stillborn: HashSet::new(),
        queue: Queue::new(),
    };
    tracer.hang_bell()?;
    tracer.outcome = Some(waiting.go()?);
    let result = tracer.run();
    tracer.take_bell_down();
    result
}

struct Tracer<'a> {
    memory: Arc<dyn Memory>,
    handle: &'a Handle,
    access: Access,
    tell: &'a mut dyn FnMut(News),
    /// The process that was started, and how it ended.
    main: i32,
    exit: Option<Exit>,
    /// Why everything is being ended.
    ended: Option<String>,
    outcome: Option<Outcome>,
    bell: i32,
    tasks: HashMap<i32, Task>,
    spaces: Spaces,
    /// Helpers that live, with their spaces.
    helpers: HashMap<i32, SpaceId>,
    /// Helpers that have ended before their parents.
    buried: Vec<Helper>,
    unclaimed: HashSet<i32>,
    stillborn: HashSet<i32>,
    queue: Queue,
}

/// A thread may end at any moment, which its own event tells: errors of calls about it are no news.
fn let_go(result: io::Result<()>) {
    if let Err(error) = result {
        debug_assert_eq!(error.raw_os_error(), Some(libc::ESRCH), "{error}");
    }
}

impl Tracer<'_> {
    fn hang_bell(&mut self) -> io::Result<()> {
        self.bell = process::start_bell()?;
        ptrace::seize(self.bell, ptrace::FOLLOW)?;
        let pid = Pid::from_raw(self.bell).expect("not 0");
        let bell = pidfd_open(pid, PidfdFlags::empty())?;
        self.handle.lock().bell = Some(bell);
        Ok(())
    }

    fn take_bell_down(&mut self) {
        self.handle.lock().bell = None;
        process::kill(self.bell);
        helper::wait_for_end(self.bell);
    }

    fn run(&mut self) -> io::Result<Exit> {
        while !self.tasks.is_empty() || !self.helpers.is_empty() || !self.unclaimed.is_empty() {
            self.serve_requests();
            let (tid, event) = match self.queue.pop_front() {
                Some(event) => event,
                None => ptrace::wait(0)?,
            };
            self.handle_event(tid, event);
        }
        match (self.ended.take(), self.exit) {
            (None, Some(exit)) => Ok(exit),
            (Some(message), _) => Err(io::Error::other(message)),
            (None, None) => Err(io::Error::other("the program is lost")),
        }
    }

    fn serve_requests(&mut self) {
        for request in self.handle.take() {
            match request {
                Request::Attach(space) => self.ask_for(space),
                Request::End(message) => self.end(message),
            }
        }
    }

    /// Stops a thread of a space: one that runs if there is one, since it is in no call that could
    /// notice, and none that sleeps without being woken by this, as the parent of a vfork.
    fn ask_for(&self, space: SpaceId) {
        if !self.spaces.attachable(space) {
            return;
        }
        let here = self.tasks.iter().filter(|(_, task)| task.space == Some(space));
        let chosen = here.map(|(&tid, _)| tid).min_by_key(|&tid| match state(tid) {
            Some('R') => 0,
            Some('D') | None => 2,
            Some(_) => 1,
        });
        if let Some(tid) = chosen {
            let_go(ptrace::interrupt(tid));
        }
    }

    fn end(&mut self, message: String) {
        self.ended.get_or_insert(message);
        for &tid in self.tasks.keys().chain(&self.unclaimed) {
            process::kill(tid);
        }
    }

    fn handle_event(&mut self, tid: i32, event: Event) {
        if tid == self.bell {
            if !matches!(event, Event::Exited(_) | Event::Killed { .. }) {
                let_go(ptrace::cont(tid, 0));
            }
        } else if self.helpers.contains_key(&tid) {
            self.helper_event(tid, event);
        } else if self.tasks.contains_key(&tid) {
            self.task_event(tid, event);
        } else {
            self.unknown_event(tid, event);
        }
    }

    /// A helper blocks its signals; SIGSTOP cannot be blocked and is not for it.
    fn helper_event(&mut self, pid: i32, event: Event) {
        match event {
            Event::Exited(_) | Event::Killed { .. } => {
                self.helpers.remove(&pid);
            }
            Event::Signal(signal @ (libc::SIGSEGV | libc::SIGBUS | libc::SIGILL)) => {
                let_go(ptrace::cont(pid, signal));
            }
            _ => let_go(ptrace::cont(pid, 0)),
        }
    }

    /// A child whose parent has not reported it (T2), a thread that is known by another number
    /// since an exec, or a buried helper that became this process's.
    fn unknown_event(&mut self, tid: i32, event: Event) {
        match event {
            Event::Exited(_) | Event::Killed { .. } => {
                let buried = self.buried.iter().any(|helper| helper.pid == tid);
                self.buried.retain(|helper| helper.pid != tid);
                if !buried && !self.unclaimed.remove(&tid) {
                    self.stillborn.insert(tid);
                }
            }
            Event::Stop { .. } => {
                self.stillborn.remove(&tid);
                self.unclaimed.insert(tid);
            }
            Event::Exec => self.exec(tid),
            Event::Signal(signal) => let_go(ptrace::cont(tid, signal)),
            _ => let_go(ptrace::cont(tid, 0)),
        }
    }

    fn task_event(&mut self, tid: i32, event: Event) {
        match event {
            Event::Exited(code) => self.exited(tid, Exit::Code(code)),
            Event::Killed { signal, core } => {
                self.exited(tid, Exit::Signal { number: signal, core });
            }
            Event::Seccomp => self.before(tid),
            Event::Syscall => self.behind(tid),
            Event::Child => self.child(tid),
            Event::Exec => self.exec(tid),
            Event::Ending => self.ending(tid),
            Event::Stop { .. } => self.stopped(tid, event),
            Event::Signal(signal) => {
                let_go(inject::soften(tid).and_then(|()| ptrace::cont(tid, signal)));
            }
        }
    }

    fn exited(&mut self, tid: i32, exit: Exit) {
        let Some(task) = self.tasks.remove(&tid) else { return };
        self.abandon(task.waits, task.space);
        match (task.birth, task.space) {
            // The memory side has not heard of the child's space.
            (Some(birth), Some(space)) => {
                self.spaces.leave(space);
                self.memory.forked(birth.parent_space, None);
                let_go(ptrace::cont(birth.parent, 0));
            }
            (None, Some(space)) => drop(self.leave(space)),
            (_, None) => {}
        }
        self.forget_buried(tid);
        if tid == self.main {
            let failure = self.outcome.take().and_then(|outcome| outcome.failure());
            let exit = failure.and_then(|error| error.raw_os_error()).map_or(exit, Exit::NotRun);
            self.exit = Some(exit);
            // Of a program that is being ended, the result says why.
            if !matches!(exit, Exit::NotRun(_)) && self.ended.is_none() {
                (self.tell)(News::Ended(exit));
            }
        }
        if !self.unclaimed.is_empty() {
            self.end_lost_children();
        }
    }

    /// A thread ends and has its memory still.
    fn ending(&mut self, tid: i32) {
        if let Some(task) = self.tasks.get_mut(&tid)
            && task.birth.is_none()
        {
            let (waits, space) = (std::mem::take(&mut task.waits), task.space.take());
            self.abandon(waits, space);
            if let Some(helper) = space.and_then(|space| self.leave(space)) {
                self.bury(helper);
            }
        }
        let_go(ptrace::cont(tid, 0));
    }

    /// Waits for the end of a helper that was killed.
    fn bury(&mut self, helper: Helper) {
        helper::wait_for_end(helper.pid);
        self.helpers.remove(&helper.pid);
        self.buried.push(helper);
    }

    /// A process has ended; what it made and never waited for is this process's now.
    fn forget_buried(&mut self, parent: i32) {
        self.buried.retain(|helper| {
            if helper.parent == parent {
                ptrace::forget(helper.pid);
            }
            helper.parent != parent
        });
    }

    /// A thread was killed inside a call (T4).
    fn abandon(&self, waits: Waits, space: Option<SpaceId>) {
        let Some(space) = space else { return };
        match waits {
            Waits::Nothing => {}
            Waits::Return(change) => self.memory.after(space, &change, -i64::from(libc::EINTR)),
            Waits::ReturnAll(changes) => {
                for change in &changes {
                    self.memory.after(space, change, -i64::from(libc::EINTR));
                }
            }
            Waits::Fork { .. } => self.memory.forked(space, None),
        }
    }

    /// A parent that is killed in the middle of fork never reports its child. Nobody knows what
    /// that child's memory should hold: it ends with its parent.
    fn end_lost_children(&self) {
        for &tid in &self.unclaimed {
            let own = std::process::id().cast_signed();
            let known = relative(tid).is_none_or(|pid| pid == own || self.tasks.contains_key(&pid));
            if !known {
                process::kill(tid);
            }
        }
    }

    /// A thread has left a space.
    fn leave(&mut self, id: SpaceId) -> Option<Helper> {
        let space = self.spaces.leave(id)?;
        self.memory.gone(id);
        let helper = space.helper?;
        process::kill(helper.pid);
        Some(helper)
    }

    fn exec(&mut self, tid: i32) {
        let former = ptrace::message(tid).unwrap_or(tid);
        let mut left: Vec<SpaceId> = Vec::new();
        let mut helper = None;
        for number in [tid, former] {
            if let Some(task) = self.tasks.remove(&number) {
                self.abandon(task.waits, task.space);
                left.extend(task.space);
            }
        }
        for space in left {
            helper = self.leave(space).or(helper);
        }
        let space = self.spaces.add();
        self.tasks.insert(tid, Task { space: Some(space), ..Task::default() });
        if tid == self.main && self.outcome.take().is_some() {
            (self.tell)(News::Started(tid));
        }
        self.memory.exec(space, tid);
        self.refuse_foreign(tid, space);
        let Some(helper) = helper else { return let_go(ptrace::cont(tid, 0)) };
        self.bury(helper);
        if helper.parent == tid {
            self.reap(tid, helper);
        } else {
            let_go(ptrace::cont(tid, 0));
        }
    }

    /// Has the maker of a helper, which goes on with another program, forget that it had a child.
    fn reap(&mut self, tid: i32, helper: Helper) {
        let reaped =
            Injection::begin(tid, At::Behind, None, &mut self.queue).and_then(|mut injection| {
                helper::reap(&mut injection, helper.pid_inside)?;
                injection.finish()
            });
        self.buried.retain(|buried| buried.pid != helper.pid);
        self.resume_after(tid, reaped);
    }

    /// After an injection.
    fn resume_after(&self, tid: i32, stop: io::Result<Event>) {
        match stop {
            Ok(Event::Stop { signal }) if signal != libc::SIGTRAP => let_go(ptrace::listen(tid)),
            Err(_) if self.is_queued(tid) => {}
            _ => let_go(ptrace::cont(tid, 0)),
        }
    }

    /// Whether something has happened to a thread that is still to be handled; it may be stopped
    /// for that.
    fn is_queued(&self, tid: i32) -> bool {
        self.queue.iter().any(|(queued, _)| *queued == tid)
    }

    /// A 32-bit program makes calls by other numbers.
    fn refuse_foreign(&mut self, tid: i32, space: SpaceId) {
        if ptrace::is_foreign(tid) {
            self.refuse(space, "it is a 32-bit program".into());
        }
    }

    /// Tells, once, that a space cannot be managed.
    fn refuse(&mut self, id: SpaceId, reason: String) {
        if let Some(space) = self.spaces.get_mut(id)
            && !space.refused
        {
            space.refused = true;
            self.memory.cannot_attach(id, reason);
        }
    }
}

/// What a thread does, by the kernel's letter.
fn state(tid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The process of a thread, or the parent of a process; `None` if it is gone.
fn relative(tid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let number = |name| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().parse::<i32>().ok()
    };
    let (process, parent) = (number("Tgid:")?, number("PPid:")?);
    Some(if process == tid { parent } else { process })
}
