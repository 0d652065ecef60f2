//! Children: which space each gets, in whatever order its events and its parent's come (T2), and
//! what happens to those whose parents never report them.

use super::areas::{self, Areas};
use super::filters::FILTERS;
use super::inject::At;
use super::task::{Birth, Park, Task, Waits};
use super::{Tracer, helper, let_go};
use crate::link::SpaceId;
use crate::sys::proc::{self, Status};
use crate::sys::process;
use crate::sys::ptrace::{self, Event};

impl Tracer<'_> {
    /// A thread has made a child, which may have been seen already (T2).
    pub(super) fn child(&mut self, tid: i32) {
        // Otherwise it is gone.
        if let Ok(child) = ptrace::message(tid) {
            self.child_of(tid, child);
            self.make_way();
        }
    }

    /// The same, of this child.
    pub(super) fn child_of(&mut self, tid: i32, child: i32) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let (parent_space, filtered) = (task.space, task.filtered);
        let waits = std::mem::take(&mut task.waits);
        // A fork stops once more, after its call.
        let park = if waits == Waits::Nothing { Park::Run } else { Park::IntoCall };
        let resume = move || {
            let_go(match park {
                Park::Run => ptrace::cont(tid, 0),
                _ => ptrace::syscall(tid, 0),
            });
        };
        let dead = self.stillborn.remove(&child) && !proc::lives(child);
        let seen = self.unclaimed.remove(&child);
        let Some(parent_space) = parent_space else {
            self.child_of_unknown(child, dead, seen);
            return resume();
        };
        let known = self.tasks.get_mut(&tid).and_then(|task| task.areas.take());
        let areas = ptrace::registers(tid).ok().map(|registers| match known {
            Some(known) if registers.number() == Some(libc::SYS_clone3 as u64) => known,
            _ => areas::of(tid, &registers),
        });
        let areas = areas.unwrap_or_default();
        let shares = waits == Waits::Nothing && is_same(tid, child, &areas, dead);
        // A thread gets the filter together with all others of its process; a fork that was stopped
        // was made under the filter.
        let is_thread = shares && areas.flags & libc::CLONE_THREAD as u64 != 0;
        let is_known = is_thread || waits != Waits::Nothing;
        let filtered = filtered && (is_known || is_filtered(tid, child));
        let [held, alone] = [Birth::Held, Birth::Alone].map(|birth| waits == Waits::Fork(birth));
        if alone {
            // It has everything.
            self.memory.unborn(parent_space);
        }
        if dead {
            if held {
                self.memory.unborn(parent_space);
            } else if !shares && !alone {
                // Its space is gone, but may be waiting to be claimed.
                let space = self.memory.forked(parent_space, child);
                self.memory.gone(space);
            }
            return resume();
        }
        let space = match shares {
            true => self.join(parent_space, child),
            false => self.space_of_fork(parent_space, child, filtered && !alone),
        };
        let tid_at = areas.tid_at;
        self.tasks.insert(child, Task { space: Some(space), tid_at, filtered, ..Task::default() });
        self.stop_to_stand(child);
        if alone && let Some(parent) = self.tasks.get_mut(&tid) {
            let reason = std::mem::take(&mut parent.why_alone);
            self.refuse(space, reason);
        }
        if held {
            // Parent and child wait for each other.
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.parked = Some(park);
            }
            if seen {
                return self.born(child, tid, parent_space);
            }
            if let Some(task) = self.tasks.get_mut(&child) {
                task.birth = Some((tid, parent_space));
            }
            return;
        }
        self.memory.joined(space, child);
        if seen {
            let_go(ptrace::cont(child, 0));
        }
        resume();
    }

    /// Returns the space of a child that shares that of its parent, and its end (victim/V3).
    fn join(&mut self, space: SpaceId, child: i32) -> SpaceId {
        self.spaces.join(space);
        if self.spaces.get(space).is_some_and(|space| space.victim) {
            process::kill(child);
        }
        space
    }

    /// Returns the space of a child that has memory of its own. A child that was copied before its
    /// parent was filtered does not inherit: none of its pages have left.
    fn space_of_fork(&mut self, parent: SpaceId, child: i32, inherits: bool) -> SpaceId {
        let space = if inherits || !self.memory.is_attached(parent) {
            self.memory.forked(parent, child)
        } else {
            self.memory.exec(child)
        };
        self.spaces.add(space);
        space
    }

    /// A thread without a known space has made a child.
    fn child_of_unknown(&mut self, child: i32, dead: bool, seen: bool) {
        if !dead {
            self.tasks.insert(child, Task::default());
        }
        if seen {
            let_go(ptrace::cont(child, 0));
        }
    }

    /// Parent and child of a held fork are both stopped.
    pub(super) fn born(&mut self, child: i32, parent: i32, parent_space: SpaceId) {
        let Some(space) = self.tasks.get(&child).and_then(|task| task.space) else { return };
        if self.spaces.get_mut(parent_space).is_none() {
            // What its memory should hold is no longer known.
            return process::kill(child);
        }
        let (made, stop) = self.make_helper(child, space, At::Stop);
        let is_there = stop.is_ok();
        let park = stop.map_or(Park::Run, Park::at);
        let ticket = self.ticket(parent);
        let parked = self.tasks.get(&parent).and_then(|task| task.parked).unwrap_or(Park::Run);
        self.hold(parent, ticket, Some(parked));
        self.hold(child, ticket, Some(park));
        if let Some(task) = self.tasks.get_mut(&parent) {
            task.related = Some(child);
        }
        match made {
            Ok(attached) => self.memory.born(parent_space, space, attached, ticket),
            Err(error) => {
                if is_there || error.raw_os_error() != Some(libc::ESRCH) {
                    // Its pages cannot be given to it.
                    self.end_space(space, &format!("a child of fork cannot be managed: {error}"));
                }
                self.memory.unborn(parent_space);
                self.go_on(ticket);
            }
        }
    }

    /// The child of a held fork has ended before it stopped for the first time.
    pub(super) fn never_born(&mut self, parent: i32, parent_space: SpaceId) {
        self.memory.unborn(parent_space);
        let parked = self.tasks.get_mut(&parent).and_then(|task| task.parked.take());
        if parked.is_some() {
            self.stop_to_stand(parent);
            // The change ends after its call.
            let_go(ptrace::syscall(parent, 0));
        }
    }

    /// A child whose parent has not reported it (T2), or a thread that exec gave another number.
    pub(super) fn unknown_event(&mut self, tid: i32, event: Event) {
        match event {
            Event::Ended(_) => {
                // A helper whose parent has ended is this process's child.
                if !self.buried.remove(&tid) {
                    self.unclaimed.remove(&tid);
                    self.stillborn.insert(tid);
                }
            }
            Event::Stop { .. } => {
                self.stillborn.remove(&tid);
                self.unclaimed.insert(tid);
                self.adopt();
            }
            Event::Exec => self.exec(tid),
            Event::Signal(signal) => let_go(ptrace::cont(tid, signal)),
            _ => let_go(ptrace::cont(tid, 0)),
        }
    }

    /// A parent that is killed in the middle of a fork never reports its child, which continues
    /// nevertheless. If the space is attached, what the child's memory should hold is unknown: the
    /// child ends with its parent.
    pub(super) fn adopt(&mut self) {
        let own = std::process::id().cast_signed();
        let orphans: Vec<_> = self
            .unclaimed
            .iter()
            .copied()
            .filter(|&tid| {
                relative(tid).is_none_or(|pid| pid == own || !self.tasks.contains_key(&pid))
            })
            .collect();
        for tid in orphans {
            self.unclaimed.remove(&tid);
            let is_lost = self.lost_forks > 0;
            self.lost_forks -= usize::from(is_lost);
            // A child of vfork has its parent's helper.
            if is_lost || helper::is_ours(tid) {
                process::kill(tid);
                // Its end is reported, and belongs to no task.
                continue;
            }
            let space = self.memory.exec(tid);
            self.spaces.add(space);
            self.tasks.insert(tid, Task { space: Some(space), ..Task::default() });
            self.stop_to_stand(tid);
            let_go(ptrace::cont(tid, 0));
        }
    }
}

/// Whether a child of a filtered thread is filtered: it is not if it was copied just before its
/// parent was.
fn is_filtered(parent: i32, child: i32) -> bool {
    let filters = |tid| Status::of(tid).ok()?.number::<usize>(FILTERS);
    filters(parent).zip(filters(child)).is_none_or(|(parent, child)| child >= parent)
}

/// Whether a child shares the memory of its parent; a `dead` child no longer has any.
fn is_same(parent: i32, child: i32, areas: &Areas, dead: bool) -> bool {
    let flags = areas.flags & libc::CLONE_VM as u64 != 0;
    ptrace::share_memory(parent, child).filter(|_| !dead).unwrap_or(flags)
}

/// The process of a thread, or the parent of a process; `None` if it is gone.
fn relative(tid: i32) -> Option<i32> {
    process::relatives(tid).map(|of| if of.process == tid { of.parent } else { of.process })
}
