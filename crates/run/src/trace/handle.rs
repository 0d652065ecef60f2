//! The tracer as others see it: requests for it, and the signal that makes it look. The lock of the
//! requests is a leaf: nobody waits, or takes another lock, while holding it.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rustix::process::{Signal, pidfd_send_signal};

use super::asks::Asks;
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
    /// The spaces that are to be attached.
    asks: Asks,
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
            && !requests.asks.ask(space, Instant::now())
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
        if !requests.waiting.is_empty() {
            requests.asks.taken(Instant::now());
        }
        std::mem::take(&mut requests.waiting)
    }

    /// A space was attached.
    pub(super) fn attached(&self, space: SpaceId) {
        self.lock().asks.forget(space);
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
