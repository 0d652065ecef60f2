//! Spaces whose threads are all held for a moment: state that only they can change, such as the
//! protection of a mapping, stays as it is meanwhile. None of them is inside a call (T6).

use std::collections::HashSet;

use super::task::{Park, Still, Task};
use super::{Tracer, let_go};
use crate::link::{SpaceId, Ticket};
use crate::sys::ptrace::{self, Event};

impl Tracer<'_> {
    /// Stops all threads of a space, and reports when all are held.
    pub(super) fn stand(&mut self, space: SpaceId, turn: u64) {
        self.stand_no_more(space);
        let Some(known) = self.spaces.get_mut(space) else { return };
        known.still = Some(Still { turn, held: HashSet::new() });
        let here =
            self.tasks.iter_mut().filter(|(_, task)| task.space == Some(space) && !task.ends);
        here.for_each(|(&tid, task)| let_go(task.interrupt(tid)));
    }

    /// Lets them continue.
    pub(super) fn stand_no_more(&mut self, space: SpaceId) {
        // From here on no thread is asked to stop any longer.
        let still = self.spaces.get_mut(space).and_then(|known| known.still.take());
        let held = still.into_iter().flat_map(|still| still.held);
        held.for_each(|ticket| self.go_on(ticket));
    }

    /// Called before a thread continues: if it is to stand still, it stops once more (T6).
    pub(super) fn stop_to_stand(&self, tid: i32) {
        if self.is_to_stand(tid) {
            let_go(ptrace::interrupt(tid));
        }
    }

    /// Returns whether a thread is to stop once more.
    fn is_to_stand(&self, tid: i32) -> bool {
        let space = self.tasks.get(&tid).and_then(|task| task.space);
        space.and_then(|space| self.spaces.get(space)).is_some_and(|known| known.still.is_some())
    }

    /// Holds a stopped thread if its space is to stand still; returns whether it does.
    pub(super) fn hold_if_to_stand(&mut self, tid: i32, stop: Event) -> bool {
        if !self.is_to_stand(tid) {
            return false;
        }
        let ticket = self.ticket(tid);
        self.hold(tid, ticket, Some(Park::at(stop)));
        let space = self.tasks.get(&tid).and_then(|task| task.space);
        let known = space.and_then(|space| self.spaces.get_mut(space));
        let Some((space, still)) = space.zip(known.and_then(|known| known.still.as_mut())) else {
            return false;
        };
        still.held.insert(ticket);
        self.tell_if_it_stands(space);
        true
    }

    /// Reports that all threads of a space are held, if it is to stand still and they are: called
    /// after one was held, is about to end, or has ended.
    pub(super) fn tell_if_it_stands(&self, space: SpaceId) {
        let Some(known) = self.spaces.get(space) else { return };
        let Some(still) = &known.still else { return };
        // Usually some are missing, and checking all threads each time is avoided.
        if still.held.len() + known.ending < known.tasks {
            return;
        }
        let stands = |(&thread, task): (&i32, &Task)| {
            let held = task.held.is_some_and(|turn| still.held.contains(&Ticket { thread, turn }));
            // A thread on its way to its end returns to no call.
            task.space != Some(space) || held || task.ends
        };
        if self.tasks.iter().all(stands) {
            self.memory.stands(space, still.turn);
        }
    }
}
