//! Redis and what speaks like it: one server, several, or a cluster.
//!
//! An object is a value under `zfold:PREFIX:NUMBER:SALT`, read by `GETRANGE`. It has as many copies
//! as the user asks for, each on another master (R4); an object is put when each of these masters
//! has said so. Replication within a cluster is no copy: a master acknowledges before its replica
//! has anything, and `WAIT` tells how many replicas have it but promises nothing of the one that is
//! elected. So it is a second master that a lost one is survived by.
//!
//! - R5: a number in the book was acknowledged by all of the homes that its entry names. Only a
//!   `put` that returns without an error makes an entry.
//! - R6: a reader asks every home of the entry before it says `Missing`.
//! - R7: a request that failed is repeated until its deadline, on a new connection and with a
//!   new map, unless the server refuses it. Putting the same bytes twice changes nothing.
//!
//! - R8: a home that may have lost copies is looked through by the next renewal, all of it: one
//!   that answers again after a failure, and one where a reader missed a copy.
//!
//! Each value has an expiry, so that a server gets its memory back after a process that was killed.
//! `renew` moves on those that are a quarter over, and while it does so finds copies that are gone,
//! as after a server's restart, and makes them again from another. It waits for no home that does
//! not answer: the other copies are renewed, and R8 finds the rest. A deletion does the same, and
//! leaves what lies there to its expiry.
//!
//! Locks: the book's and the homes' are leaves; no request is made under either.

mod book;
mod connection;
mod connections;
mod homes;
mod routes;
mod server;
mod trouble;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use self::book::{Book, Entry};
use self::connection::{Access, Connection, left};
use self::connections::Connections;
use self::homes::Homes;
use self::routes::{Key, Routes};
use self::trouble::Trouble;
use crate::engine::{Copies, Engine, EngineError};
use crate::engines::{random, tls};
use crate::place::{Address, PlaceError, RedisPlace};

/// Length of an object. The server's allocator rounds up to four sizes in each doubling; the
/// value's header takes the rest.
const OBJECT_BYTES: usize = (256 << 10) - 64;

/// How long values live without a renewal.
const LEASE: Duration = Duration::from_secs(3600);

/// How old a lease is when it is renewed.
const RENEW_AFTER: Duration = Duration::from_secs(LEASE.as_secs() / 4);

/// How long one attempt may take at first, and at most: twice as long after each that was late.
const PATIENCE: Duration = Duration::from_millis(500);
const PATIENCE_MAX: Duration = Duration::from_secs(16);

/// How long to wait before another round.
const PAUSE: Duration = Duration::from_millis(50);

/// The most redirections of one attempt.
const REDIRECTIONS: usize = 3;

/// The most commands that are sent before a reply is awaited.
const BATCH: usize = 256;

/// Objects in Redis.
#[derive(Debug)]
pub(crate) struct RedisEngine {
    name: String,
    prefix: String,
    copies: usize,
    links: Connections,
    routes: Routes,
    homes: Homes,
    book: Book,
    /// Copies that were made again.
    copies_made: AtomicU64,
}

/// A request that was sent to a server.
struct Sent<'a> {
    key: Key,
    command: &'a dyn Fn(&str) -> Cmd,
    reply: Result<(Address, Connection), Trouble>,
}

impl RedisEngine {
    /// Connects to the servers of `place` and looks whether they are fit: that they let nobody's
    /// values go for room, and are as many masters as there are to be copies.
    ///
    /// # Errors
    /// A server cannot be reached by the deadline, refuses, or is not fit; one line that names the
    /// remedy.
    pub(crate) fn connect(place: &RedisPlace, deadline: Instant) -> Result<Self, PlaceError> {
        let tls = if place.tls { Some(tls::client("rediss://", true)?) } else { None };
        let links = Connections::new(Access { login: place.login.clone(), tls });
        let routes = server::survey(&links, place, deadline)?;
        Ok(Self {
            name: server::name(place),
            prefix: random::name()?,
            copies: place.copies,
            links,
            homes: Homes::new(routes.homes()),
            routes,
            book: Book::default(),
            copies_made: AtomicU64::new(0),
        })
    }

    /// Sends a request for an object's copy at `home` without waiting for the reply.
    fn send<'a>(
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
    fn receive(&self, sent: Sent<'_>, until: Instant) -> Result<Value, Trouble> {
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
    fn ask(
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
    fn learn(&self, home: usize, trouble: Option<&Trouble>) {
        if self.homes.learn(home, trouble, Instant::now()) {
            self.book.doubt(home);
        }
    }

    /// Stores an object on up to `want` of `homes` at the same time. Returns those that have it.
    fn put_on(
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
                // What a server refuses says more than that another is late.
                Err(trouble) if !matches!(last, Some(Trouble::Refused(_))) => *last = Some(trouble),
                Err(_) => {}
            }
        }
        have
    }

    /// Waits before another round, and finds out where the masters are by then. Returns how long
    /// an attempt may take in it, or what went wrong if the deadline has passed.
    fn next_round(
        &self,
        patience: Duration,
        deadline: Instant,
        last: Option<Trouble>,
    ) -> Result<Duration, EngineError> {
        let was_late = last == Some(Trouble::Late);
        let over = |last: Option<Trouble>| last.map_or(EngineError::Late, EngineError::from);
        match left(deadline) {
            Some(left) if left > PAUSE => thread::sleep(PAUSE),
            _ => return Err(over(last)),
        }
        self.routes.refresh(&self.links, deadline);
        if left(deadline).is_none() {
            return Err(over(last));
        }
        Ok(if was_late { PATIENCE_MAX.min(2 * patience) } else { patience })
    }

    /// Returns the copies of objects, by number and home: those that the book names, or one on each
    /// home. Those on homes that do not answer now are left out, unless there are no others.
    fn copies_of(&self, numbers: &[u64]) -> Vec<(u64, usize)> {
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
    fn broadcast(
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
                    self.links.forget(address);
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

    /// Makes a copy again that is gone, from another one. Returns false if there is none.
    ///
    /// # Errors
    /// A home that may have one does not answer, or the copy cannot be put.
    fn repair(&self, number: u64, home: usize, deadline: Instant) -> Result<bool, Trouble> {
        let Some(entry) = self.book.find(number) else { return Ok(true) };
        let mut found = Ok(false);
        for other in entry.homes().into_iter().filter(|other| *other != home) {
            let until = deadline.min(Instant::now() + 2 * PATIENCE);
            let get = |key: &str| redis::cmd("GET").arg(key).take();
            match self.ask(other, number, &get, until) {
                Ok(Value::BulkString(bytes)) => {
                    self.ask(home, number, &|key| set(key, &bytes), until)?;
                    // Relaxed: a counter.
                    self.copies_made.fetch_add(1, Ordering::Relaxed);
                    return Ok(true);
                }
                Ok(_) => {}
                Err(trouble) => found = Err(trouble),
            }
        }
        found
    }
}

impl Engine for RedisEngine {
    fn name(&self) -> &str {
        &self.name
    }

    fn object_bytes(&self) -> usize {
        OBJECT_BYTES
    }

    fn put(&self, number: u64, bytes: &[u8], deadline: Instant) -> Result<(), EngineError> {
        let mut have: Vec<usize> = Vec::new();
        let mut patience = 2 * PATIENCE;
        loop {
            let mut last = None;
            let order = self.homes.order(number);
            let mut order = order.into_iter().filter(|home| !have.contains(home)).peekable();
            let mut more = Vec::new();
            while order.peek().is_some() && have.len() + more.len() < self.copies {
                let until = deadline.min(Instant::now() + patience);
                let group: Vec<_> =
                    order.by_ref().take(self.copies - have.len() - more.len()).collect();
                more.extend(self.put_on(&group, number, bytes, until, &mut last));
            }
            have.extend(more);
            if have.len() == self.copies {
                self.book.enter(number, Entry::new(&have));
                return Ok(());
            }
            if let Some(refused @ Trouble::Refused(_)) = last {
                return Err(refused.into());
            }
            patience = self.next_round(patience, deadline, last)?;
        }
    }

    fn get(
        &self,
        number: u64,
        offset: usize,
        out: &mut [u8],
        deadline: Instant,
    ) -> Result<(), EngineError> {
        let Some(entry) = self.book.find(number) else { return Err(EngineError::Missing) };
        if out.is_empty() {
            return Ok(());
        }
        let command = |key: &str| {
            redis::cmd("GETRANGE").arg(key).arg(offset).arg(offset + out.len() - 1).take()
        };
        let mut patience = PATIENCE;
        loop {
            let mut missing = 0;
            let mut last = None;
            let homes = self.homes.healthy_first(entry.homes());
            for home in &homes {
                let until = deadline.min(Instant::now() + patience);
                match self.ask(*home, number, &command, until) {
                    Ok(Value::BulkString(bytes)) if bytes.len() == out.len() => {
                        out.copy_from_slice(&bytes);
                        return Ok(());
                    }
                    Ok(_) => {
                        missing += 1;
                        self.book.doubt(*home);
                    }
                    Err(trouble) => last = Some(trouble),
                }
            }
            if missing == homes.len() {
                return Err(EngineError::Missing);
            }
            if let Some(refused @ Trouble::Refused(_)) = last {
                return Err(refused.into());
            }
            patience = self.next_round(patience, deadline, last)?;
        }
    }

    fn delete(&self, numbers: &[u64], deadline: Instant) -> Result<(), EngineError> {
        let wanted = self.copies_of(numbers);
        // From here on nobody makes copies of them again.
        self.book.strike(numbers);
        let unlink = |key: &str| redis::cmd("UNLINK").arg(key).take();
        let done = self.broadcast(&wanted, &unlink, deadline, &mut |_, _, _| {});
        if done.is_err() {
            self.routes.refresh(&self.links, deadline);
        }
        done.map_err(EngineError::from)
    }

    fn renew(&self, deadline: Instant) -> Result<(), EngineError> {
        let expire = |key: &str| redis::cmd("EXPIRE").arg(key).arg(LEASE.as_secs()).take();
        let mut result = Ok(());
        for due in self.book.due(RENEW_AFTER).chunks(BATCH) {
            if left(deadline).is_none() {
                return Err(EngineError::Late);
            }
            let wanted = self.copies_of(due);
            let (mut seen, mut lost) = (BTreeSet::new(), Vec::new());
            let mut renewed =
                self.broadcast(&wanted, &expire, deadline, &mut |number, home, reply| {
                    seen.insert(number);
                    if *reply == Value::Int(0) {
                        lost.push((number, home));
                    }
                });
            let mut gone = BTreeMap::new();
            for (number, home) in lost {
                match self.repair(number, home, deadline) {
                    Ok(true) => {}
                    Ok(false) => *gone.entry(number).or_insert(0) += 1,
                    Err(trouble) => {
                        seen.remove(&number);
                        renewed = Err(trouble);
                    }
                }
            }
            self.book.renewed(&seen, &gone);
            if let Err(trouble) = renewed {
                self.routes.refresh(&self.links, deadline);
                result = Err(trouble.into());
            }
        }
        result
    }

    fn copies(&self) -> Copies {
        // Relaxed: a counter.
        Copies { gone: self.book.gone(), made_total: self.copies_made.load(Ordering::Relaxed) }
    }

    fn away(&self) -> Vec<String> {
        let places = self.homes.away().into_iter().filter_map(|home| self.routes.place(home));
        places.map(|server| format!("redis at {server}")).collect()
    }
}

fn set(key: &str, bytes: &[u8]) -> Cmd {
    redis::cmd("SET").arg(key).arg(bytes).arg("EX").arg(LEASE.as_secs()).take()
}
