//! Requests for copies of objects at their homes: one by one, or many to each server at a time.
//!
//! Redirections of a cluster are followed here. The caller says how long an answer may take, and
//! what happens without one.

use std::collections::HashMap;
use std::time::Instant;

use redis::{Cmd, Value};

use super::connection::Connection;
use super::routes::Key;
use super::trouble::Trouble;
use super::{LEASE, PATIENCE, RedisEngine};
use crate::place::Address;

/// The most redirections of one attempt.
const REDIRECTIONS: usize = 3;

/// The most commands that are sent before a reply is awaited.
pub(super) const BATCH: usize = 256;

/// A request that was sent to a server.
pub(super) struct Sent<'a> {
    key: Key,
    command: &'a dyn Fn(&str) -> Cmd,
    reply: Result<(Address, Connection), Trouble>,
}

impl RedisEngine {
    /// Sends a request for an object's copy at `home` without waiting for the reply.
    pub(super) fn send<'a>(
        &self,
        home: usize,
        number: u64,
        command: &'a dyn Fn(&str) -> Cmd,
        until: Instant,
    ) -> Sent<'a> {
        let key = self.routes.key(&self.prefix, number, home);
        let reply = self.routes.address(&key).and_then(|address| {
            let packed = command(&key.text).get_packed_command();
            let link = self.links.send(&address, &packed, until)?;
            Ok((address, link))
        });
        Sent { key, command, reply }
    }

    /// Waits for the reply to a request, and goes where the cluster sends it.
    pub(super) fn receive(&self, sent: Sent<'_>, until: Instant) -> Result<Value, Trouble> {
        let (address, link) = sent.reply?;
        let mut reply = self.links.receive(&address, link, until);
        for _ in 0..REDIRECTIONS {
            let (target, asking) = match &reply {
                Err(Trouble::Moved(target)) => (target, false),
                Err(Trouble::Ask(target)) => (target, true),
                _ => break,
            };
            let Some(target) = target.clone() else { break };
            if !asking {
                self.routes.refresh(&self.links, until);
            }
            reply = self.ask_there(&target, &(sent.command)(&sent.key.text), asking, until);
        }
        reply
    }

    /// Asks the server to which a cluster sent the request.
    fn ask_there(
        &self,
        target: &Address,
        command: &Cmd,
        asking: bool,
        until: Instant,
    ) -> Result<Value, Trouble> {
        let mut packed = Vec::new();
        if asking {
            redis::cmd("ASKING").write_packed_command(&mut packed);
        }
        command.write_packed_command(&mut packed);
        let mut link = self.links.send(target, &packed, until)?;
        if asking {
            link.receive(until)?;
        }
        self.links.receive(target, link, until)
    }

    /// Asks for an object's copy at `home` and remembers whether that home is well.
    pub(super) fn ask(
        &self,
        home: usize,
        number: u64,
        command: &dyn Fn(&str) -> Cmd,
        until: Instant,
    ) -> Result<Value, Trouble> {
        let reply = self.receive(self.send(home, number, command, until), until);
        self.learn(home, reply.as_ref().err());
        reply
    }

    /// Remembers whether a home answered (R8).
    pub(super) fn learn(&self, home: usize, trouble: Option<&Trouble>) {
        if self.homes.learn(home, trouble, Instant::now()) {
            self.book.doubt(home);
        }
    }

    /// Stores an object on each of `homes` at the same time. Returns those that have it.
    pub(super) fn put_on(
        &self,
        homes: &[usize],
        number: u64,
        bytes: &[u8],
        until: Instant,
        last: &mut Option<Trouble>,
    ) -> Vec<usize> {
        let command = |key: &str| set(key, bytes);
        let sent: Vec<_> =
            homes.iter().map(|home| self.send(*home, number, &command, until)).collect();
        let mut have = Vec::new();
        for (home, sent) in homes.iter().zip(sent) {
            let reply = self.receive(sent, until);
            self.learn(*home, reply.as_ref().err());
            match reply {
                Ok(_) => have.push(*home),
                // A refusal says more than a late answer of another server.
                Err(trouble) if !matches!(last, Some(Trouble::Refused(_))) => *last = Some(trouble),
                Err(_) => {}
            }
        }
        have
    }

    /// Returns the copies of objects, by number and home: those that the book names, or one on each
    /// home. Those on homes that do not answer now are left out, unless there are no others.
    pub(super) fn copies_of(&self, numbers: &[u64]) -> Vec<(u64, usize)> {
        let homes = |number| match self.book.find(number) {
            Some(entry) => entry.homes(),
            None => (0..self.routes.homes()).collect(),
        };
        let copies = |number| homes(number).into_iter().map(move |home| (number, home));
        let copies = numbers.iter().copied().flat_map(copies);
        let (here, away): (Vec<_>, Vec<_>) = copies.partition(|(_, home)| self.homes.admits(*home));
        if here.is_empty() { away } else { here }
    }

    /// Sends one command for each object and home, a batch at a time to each server, and tells
    /// `each` the replies. Returns the last trouble.
    pub(super) fn broadcast(
        &self,
        wanted: &[(u64, usize)],
        command: &dyn Fn(&str) -> Cmd,
        deadline: Instant,
        each: &mut dyn FnMut(u64, usize, &Value),
    ) -> Result<(), Trouble> {
        let mut last = Ok(());
        let mut by_server: HashMap<Address, Vec<(u64, usize, Key)>> = HashMap::new();
        for (number, home) in wanted {
            let key = self.routes.key(&self.prefix, *number, *home);
            match self.routes.address(&key) {
                Ok(address) => by_server.entry(address).or_default().push((*number, *home, key)),
                Err(trouble) => last = Err(trouble),
            }
        }
        for (address, requests) in &by_server {
            for batch in requests.chunks(BATCH) {
                let until = deadline.min(Instant::now() + 2 * PATIENCE);
                let done = self.batch(address, batch, command, until, each);
                self.learn(batch[0].1, done.as_ref().err());
                if let Err(trouble) = done {
                    last = Err(trouble);
                    break;
                }
            }
        }
        last
    }

    /// Sends one batch to one server. What the cluster sends elsewhere follows one by one.
    fn batch(
        &self,
        address: &Address,
        batch: &[(u64, usize, Key)],
        command: &dyn Fn(&str) -> Cmd,
        until: Instant,
        each: &mut dyn FnMut(u64, usize, &Value),
    ) -> Result<(), Trouble> {
        let mut packed = Vec::new();
        for (_, _, key) in batch {
            command(&key.text).write_packed_command(&mut packed);
        }
        let mut link = self.links.send(address, &packed, until)?;
        let mut last = Ok(());
        let mut elsewhere = Vec::new();
        for (number, home, _) in batch {
            match link.receive(until) {
                Ok(reply) => each(*number, *home, &reply),
                Err(Trouble::Moved(_) | Trouble::Ask(_)) => elsewhere.push((*number, *home)),
                Err(trouble) if trouble.spares_link() => last = Err(trouble),
                Err(trouble) => {
                    if !trouble.spares_others() {
                        self.links.forget(address);
                    }
                    return Err(trouble);
                }
            }
        }
        self.links.give(address, link);
        for (number, home) in elsewhere {
            match self.ask(home, number, command, until) {
                Ok(reply) => each(number, home, &reply),
                Err(trouble) => last = Err(trouble),
            }
        }
        last
    }
}

/// Returns the command that stores an object, with its lease.
pub(super) fn set(key: &str, bytes: &[u8]) -> Cmd {
    redis::cmd("SET").arg(key).arg(bytes).arg("EX").arg(LEASE.as_secs()).take()
}
