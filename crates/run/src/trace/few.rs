//! Helpers where few more processes are allowed: the program needs them more.
//!
//! While few are left ([`Pids`](crate::sys::pids::Pids)), no helper is made, and for each process
//! or thread that the program makes, one helper ends: its space keeps its closed memory, whose
//! faults are answered, and no page leaves. The place of a helper is free when its parent has
//! reaped it, for which one of its threads is asked to stop. The space gets another helper when
//! there is room again.

use std::time::{Duration, Instant};

use super::Tracer;
use super::inject::At;
use crate::link::SpaceId;
use crate::sys::process;

/// How long a space whose helper has ended for that gets no other.
const REST: Duration = Duration::from_millis(200);

impl Tracer<'_> {
    /// Returns whether a space must do without a helper at present; reports it once.
    pub(super) fn does_without(&mut self, space: SpaceId) -> bool {
        if !self.pids.are_few() {
            return false;
        }
        if !std::mem::replace(&mut self.told_few, true) {
            let reason = "few more processes are allowed (pids.max), so that it has no helper";
            self.memory.does_without(space, reason.to_owned());
            (self.tell)(None);
        }
        true
    }

    /// The program has made a process or a thread: ends a helper if few more are allowed.
    pub(super) fn make_way(&mut self) {
        if self.helpers.is_empty() || !self.pids.are_few() {
            return;
        }
        let may_end =
            |space: &SpaceId| self.spaces.get(*space).is_some_and(|known| known.changing.is_none());
        let Some(&space) = self.helpers.values().find(|&space| may_end(space)) else { return };
        let Some(known) = self.spaces.get_mut(space) else { return };
        known.rests = Some(Instant::now() + REST);
        let Some(helper) = known.helper else { return };
        self.does_without(space);
        self.step_aside(space, helper);
        // To be reaped at that stop.
        self.stop_one(space);
    }

    /// A thread is stopped on request: reaps the helpers of its process that have ended, after
    /// which it continues. Returns whether there were any.
    pub(super) fn reap_at_stop(&mut self, tid: i32, space: SpaceId) -> bool {
        if self.spaces.get(space).is_none_or(|known| known.ended.is_empty()) {
            return false;
        }
        let ended = self.ended_of(space, process::process_of(tid));
        if ended.is_empty() {
            return false;
        }
        self.soften(tid, 0);
        self.forget(tid, At::Stop, &ended);
        true
    }
}
