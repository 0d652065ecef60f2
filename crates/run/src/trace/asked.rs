//! Requests to the tracer: helpers, visits, and the end.

use super::task::Task;
use super::{Tracer, let_go};
use crate::link::SpaceId;
use crate::options;
use crate::sys::{proc, process};

impl Tracer<'_> {
    /// Stops a thread for a moment, and reports that; a held one is stopped.
    pub(super) fn visit(&mut self, thread: i32) {
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

    /// Ends the processes that have a space, and reports why.
    pub(super) fn end_space(&mut self, space: SpaceId, message: &str) {
        if let Some(known) = self.spaces.get_mut(space) {
            known.refused = true;
            self.memory.cannot_attach(space, format!("zfold ends it: {message}"));
            (self.tell)(None);
        }
        for (&tid, _) in self.tasks.iter().filter(|(_, task)| task.space == Some(space)) {
            process::kill(tid);
        }
    }

    /// Ends the processes that have a space, for want of memory; all, if the program itself is one
    /// of them. One that was just made with the same memory follows ([`Space::victim`]).
    ///
    /// [`Space::victim`]: super::task::Space::victim
    pub(super) fn end_victim(&mut self, space: SpaceId, why: String) {
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
            let process = process::process_of(first);
            (self.tell)(Some(options::Event::NoRoom(process, proc::name(process), why)));
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
        if let Some((tid, task)) = chosen.and_then(|tid| Some((tid, self.tasks.get_mut(&tid)?))) {
            let_go(task.interrupt(tid));
        }
    }
}
