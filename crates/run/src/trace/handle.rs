//! The tracer as others see it: requests for it, and the signal that makes it look. The lock of the
//! requests is a leaf: nobody waits, or takes another lock, while holding it.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::process::{Signal, pidfd_send_signal};

use crate::link::{SpaceId, Ticket, Tracing};

/// A request to the tracer.
#[derive(Debug)]
pub(super) enum Asked {
    Attach(SpaceId),
    GoOn(Ticket),
    Visit(i32),
    Pause(bool),
    Stand(SpaceId, u64, bool),
    EndHelper(SpaceId),
    EndSpace(SpaceId, String),
    EndVictim(SpaceId, String),
    Tell,
    End(String),
    EndRest,
}

/// Requests that the tracer has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Requests {
    waiting: Vec<Asked>,
    /// Of these, the spaces that are to be attached: each once, however often that is asked while
    /// the tracer is busy.
    attach: BTreeSet<SpaceId>,
    pub(super) bell: Option<OwnedFd>,
}

/// The tracer as others see it; made before it starts.
#[derive(Debug, Default)]
pub(crate) struct Handle {
    requests: Mutex<Requests>,
}

impl Handle {
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, request: Asked) {
        let mut requests = self.lock();
        if let Asked::Attach(space) = request
            && !requests.attach.insert(space)
        {
            return;
        }
        requests.waiting.push(request);
        if let Some(bell) = &requests.bell
            && requests.waiting.len() == 1
        {
            // Fails only when the tracer ends, after which nothing more is asked.
            let _ = pidfd_send_signal(bell, Signal::USR1);
        }
    }

    pub(super) fn take(&self) -> Vec<Asked> {
        let mut requests = self.lock();
        requests.attach.clear();
        std::mem::take(&mut requests.waiting)
    }
}

impl Tracing for Handle {
    fn attach(&self, space: SpaceId) {
        self.ask(Asked::Attach(space));
    }

    fn go_on(&self, ticket: Ticket) {
        self.ask(Asked::GoOn(ticket));
    }

    fn visit(&self, thread: i32) {
        self.ask(Asked::Visit(thread));
    }

    fn pause(&self, paused: bool) {
        self.ask(Asked::Pause(paused));
    }

    fn stand(&self, space: SpaceId, turn: u64, still: bool) {
        self.ask(Asked::Stand(space, turn, still));
    }

    fn end_helper(&self, space: SpaceId) {
        self.ask(Asked::EndHelper(space));
    }

    fn end_space(&self, space: SpaceId, message: String) {
        self.ask(Asked::EndSpace(space, message));
    }

    fn end_victim(&self, space: SpaceId, why: String) {
        self.ask(Asked::EndVictim(space, why));
    }

    fn tell(&self) {
        self.ask(Asked::Tell);
    }

    fn end(&self, message: String) {
        self.ask(Asked::End(message));
    }

    fn end_rest(&self) {
        self.ask(Asked::EndRest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_tracer_finds_each_space_once() {
        let handle = Handle::default();
        for _ in 0..3 {
            (0..4).for_each(|id| handle.attach(SpaceId(id)));
            handle.visit(1);
        }
        assert_eq!(handle.take().len(), 4 + 3);
        assert!(handle.take().is_empty());
        handle.attach(SpaceId(0));
        assert!(matches!(handle.take()[..], [Asked::Attach(SpaceId(0))]));
    }
}
