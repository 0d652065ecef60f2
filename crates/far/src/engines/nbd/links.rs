//! Idle connections to an export, and how many there may be.
//!
//! - R3: a connection is used by one thread at a time. Of a server that does not promise that what
//!   one connection has written another one reads, there is one connection.

use std::sync::Condvar;
use std::time::Instant;

use zfold_store::pool::{Lock, sound};

use super::connection::{Connection, Export, Job};
use crate::engine::EngineError;
use crate::engines::tcp::left;
use crate::place::NbdPlace;

/// The most connections to a server that promises that.
const LINKS_MAX: usize = 16;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Links {
    place: NbdPlace,
    export: Export,
    most: usize,
    state: Lock<State>,
    one_less: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Connection>,
    /// Connections that there are, or are being made.
    open: usize,
}

impl Links {
    /// Returns the connections to `place`, of which one is open.
    pub(super) fn new(place: &NbdPlace, first: Connection, export: Export) -> Self {
        Self {
            place: place.clone(),
            export,
            most: if export.many { LINKS_MAX } else { 1 },
            state: Lock::new(State { idle: vec![first], open: 1 }),
            one_less: Condvar::new(),
        }
    }

    /// Sends requests over a connection and waits for the replies.
    ///
    /// # Errors
    /// What went wrong, and whether something of the requests may have been sent.
    pub(super) fn run(
        &self,
        jobs: &mut [Job<'_>],
        deadline: Instant,
    ) -> Result<(), (EngineError, bool)> {
        left(deadline).ok_or((EngineError::Late, false))?;
        let mut link = self.take(deadline).map_err(|error| (error, false))?;
        let done = link.run(jobs, deadline);
        match &done {
            Ok(()) | Err(EngineError::Refused(_)) => self.state.lock().idle.push(link),
            Err(_) => {
                drop(link);
                // Those that are idle may have gone with it.
                let idle = std::mem::take(&mut self.state.lock().idle);
                self.state.lock().open -= 1 + idle.len();
            }
        }
        self.one_less.notify_all();
        done.map_err(|error| (error, true))
    }

    /// Returns a connection: one that is idle, or a new one if there may be one more.
    fn take(&self, deadline: Instant) -> Result<Connection, EngineError> {
        let mut state = self.state.lock();
        loop {
            while let Some(link) = state.idle.pop() {
                if link.is_open() {
                    return Ok(link);
                }
                state.open -= 1;
            }
            if state.open < self.most {
                break;
            }
            let left = left(deadline).ok_or(EngineError::Late)?;
            let waited = self.one_less.wait_timeout(state, left);
            state = sound(waited).0;
        }
        state.open += 1;
        drop(state);
        let opened = Connection::open(&self.place, deadline).and_then(|(link, export)| {
            if export == self.export {
                return Ok(link);
            }
            let why = "the export is not the one from before: end zfold and start it again";
            Err(EngineError::Refused(why.to_owned()))
        });
        opened.inspect_err(|_| {
            self.state.lock().open -= 1;
            self.one_less.notify_all();
        })
    }
}
