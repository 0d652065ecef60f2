//! What the tracer does with a stopped thread: tells the memory side, attaches, lets it go.

use std::io;

use super::{Tracer, let_go, state};
use crate::run::calls::{self, Meaning};
use crate::run::helper;
use crate::run::inject::{self, At, Injection};
use crate::run::memory::{Attached, Change, Follow, SpaceId};
use crate::run::task::{Birth, Task, Waits};
use crate::sys::ptrace::{self, Event, Syscall, SyscallInfo};
use crate::sys::{process, seccomp};

impl Tracer<'_> {
    /// A thread is about to make a call that the filter stops.
    pub(super) fn before(&mut self, tid: i32) {
        let Ok(SyscallInfo::Seccomp { call, data }) = ptrace::syscall_info(tid) else {
            return let_go(ptrace::cont(tid, 0));
        };
        let space = self.tasks.get(&tid).and_then(|task| task.space);
        match (space, data) {
            (Some(space), seccomp::STOP_CHANGE) => self.before_change(tid, space, &call),
            (Some(space), seccomp::STOP_FOREIGN) => self.before_foreign(tid, space),
            (None, seccomp::STOP_CHANGE | seccomp::STOP_FOREIGN) => let_go(ptrace::cont(tid, 0)),
            // A filter of the program's own that wants a tracer; without one, no call.
            _ => self.skip(tid),
        }
    }

    fn before_change(&mut self, tid: i32, space: SpaceId, call: &Syscall) {
        self.follow_to_end(tid, space);
        if self.wanted(space) {
            return self.attach(tid, space, At::Seccomp);
        }
        let read = |from: usize, to: &mut [u8]| match process::read_memory(tid, from, to)? {
            got if got == to.len() => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        };
        let waits = match calls::decode(call, &read) {
            Meaning::Nothing => Waits::Nothing,
            Meaning::Change(change) => match self.memory.before(space, &change) {
                // Pages leave a space that is attached; then the call is seen again.
                Follow::Go if matches!(change, Change::PageOut { .. }) && self.wanted(space) => {
                    return self.attach(tid, space, At::Seccomp);
                }
                Follow::Go => Waits::Nothing,
                Follow::Return => Waits::Return(change),
            },
            Meaning::Changes(changes) => self.before_all(space, changes),
            Meaning::Fork => Waits::Fork { attach: self.memory.fork(space) },
        };
        follow_children(tid, call, &read);
        let resume = match waits {
            Waits::Nothing => ptrace::cont,
            _ => ptrace::syscall,
        };
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.waits = waits;
        }
        let_go(resume(tid, 0));
    }

    /// A thread of an attached space stops when it ends.
    fn follow_to_end(&mut self, tid: i32, space: SpaceId) {
        if let Some(task) = self.tasks.get_mut(&tid)
            && !task.tells_end
            && self.spaces.get_mut(space).is_some_and(|space| space.helper.is_some())
        {
            task.tells_end = true;
            let_go(ptrace::set_options(tid, ptrace::FOLLOW_TO_END));
        }
    }

    fn before_all(&self, space: SpaceId, mut changes: Vec<Change>) -> Waits {
        changes.retain(|change| self.memory.before(space, change) == Follow::Return);
        if changes.is_empty() { Waits::Nothing } else { Waits::ReturnAll(changes) }
    }

    /// Calls of the 32-bit interface cannot be followed. Such a program is not managed; one that is
    /// has no such calls, as under a kernel without them.
    fn before_foreign(&mut self, tid: i32, space: SpaceId) {
        if self.spaces.get_mut(space).is_some_and(|space| space.helper.is_some()) {
            return self.skip(tid);
        }
        self.refuse(space, "it makes system calls of the 32-bit interface".into());
        let_go(ptrace::cont(tid, 0));
    }

    /// Does not make the call; its result is ENOSYS.
    fn skip(&self, tid: i32) {
        let skipped = ptrace::registers(tid).and_then(|mut registers| {
            registers.skip();
            registers.set_result(-i64::from(libc::ENOSYS));
            ptrace::set_registers(tid, &registers)
        });
        let_go(skipped.and_then(|()| ptrace::cont(tid, 0)));
    }

    /// A thread has made the call into which it was followed.
    pub(super) fn behind(&mut self, tid: i32) {
        let result = match ptrace::syscall_info(tid) {
            Ok(SyscallInfo::Exit(result)) => result,
            Ok(_) => return let_go(ptrace::syscall(tid, 0)),
            Err(_) => return,
        };
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let Some(space) = task.space else { return let_go(ptrace::cont(tid, 0)) };
        match std::mem::take(&mut task.waits) {
            Waits::Nothing => {}
            Waits::Return(change) => self.memory.after(space, &change, result),
            Waits::ReturnAll(changes) => self.after_all(space, &changes, result),
            Waits::Fork { .. } => self.memory.forked(space, None),
        }
        if self.wanted(space) {
            return self.attach(tid, space, At::Behind);
        }
        let_go(ptrace::cont(tid, 0));
    }

    /// `result` is how many bytes were advised, in the order of the changes.
    fn after_all(&self, space: SpaceId, changes: &[Change], result: i64) {
        let mut left = result;
        for change in changes {
            let len = match change {
                Change::Discard { range } => range.len() as i64,
                _ => 0,
            };
            let done = result >= 0 && left >= len;
            left -= len;
            let failed = if result < 0 { result } else { -i64::from(libc::EINVAL) };
            self.memory.after(space, change, if done { 0 } else { failed });
        }
    }

    /// A thread has made a child, which may have been seen already (T2).
    pub(super) fn child(&mut self, tid: i32) {
        let Ok(child) = ptrace::message(tid) else { return };
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let (space, tells_end) = (task.space, task.tells_end);
        let waits = std::mem::take(&mut task.waits);
        let dead = self.stillborn.remove(&child) && !lives(child);
        let seen = self.unclaimed.remove(&child);
        if let (Waits::Fork { attach }, Some(parent_space)) = (waits, space) {
            if dead {
                self.memory.forked(parent_space, None);
                return let_go(ptrace::cont(tid, 0));
            }
            let birth = Some(Birth { parent: tid, parent_space, attach });
            let space = Some(self.spaces.add());
            self.tasks.insert(child, Task { space, birth, tells_end, ..Task::default() });
            if seen {
                self.born(child);
            }
            return;
        }
        if !dead {
            if let Some(space) = space {
                self.spaces.join(space);
            }
            self.tasks.insert(child, Task { space, tells_end, ..Task::default() });
        }
        if seen {
            let_go(ptrace::cont(child, 0));
        }
        let_go(ptrace::cont(tid, 0));
    }

    /// Parent and child of a fork are both stopped.
    fn born(&mut self, child: i32) {
        let Some(task) = self.tasks.get_mut(&child) else { return };
        let (Some(birth), Some(space)) = (task.birth.take(), task.space) else { return };
        let (attached, stop) = if birth.attach {
            let (made, stop) = self.make_helper(child, space, At::Stop);
            (Some(made), stop)
        } else {
            (None, Ok(Event::Stop { signal: libc::SIGTRAP }))
        };
        let (attached, failure) = match attached {
            Some(Ok(attached)) => (Some(attached), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        self.memory.forked(birth.parent_space, Some((space, child, attached)));
        if let Some(error) = failure {
            self.refuse(space, error.to_string());
        }
        // If the memory side cannot do without, this ends the child before it runs.
        self.serve_requests();
        let_go(ptrace::cont(birth.parent, 0));
        self.resume_after(child, stop);
    }

    /// A thread is stopped on request, at birth, or with its whole process.
    pub(super) fn stopped(&mut self, tid: i32, event: Event) {
        let Some(task) = self.tasks.get(&tid) else { return };
        if task.birth.is_some() {
            return self.born(tid);
        }
        if let Some(space) = task.space
            && self.wanted(space)
        {
            return self.attach(tid, space, At::Stop);
        }
        let_go(inject::soften(tid));
        self.resume_after(tid, Ok(event));
    }

    fn wanted(&self, space: SpaceId) -> bool {
        self.spaces.attachable(space) && self.memory.wants(space)
    }

    /// Attaches a space by one of its threads and lets that go on.
    fn attach(&mut self, tid: i32, space: SpaceId, at: At) {
        let (made, stop) = self.make_helper(tid, space, at);
        match made {
            Ok(attached) => self.memory.attach(space, attached),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => self.refuse(space, error.to_string()),
        }
        match stop {
            // Nothing was done to the thread; its call is still to be told.
            Err(_) if at == At::Seccomp && !self.is_queued(tid) => self.before(tid),
            stop => self.resume_after(tid, stop),
        }
    }

    /// Makes a helper for a space in one of its threads. Also returns how the thread is stopped
    /// now; an error if it is as before.
    fn make_helper(
        &mut self,
        tid: i32,
        space: SpaceId,
        at: At,
    ) -> (io::Result<Attached>, io::Result<Event>) {
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let mut injection = match Injection::begin(tid, at, None, &mut self.queue) {
            Ok(injection) => injection,
            Err(error) => return (Err(error), Err(gone())),
        };
        let made = helper::attach(&mut injection, &self.access);
        let stop = injection.finish();
        let made = made.map(|(helper, attached)| {
            self.helpers.insert(helper.pid, space);
            if let Some(space) = self.spaces.get_mut(space) {
                space.helper = Some(helper);
            }
            self.follow_to_end(tid, space);
            attached
        });
        (made, stop)
    }
}

/// Whether there is such a thread that has not ended; a number may be given anew.
fn lives(tid: i32) -> bool {
    state(tid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// A child that asks not to be traced would run under a filter that nobody answers.
fn follow_children(tid: i32, call: &Syscall, read: calls::Read<'_>) {
    const UNTRACED: u64 = libc::CLONE_UNTRACED as u64;
    let number = call.number as libc::c_long;
    if !matches!(number, libc::SYS_clone | libc::SYS_clone3) {
        return;
    }
    let Some(flags) = calls::flags_of_clone(call, read).filter(|flags| flags & UNTRACED != 0)
    else {
        return;
    };
    if number == libc::SYS_clone3 {
        return let_go(ptrace::poke(tid, call.args[0] as usize, flags & !UNTRACED));
    }
    let_go(ptrace::registers(tid).and_then(|mut registers| {
        registers.set_first(flags & !UNTRACED);
        ptrace::set_registers(tid, &registers)
    }));
}
