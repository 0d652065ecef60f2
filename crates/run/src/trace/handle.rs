//! The tracer as others see it: requests for it, and the signal that makes it look. The lock of the
//! requests is a leaf: nobody waits, or takes another lock, while holding it.

use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use rustix::process::{Signal, pidfd_send_signal};

use super::{Asked, Handle, Requests, Tracer};
use crate::link::{SpaceId, Ticket, Tracing};
use crate::sys::process;

impl Handle {
    pub(super) fn lock(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, request: impl FnOnce(&mut Tracer<'_>) + Send + 'static) {
        self.lock().push(Box::new(request));
    }

    fn take(&self) -> Vec<Asked> {
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

impl Requests {
    fn push(&mut self, request: Asked) {
        self.waiting.push(request);
        if let Some(bell) = &self.bell
            && self.waiting.len() == 1
        {
            // Fails only when the tracer ends, after which nothing more is asked.
            let _ = pidfd_send_signal(bell, Signal::USR1);
        }
    }
}

impl Tracer<'_> {
    pub(super) fn serve_requests(&mut self) {
        self.handle.take().into_iter().for_each(|request| request(self));
    }
}

impl Tracing for Handle {
    fn attach(&self, space: SpaceId) {
        let mut requests = self.lock();
        if requests.asks.ask(space, Instant::now()) {
            requests.push(Box::new(move |tracer| tracer.ask_for(space)));
        }
    }

    fn go_on(&self, ticket: Ticket) {
        self.ask(move |tracer| tracer.go_on(ticket));
    }

    fn visit(&self, thread: i32) {
        self.ask(move |tracer| tracer.visit(thread));
    }

    fn stand(&self, space: SpaceId, turn: u64, still: bool) {
        self.ask(move |tracer| match still {
            true => tracer.stand(space, turn),
            false => tracer.stand_no_more(space),
        });
    }

    fn end_helper(&self, space: SpaceId) {
        self.ask(move |tracer| {
            // Its end is an event, which reports it.
            let known = tracer.spaces.get(space);
            known.and_then(|known| known.helper).into_iter().for_each(|it| process::kill(it.pid));
        });
    }

    fn end_space(&self, space: SpaceId, message: String) {
        self.ask(move |tracer| tracer.end_space(space, &message));
    }

    fn end_victim(&self, space: SpaceId, why: String) {
        self.ask(move |tracer| tracer.end_victim(space, why));
    }

    fn tell(&self) {
        self.ask(|tracer| (tracer.tell)(None));
    }

    fn end(&self, message: String) {
        self.ask(move |tracer| tracer.end(message));
    }

    fn end_rest(&self) {
        self.ask(|tracer| tracer.kill_all());
    }
}
