//! Redis and what speaks like it: one server, several, or a cluster.
//!
//! An object is a value under `zfold:PREFIX:NUMBER:SALT`, read by `GETRANGE`. It has as many copies
//! as the user requests, each on a different master (routes/R4); an object is put when each of
//! these masters has said so. Replication within a cluster is no copy: a master acknowledges before
//! its replica has anything, and `WAIT` reports how many replicas have it but promises nothing
//! about the one that is elected. So it is a second master that a lost one is survived by.
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
#[cfg(any(test, feature = "testing"))]
pub(crate) mod heard;
mod homes;
mod leases;
mod requests;
mod routes;
mod server;
mod trouble;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::Value;

use self::book::{Book, Entry};
use self::connection::Access;
use self::connections::Connections;
use self::homes::Homes;
use self::routes::Routes;
use self::trouble::Trouble;
use crate::engine::{Copies, Engine, EngineError};
use crate::engines::tcp::left;
use crate::engines::{random, tls};
use crate::place::{PlaceError, RedisPlace};

/// Length of an object. The server's allocator rounds up to four sizes in each doubling; the
/// value's header takes the rest.
const OBJECT_BYTES: usize = (256 << 10) - 64;

/// How long values live without a renewal.
const LEASE: Duration = Duration::from_secs(3600);

/// How long one attempt may take at first, and at most: twice as long after each that was late.
const PATIENCE: Duration = Duration::from_millis(500);
const PATIENCE_MAX: Duration = Duration::from_secs(16);

/// How long to wait before another round.
const PAUSE: Duration = Duration::from_millis(50);

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

impl RedisEngine {
    /// Connects to the servers of `place` and looks whether they are fit: that they evict no values
    /// for room, and that there are as many masters as copies.
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
        // From here on no copies of them are made again.
        self.book.strike(numbers);
        let unlink = |key: &str| redis::cmd("UNLINK").arg(key).take();
        let done = self.broadcast(&wanted, &unlink, deadline, &mut |_, _, _| {});
        if done.is_err() {
            self.routes.refresh(&self.links, deadline);
        }
        done.map_err(EngineError::from)
    }

    fn renew(&self, deadline: Instant) -> Result<(), EngineError> {
        self.renew_leases(deadline)
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
