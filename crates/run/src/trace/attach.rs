//! When to attach a space, and by which of its threads.

use std::io;
use std::time::{Duration, Instant};

use super::events::gone;
use super::filters::{self, suspend_filters};
use super::helper;
use super::inject::{At, Injection};
use super::steps::Descriptor;
use super::task::Park;
use super::{Tracer, let_go};
use crate::link::{Attached, SpaceId};
use crate::sys::ptrace::{self, Event};
use crate::sys::urgency::make_urgent;
use crate::sys::{proc, process};

/// How long a space may be shared with a process that is not filtered before it is given up.
const SHARED_MAX: Duration = Duration::from_secs(10);

/// Descriptors that are left for everything else once a space has its own.
const SPARE: usize = 16;
/// The same with those of a child; a fork is begun only if so many are left.
const SPARE_AND_OWN: usize = SPARE + 8;

impl Tracer<'_> {
    /// Returns why a child of this thread could have no helper; `None` if it could.
    pub(super) fn no_helper_for_child(&self, tid: i32) -> Option<String> {
        let filtered = self.tasks.get(&tid).is_some_and(|task| task.filtered);
        filters::no_helper(tid, filtered, ptrace::FOLLOW)
            .or_else(|| process::may_take_from(tid).err())
            .or_else(|| process::descriptors_left(SPARE_AND_OWN).err())
            .map(|why| why.to_string())
    }

    /// Returns whether a space is to be attached by this thread of it, which is stopped.
    pub(super) fn wanted(&mut self, tid: i32, space: SpaceId) -> bool {
        let wants =
            self.spaces.attachable(space) && self.memory.wants(space) && !self.does_without(space);
        let Some(known) = self.spaces.get_mut(space) else { return false };
        let before = known.shared.take().filter(|_| wants);
        // If its sharers cannot be found out, this is tried again.
        if !wants || known.tasks == 1 {
            return wants;
        }
        let sharer = self.sharer(tid, space, before.map(|(sharer, _)| sharer));
        let Ok(Some(sharer)) = sharer else { return matches!(sharer, Ok(None)) };
        // In a program that starts many processes, a sharer that leaves soon is followed by others.
        let since = before.filter(|(same, _)| *same == sharer).map_or_else(Instant::now, |b| b.1);
        if let Some(known) = self.spaces.get_mut(space) {
            known.shared = Some((sharer, since));
        }
        if since.elapsed() > SHARED_MAX {
            self.refuse(space, "it shares its memory with another process".into());
        }
        false
    }

    /// Returns a thread of a process that is not filtered and has the space, too (T8), the same as
    /// `before` if that still has it: usually a child of vfork, which leaves it soon.
    ///
    /// # Errors
    /// The threads of the process of `tid` cannot be listed.
    fn sharer(&self, tid: i32, space: SpaceId, before: Option<i32>) -> io::Result<Option<i32>> {
        let own = proc::threads(tid)?;
        let is_other = |&other: &i32| {
            let task = self.tasks.get(&other);
            let here = task.is_some_and(|task| task.space == Some(space) && !task.filtered);
            here && !own.contains(&other) && proc::lives(other)
        };
        Ok(before.filter(is_other).or_else(|| self.tasks.keys().copied().find(is_other)))
    }

    /// Attaches a space by one of its threads, which continues when the memory side lets it.
    pub(super) fn attach(&mut self, tid: i32, space: SpaceId, at: At) {
        let (made, stop) = self.make_helper(tid, space, at);
        let ticket = self.ticket(tid);
        match made {
            Ok(attached) => {
                // An error means that the thread has ended, or is about to.
                if let Ok(event) = stop {
                    self.hold(tid, ticket, Some(Park::at(event)));
                } else if !self.is_queued(tid) {
                    let_go(ptrace::cont(tid, 0));
                }
                self.handle.attached(space);
                return self.memory.attach(space, attached, ticket);
            }
            // If the thread exists, it would fail again at its next stop, unless the helper was
            // killed.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                if stop.is_ok() {
                    self.helper_ended(space);
                }
            }
            Err(error) => self.refuse(space, error.to_string()),
        }
        match stop {
            // Nothing was done to the thread; its call is still to be reported.
            Err(_) if at == At::Seccomp && !self.is_queued(tid) => self.before(tid),
            stop => self.resume_after(tid, stop),
        }
    }

    /// Makes a helper for a space in one of its threads. Also returns how the thread is stopped
    /// now; an error if it is as before.
    pub(super) fn make_helper(
        &mut self,
        tid: i32,
        space: SpaceId,
        at: At,
    ) -> (io::Result<Attached>, io::Result<Event>) {
        self.try_helper(tid, space, at).unwrap_or_else(|error| (Err(error), Err(gone())))
    }

    /// Does that; an error means that nothing was done to the thread.
    fn try_helper(
        &mut self,
        tid: i32,
        space: SpaceId,
        at: At,
    ) -> io::Result<(io::Result<Attached>, io::Result<Event>)> {
        process::descriptors_left(SPARE)?;
        if proc::begins_pid_namespace(tid) {
            let reason = "it has made a PID namespace, in which a helper would be process 1";
            return Err(io::Error::other(reason));
        }
        let filtered = self.tasks.get(&tid).is_some_and(|task| task.filtered);
        let descriptor = self.memory.descriptor(space)?;
        let unfiltered = suspend_filters(tid, filtered)?;
        if at == At::Stop {
            self.soften(tid, 0);
        }
        let descriptor = descriptor.map_or(Descriptor::Open(&self.access), Descriptor::Given);
        let begun = Injection::begin(tid, at, None, &mut self.queue);
        let mut injection = begun.inspect_err(|_| {
            if unfiltered {
                // A thread that has ended needs none.
                let _ = ptrace::set_options(tid, ptrace::FOLLOW);
            }
        })?;
        let process = process::process_of(tid);
        let ended = match self.spaces.get_mut(space) {
            Some(known) => known.ended.extract_if(.., |helper| helper.parent == process).collect(),
            None => Vec::new(),
        };
        for helper in ended {
            self.buried.remove(&helper.pid);
            // It fails only if the thread has ended.
            let _ = helper::reap(&mut injection, helper.inside);
        }
        let growth = (!filtered).then(|| self.memory.growth());
        let is_alone = self.spaces.get(space).is_some_and(|known| known.tasks == 1);
        let alone = (is_alone && !unfiltered).then(|| filters::filters_of(tid));
        let made = helper::attach(&mut injection, process, descriptor, growth, alone);
        let stop = injection.finish();
        if unfiltered {
            let_go(ptrace::set_options(tid, ptrace::FOLLOW));
        }
        let made = made.map(|(helper, attached)| {
            let attached = Attached { may_protect: !unfiltered, ..attached };
            // Faults wait while the evictor waits for it.
            make_urgent(helper.pid);
            self.helpers.insert(helper.pid, space);
            if let Some(space) = self.spaces.get_mut(space) {
                space.helper = Some(helper);
            }
            self.filtered(tid, space);
            attached
        });
        Ok((made, stop))
    }

    /// All threads of a space, one of which is `tid`, run under the filter.
    fn filtered(&mut self, tid: i32, space: SpaceId) {
        let is_alone = self.spaces.get(space).is_some_and(|known| known.tasks == 1);
        if is_alone && let Some(task) = self.tasks.get_mut(&tid) {
            task.filtered = true;
            return;
        }
        for task in self.tasks.values_mut().filter(|task| task.space == Some(space)) {
            task.filtered = true;
        }
    }
}
