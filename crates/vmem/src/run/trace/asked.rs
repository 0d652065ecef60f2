//! What others ask of the tracer: helpers, visits, the end, and that the program is paused.

use super::handle::Asked;
use super::task::{Park, Task};
use super::{News, Tracer, let_go};
use crate::run::link::SpaceId;
use crate::run::sys::proc;
use crate::run::sys::ptrace::{self, Event};

impl Tracer<'_> {
    pub(super) fn serve_requests(&mut self) {
        for request in self.handle.take() {
            match request {
                Asked::Attach(space) => self.ask_for(space),
                Asked::GoOn(ticket) => self.go_on(ticket),
                Asked::Visit(thread) => {
                    // One that is held is stopped.
                    match self.tasks.get(&thread) {
                        Some(Task { space: Some(space), parked: Some(_), .. }) => {
                            self.memory.visited(*space, thread);
                        }
                        Some(_) => {
                            self.visits.insert(thread);
                            let_go(ptrace::interrupt(thread));
                        }
                        None => {}
                    }
                }
                Asked::Pause(true) => self.pause(),
                Asked::Pause(false) => {
                    // From here on nobody is asked to stop any more.
                    let held = self.paused.take().unwrap_or_default();
                    held.into_iter().for_each(|ticket| self.go_on(ticket));
                }
                Asked::Tell => (self.tell)(News::Refused),
                Asked::End(message) => self.end(message),
            }
        }
    }

    /// Stops a thread of a space: one that runs if there is one, since it is in no call that could
    /// notice, and none that sleeps without being woken by this, as the parent of a vfork.
    pub(super) fn ask_for(&mut self, space: SpaceId) {
        const LOOKED_AT: usize = 16;
        if !self.spaces.attachable(space) {
            return;
        }
        let here = self.tasks.iter().filter(|(_, task)| {
            task.space == Some(space) && task.parked.is_none() && task.held.is_none() && !task.ends
        });
        let chosen =
            here.map(|(&tid, _)| tid).take(LOOKED_AT).min_by_key(|&tid| match proc::state(tid) {
                Some('R') => 0,
                Some('D') | None => 2,
                Some('Z' | 'X') => 3,
                Some(_) => 1,
            });
        match chosen {
            Some(tid) => let_go(ptrace::interrupt(tid)),
            None => self.stop_anew(space),
        }
    }

    /// Has a thread that a pause holds stop once more, which it does at once.
    fn stop_anew(&mut self, space: SpaceId) {
        let Some(paused) = &mut self.paused else { return };
        let held = |thread| self.tasks.get(&thread).is_some_and(|task| task.space == Some(space));
        if let Some(at) = paused.iter().position(|ticket| held(ticket.thread)) {
            let ticket = paused.swap_remove(at);
            self.go_on(ticket);
        }
    }

    fn pause(&mut self) {
        if self.paused.is_none() {
            self.paused = Some(Vec::new());
            self.tasks.keys().for_each(|&tid| let_go(ptrace::interrupt(tid)));
        }
    }

    /// Before a thread is let go: while the program is paused, it stops once more (T6).
    pub(super) fn stop_if_paused(&self, tid: i32) {
        if self.paused.is_some() {
            let_go(ptrace::interrupt(tid));
        }
    }

    /// Holds a stopped thread if the program is paused; returns whether it does.
    pub(super) fn hold_if_paused(&mut self, tid: i32, stop: Event) -> bool {
        if self.paused.is_none() {
            return false;
        }
        let ticket = self.ticket(tid);
        self.hold(tid, ticket, Some(Park::at(stop)));
        self.paused.get_or_insert_default().push(ticket);
        true
    }
}
