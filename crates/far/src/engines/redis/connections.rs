//! Idle connections, by server.
//!
//! - R3: a link is used by one thread at a time: it is in the pool or with its user.

use std::collections::HashMap;
use std::time::Instant;

use redis::{Cmd, Value};
use zfold_store::pool::Lock;

use super::connection::{Access, Connection};
use super::trouble::Trouble;
use crate::place::Address;

/// The most idle connections that are kept to one server.
const IDLE_MAX: usize = 16;

/// Makes connections and keeps them for the next user.
#[derive(Debug)]
pub(super) struct Connections {
    access: Access,
    idle: Lock<HashMap<Address, Vec<Connection>>>,
}

impl Connections {
    pub(super) fn new(access: Access) -> Self {
        Self { access, idle: Lock::default() }
    }

    /// Returns a connection to `address`, an idle one or a new one.
    fn take(&self, address: &Address, deadline: Instant) -> Result<Connection, Trouble> {
        loop {
            let idle = self.idle.lock().get_mut(address).and_then(Vec::pop);
            match idle {
                Some(link) if link.is_open() => return Ok(link),
                Some(_) => {}
                None => return Connection::open(address, &self.access, deadline),
            }
        }
    }

    /// Takes a connection back on which nothing is under way.
    fn give(&self, address: &Address, link: Connection) {
        let mut idle = self.idle.lock();
        let links = idle.entry(address.clone()).or_default();
        if links.len() < IDLE_MAX {
            links.push(link);
        }
    }

    /// Closes the idle connections to a server to which one was lost.
    fn forget(&self, address: &Address) {
        let forgotten = self.idle.lock().remove(address);
        // Closed without the lock.
        drop(forgotten);
    }

    /// Sends commands to a server at once; returns the reply to the last one, or the first trouble.
    pub(super) fn call(
        &self,
        address: &Address,
        commands: &[Cmd],
        deadline: Instant,
    ) -> Result<Value, Trouble> {
        let mut packed = Vec::new();
        commands.iter().for_each(|command| command.write_packed_command(&mut packed));
        let mut link = self.take(address, deadline)?;
        link.send(&packed, deadline).inspect_err(|_| self.forget(address))?;
        let mut done: Option<Result<Value, Trouble>> = None;
        for _ in commands {
            match link.receive(deadline) {
                Err(trouble) if !trouble.spares_link() => {
                    if !trouble.spares_others() {
                        self.forget(address);
                    }
                    return Err(trouble);
                }
                reply => {
                    done = Some(match done {
                        Some(done) => done.and(reply),
                        None => reply,
                    })
                }
            }
        }
        self.give(address, link);
        done.expect("there is a command")
    }
}
