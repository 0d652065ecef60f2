//! Requests to the tracer: helpers, visits, pauses, and the end.

use super::handle::Asked;
use super::task::{Park, Task};
use super::{News, Tracer, let_go};
use crate::link::SpaceId;
use crate::sys::ptrace::{self, Event};
use crate::sys::{proc, process};

impl Tracer<'_> {
    pub(super) fn serve_requests(&mut self) {
        for request in self.handle.take() {
            match request {
                Asked::Attach(space) => self.ask_for(space),
                Asked::GoOn(ticket) => self.go_on(ticket),
                Asked::Visit(thread) => {
                    // A held thread is stopped.
                    match self.tasks.get_mut(&thread) {
                        Some(Task { space: Some(space), parked: Some(_), .. }) => {
                            self.memory.visited(*space, thread);
                        }
                        Some(task) => {
                            self.visits.insert(thread);
                            let_go(task.interrupt(thread));
                        }
                        None => {}
                    }
                }
                Asked::Pause(true) => self.pause(),
                Asked::Pause(false) => {
                    // From here on no thread is asked to stop any longer.
                    let held = self.paused.take().unwrap_or_default();
                    held.into_iter().for_each(|ticket| self.go_on(ticket));
                }
                Asked::Stand(space, turn, true) => self.stand(space, turn),
                Asked::Stand(space, _, false) => self.stand_no_more(space),
                Asked::EndHelper(space) => {
                    // Its end is an event, which reports it.
                    if let Some(helper) = self.spaces.get_mut(space).and_then(|known| known.helper)
                    {
                        process::kill(helper.pid);
                    }
                }
                Asked::EndSpace(space, message) => self.end_space(space, &message),
                Asked::EndVictim(space, why) => self.end_victim(space, why),
                Asked::Tell => (self.tell)(News::Refused),
                Asked::End(message) => self.end(message),
                Asked::EndRest => self.kill_all(),
            }
        }
    }

    /// Ends the processes that have a space, and reports why.
    pub(super) fn end_space(&mut self, space: SpaceId, message: &str) {
        if let Some(known) = self.spaces.get_mut(space) {
            known.refused = true;
            self.memory.cannot_attach(space, format!("zfold ends it: {message}"));
            (self.tell)(News::Refused);
        }
        for (&tid, _) in self.tasks.iter().filter(|(_, task)| task.space == Some(space)) {
            process::kill(tid);
        }
    }

    /// Ends the processes that have a space, for want of memory; all, if the program itself is one
    /// of them. One that was just made with the same memory follows ([`Space::victim`]).
    ///
    /// [`Space::victim`]: super::task::Space::victim
    fn end_victim(&mut self, space: SpaceId, why: String) {
        let here = self.tasks.iter().filter(|(_, task)| task.space == Some(space));
        let threads: Vec<i32> = here.map(|(&tid, _)| tid).collect();
        if threads.contains(&self.main) {
            return self.end(why);
        }
        // Otherwise it has just ended.
        if let Some(&first) = threads.first()
            && let Some(known) = self.spaces.get_mut(space)
        {
            known.victim = true;
            (self.tell)(News::NoRoom(process::process_of(first), why));
            threads.into_iter().for_each(process::kill);
        }
    }

    /// Stops a thread of a space: preferably one that runs, since it is in no call that could
    /// notice; never one whose sleep this does not interrupt, such as the parent of a vfork.
    pub(super) fn ask_for(&mut self, space: SpaceId) {
        if self.spaces.attachable(space) && !self.pids.are_few() {
            self.stop_one(space);
        }
    }

    /// The same, whatever it is for.
    pub(super) fn stop_one(&mut self, space: SpaceId) {
        const LOOKED_AT: usize = 16;
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
        // A call in a frozen thread would block the tracer.
        if chosen.is_some_and(proc::is_frozen) {
            return;
        }
        match chosen.and_then(|tid| Some((tid, self.tasks.get_mut(&tid)?))) {
            Some((tid, task)) => let_go(task.interrupt(tid)),
            None => self.stop_anew(space),
        }
    }

    /// Makes a thread that a pause holds stop once more, which it does at once.
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
            self.tasks.iter_mut().for_each(|(&tid, task)| let_go(task.interrupt(tid)));
        }
    }

    /// Called before a thread continues: while the program is paused, it stops once more (T6).
    pub(super) fn stop_if_paused(&self, tid: i32) {
        if self.paused.is_some() || self.is_to_stand(tid) {
            let_go(ptrace::interrupt(tid));
        }
    }

    /// Holds a stopped thread if the program is paused; returns whether it does.
    pub(super) fn hold_if_paused(&mut self, tid: i32, stop: Event) -> bool {
        if self.hold_if_to_stand(tid, stop) {
            return true;
        }
        if self.paused.is_none() {
            return false;
        }
        let ticket = self.ticket(tid);
        self.hold(tid, ticket, Some(Park::at(stop)));
        self.paused.get_or_insert_default().push(ticket);
        true
    }
}
