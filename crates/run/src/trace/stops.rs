//! Handles stopped threads: asks the memory side, and lets them continue.

use std::cell::Cell;

use super::areas::{self, Areas};
use super::calls::{self, Aside, Meaning};
use super::filters::follow_children;
use super::inject::At;
use super::task::{Birth, Park, Waits};
use super::{Tracer, let_go, waits};
use crate::link::{Request, SpaceId, Ticket};
use crate::options;
use crate::permission::may_follow_forks;
use crate::sys::ptrace::{self, Event, Syscall, SyscallInfo};
use crate::sys::{proc, process, seccomp};

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
            (_, seccomp::STOP_STRICT) => process::kill(tid),
            (None, seccomp::STOP_CHANGE | seccomp::STOP_FOREIGN) => let_go(ptrace::cont(tid, 0)),
            // A filter of the program's own that asks for a tracer; without one, the call is not
            // made.
            _ => self.skip(tid, libc::ENOSYS),
        }
    }

    fn before_change(&mut self, tid: i32, space: SpaceId, call: &Syscall) {
        if let Some(aside) = Aside::of(call) {
            return self.before_aside(tid, space, aside);
        }
        self.leave_aside(tid);
        if self.answer_mode(tid, call) || self.waits_for_ends(tid, call) {
            return;
        }
        if self.wanted(tid, space) {
            return self.attach(tid, space, At::Seccomp);
        }
        if !self.memory.is_attached(space) {
            return let_go(ptrace::cont(tid, 0));
        }
        let missing = Cell::new(None);
        let read = |from: usize, to: &mut [u8]| {
            ptrace::read(tid, from, to).inspect_err(|_| missing.set(Some(from)))
        };
        let meaning = calls::decode(call, &read);
        if let Some(address) = missing.get()
            && self.fetch(tid, space, address)
        {
            return;
        }
        if follow_children(tid, call, &read) && !std::mem::replace(&mut self.traces_itself, true) {
            (self.tell)(Some(options::Event::TracesItself(tid, proc::name(tid))));
        }
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.fetched = 0;
            // For other calls, the registers still have it after the call.
            task.areas = (call.number == libc::SYS_clone3 as u64)
                .then(|| Some(areas::of(tid, &ptrace::registers(tid).ok()?)))
                .flatten();
        }
        match meaning {
            Meaning::Nothing => let_go(ptrace::cont(tid, 0)),
            Meaning::Before(request @ Request::Open { .. }) => {
                self.set_waits(tid, Waits::Opened);
                self.ask(tid, space, request, Park::IntoCall);
            }
            Meaning::Before(request) => self.ask(tid, space, request, Park::Run),
            Meaning::Map { len, .. } if self.memory.fits(len) => let_go(ptrace::cont(tid, 0)),
            Meaning::Map { len, filled } => {
                // The kernel would fill it before it is closed.
                let flags = call.args[MMAP_FLAGS];
                let replaced =
                    filled && ptrace::replace_argument(tid, MMAP_FLAGS, flags & !POPULATE).is_ok();
                self.enter(tid, Waits::Mapped { len, flags: replaced.then_some(flags) });
            }
            Meaning::Heap => self.enter(tid, Waits::Grown),
            Meaning::Move { from, len } => {
                if self.begin_change(tid, space) {
                    self.set_waits(tid, Waits::Moved { from: from.start, old: from.len(), len });
                    self.ask(tid, space, Request::Level { range: from, len }, Park::IntoCall);
                }
            }
            Meaning::Fork => {
                if self.begin_change(tid, space) {
                    self.before_fork(tid, space);
                }
            }
        }
    }

    /// Brings in a page that a call points to, after which the call is decoded again; `false` after
    /// some tries: the call then fails.
    fn fetch(&mut self, tid: i32, space: SpaceId, address: usize) -> bool {
        const TRIES: u8 = 8;
        let Some(task) = self.tasks.get_mut(&tid) else { return false };
        task.fetched += 1;
        let again = task.fetched <= TRIES;
        if again {
            self.ask(tid, space, Request::Fetch { address }, Park::Again);
        }
        again
    }

    fn before_fork(&mut self, tid: i32, space: SpaceId) {
        // The child needs a descriptor here: better no child than one whose faults get no answer.
        if self.memory.descriptor(space).is_err() {
            self.end_change(tid, space);
            return self.skip(tid, libc::EAGAIN);
        }
        let known = self.tasks.get(&tid).and_then(|task| task.areas);
        let read = || ptrace::registers(tid).ok().map(|registers| areas::of(tid, &registers));
        let Areas { number_at, on_the_way, .. } = known.or_else(read).unwrap_or_default();
        if may_follow_forks() {
            self.set_waits(tid, Waits::Fork(Birth::Told));
            return self.ask(tid, space, Request::Fork { number_at }, Park::IntoCall);
        }
        if let Some(reason) = self.no_helper_for_child(tid) {
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.waits = Waits::Fork(Birth::Alone);
                task.why_alone = reason;
            }
            return self.ask(tid, space, Request::Hold { pages: None }, Park::IntoCall);
        }
        self.set_waits(tid, Waits::Fork(Birth::Held));
        let pages = on_the_way.into_iter().flatten().collect();
        self.ask(tid, space, Request::Hold { pages: Some(pages) }, Park::IntoCall);
    }

    fn set_waits(&mut self, tid: i32, waits: Waits) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.waits = waits;
        }
    }

    /// Lets a thread make its call, and stops it after that.
    fn enter(&mut self, tid: i32, waits: Waits) {
        self.set_waits(tid, waits);
        let_go(ptrace::syscall(tid, 0));
    }

    /// Makes a request to the memory side before the thread continues.
    fn ask(&mut self, tid: i32, space: SpaceId, request: Request, park: Park) {
        let ticket = self.ticket(tid);
        self.hold(tid, ticket, Some(park));
        if self.memory.request(space, request, ticket) {
            self.go_on(ticket);
        }
    }

    /// Holds a thread by a ticket; `park` if it is stopped.
    pub(super) fn hold(&mut self, tid: i32, ticket: Ticket, park: Option<Park>) {
        if let Some(task) = self.tasks.get_mut(&tid).filter(|task| !task.ends) {
            task.held = Some(ticket.turn);
            task.parked = park;
        }
    }

    /// The work that threads were held for is done.
    pub(super) fn go_on(&mut self, ticket: Ticket) {
        let mut parked = Vec::new();
        // Usually one thread, which the ticket names; for a birth, its child as well. A thread that
        // no longer has this ticket has ended, or is held for another reason.
        let named = self.tasks.get(&ticket.thread).filter(|task| task.held == Some(ticket.turn));
        let holders = match named {
            Some(task) => [Some(ticket.thread), task.related].into_iter().flatten().collect(),
            None => self.tasks.keys().copied().collect::<Vec<_>>(),
        };
        for tid in holders {
            if let Some(task) = self.tasks.get_mut(&tid)
                && task.held == Some(ticket.turn)
            {
                task.held = None;
                task.related = None;
                parked.extend(task.parked.take().map(|park| (tid, park)));
            }
        }
        for (tid, park) in parked {
            if park == Park::End {
                self.let_end(tid);
                continue;
            }
            self.stop_to_stand(tid);
            // The change for which others wait is over, unless it is about to begin.
            if !matches!(park, Park::IntoCall | Park::Again)
                && let Some(space) = self.tasks.get(&tid).and_then(|task| task.space)
            {
                self.end_change(tid, space);
            }
            let_go(match park {
                Park::Run => ptrace::cont(tid, 0),
                Park::IntoCall => ptrace::syscall(tid, 0),
                Park::Again => {
                    self.before(tid);
                    Ok(())
                }
                Park::Listen => self.leave_stopped(tid),
                Park::End => Ok(()),
            });
        }
    }

    /// A thread is about to move a mapping or to fork (T5); returns false if it has to wait.
    fn begin_change(&mut self, tid: i32, id: SpaceId) -> bool {
        let Some(space) = self.spaces.get_mut(id) else { return true };
        match space.changing {
            Some(other) if other != tid => {
                space.waiting.push_back(tid);
                false
            }
            _ => {
                space.changing = Some(tid);
                true
            }
        }
    }

    /// It has done so, or has ended.
    pub(super) fn end_change(&mut self, tid: i32, id: SpaceId) {
        let Some(space) = self.spaces.get_mut(id) else { return };
        space.waiting.retain(|waiting| *waiting != tid);
        if space.changing != Some(tid) {
            return;
        }
        space.changing = None;
        // The call of a thread that waited may mean something else by now, or the thread is about
        // to end.
        while let Some(space) = self.spaces.get_mut(id)
            && space.changing.is_none()
            && let Some(next) = space.waiting.pop_front()
        {
            self.before(next);
        }
    }

    /// Calls of the 32-bit interface cannot be followed. A program that makes them is not managed;
    /// in a managed one they fail, as under a kernel without them.
    fn before_foreign(&mut self, tid: i32, space: SpaceId) {
        if self.memory.is_attached(space) {
            return self.skip(tid, libc::ENOSYS);
        }
        self.refuse(space, "it uses the 32-bit system call interface".into());
        let_go(ptrace::cont(tid, 0));
    }

    /// Does not make the call, which fails with `error`.
    pub(super) fn skip(&self, tid: i32, error: i32) {
        let skipped = ptrace::registers(tid).and_then(|mut registers| {
            registers.skip();
            registers.set_result(-i64::from(error));
            ptrace::set_registers(tid, &registers)
        });
        let_go(skipped.and_then(|()| ptrace::cont(tid, 0)));
    }

    /// A thread has returned from a call that was let through with a stop after it.
    pub(super) fn behind(&mut self, tid: i32) {
        let result = match ptrace::syscall_info(tid) {
            Ok(SyscallInfo::Exit(result)) => result,
            Ok(_) => return let_go(ptrace::syscall(tid, 0)),
            Err(_) => return,
        };
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let Some(space) = task.space else { return let_go(ptrace::cont(tid, 0)) };
        let waits = std::mem::take(&mut task.waits);
        // If it was interrupted once more, a stop for that comes next.
        if result != -i64::from(libc::EINTR)
            && let Some(softened) = task.softened.take()
        {
            let_go(softened.returned(tid));
        }
        if let Waits::Mapped { flags: Some(flags), .. } = waits {
            // A thread that is gone needs none.
            let _ = ptrace::replace_argument(tid, MMAP_FLAGS, flags);
        }
        let at = usize::try_from(result).ok();
        match (waits, at) {
            (Waits::Moved { from, old, len }, at) => {
                let to = at.map(|at| at..at + len);
                let moved = Request::Moved { from: from..from + old, to };
                return self.ask(tid, space, moved, Park::Run);
            }
            (Waits::Mapped { len, .. }, Some(at)) => {
                let range = at..at + len;
                return self.ask(tid, space, Request::Mapped { range }, Park::Run);
            }
            (Waits::Grown, Some(end)) => {
                return self.ask(tid, space, Request::Grown { end }, Park::Run);
            }
            (Waits::Opened, _) => return self.ask(tid, space, Request::Opened, Park::Run),
            // It has failed: otherwise its child would have been seen before.
            (Waits::Fork(_), _) => {
                self.memory.unborn(space);
                self.end_change(tid, space);
            }
            (Waits::Nothing, _) => self.end_change(tid, space),
            (Waits::Mapped { .. } | Waits::Grown, None) => {}
        }
        if self.wanted(tid, space) {
            return self.attach(tid, space, At::Behind);
        }
        let_go(ptrace::cont(tid, 0));
    }

    /// A thread is stopped on request, at birth, or with its whole process.
    pub(super) fn stopped(&mut self, tid: i32, event: Event) {
        if tid == self.main && !event.is_group_stop() {
            self.main_goes_on();
        }
        let Some(event) = self.meet(tid, event) else { return };
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        if let Some((parent, parent_space)) = task.birth.take() {
            return self.born(tid, parent, parent_space);
        }
        if task.held.is_some() {
            task.parked = Some(Park::at(event));
            return;
        }
        let space = task.space;
        if let Some(space) = space
            && self.visits.remove(&tid)
        {
            self.memory.visited(space, tid);
        }
        if let Some(space) = space
            && self.wanted(tid, space)
        {
            return self.attach(tid, space, At::Stop);
        }
        if let Some(space) = space
            && self.reap_at_stop(tid, space)
        {
            return;
        }
        self.soften(tid, 0);
        if !self.hold_if_to_stand(tid, event) {
            self.resume_after(tid, Ok(event));
        }
    }

    /// Repairs a call that a stop, or a signal that the program ignores, has interrupted.
    pub(super) fn soften(&mut self, tid: i32, signal: i32) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            // A stop on request clears what was seen before it.
            let seen = if signal == 0 { task.seen.take() } else { None };
            let_go(waits::soften(tid, signal, seen.as_ref(), &mut task.softened));
        }
    }
}

/// Which argument of mmap its flags are.
const MMAP_FLAGS: usize = 3;
const POPULATE: u64 = libc::MAP_POPULATE as u64;
