//! Redis and what speaks like it: one master with its replicas.
//!
//! An object is a value under `zfold:PREFIX:NUMBER`, read by `GETRANGE` from the master. Copies are
//! those of Redis: its master replicates to replicas, one of which takes over when it is gone. With
//! `copies=N` an object is put when `WAIT` says that N - 1 replicas have it. A replica that takes
//! over without an object has lost it; a reader then finds nothing.
//!
//! - R5: `put` returns without an error only after the master, and `WAIT` for as many replicas as
//!   were asked for, have said so.
//! - R7: a request that failed is repeated until its deadline, on a new connection and at the
//!   master of then, unless the server refuses it. Putting the same bytes twice changes nothing.
//!
//! Each value has an expiry, so that a server gets its memory back after a process that was killed;
//! `renew` moves it on.

mod connection;
mod connections;
#[cfg(any(test, feature = "testing"))]
#[path = "../../../tests/heard/redis.rs"]
pub(crate) mod heard;
mod info;
mod server;
mod trouble;

use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use ring::rand::{SecureRandom as _, SystemRandom};

use self::connection::Access;
use self::connections::Connections;
use self::server::Servers;
use self::trouble::Trouble;
use crate::engine::{Engine, EngineError};
use crate::engines::tcp::left;
use crate::engines::tls;
use crate::place::{PlaceError, RedisPlace, place_error};

/// Length of an object. The server's allocator rounds up to four sizes in each doubling; the
/// value's header takes the rest.
const OBJECT_BYTES: usize = (256 << 10) - 64;

/// How long values live without a renewal.
const EXPIRY: Duration = Duration::from_secs(3600);

/// How long one attempt may take at first, and at most: twice as long after each that was late.
const PATIENCE: Duration = Duration::from_millis(500);
const PATIENCE_MAX: Duration = Duration::from_secs(16);

/// How long to wait before another attempt.
const PAUSE: Duration = Duration::from_millis(50);

/// The most commands that are sent before a reply is awaited.
const BATCH: usize = 256;

/// Objects in Redis.
#[derive(Debug)]
pub(crate) struct RedisEngine {
    name: String,
    prefix: String,
    copies: usize,
    servers: Servers,
}

impl RedisEngine {
    /// Connects to the servers of `place` and looks whether they are fit: that they evict no values
    /// for room, and that the master has as many replicas as copies are asked for.
    ///
    /// # Errors
    /// A server cannot be reached by the deadline, refuses, or is not fit; one line that names the
    /// remedy.
    pub(crate) fn connect(place: &RedisPlace, deadline: Instant) -> Result<Self, PlaceError> {
        let tls = if place.tls { Some(tls::client("rediss://", true)?) } else { None };
        let links = Connections::new(Access { login: place.login.clone(), tls });
        let servers = Servers::survey(links, place, deadline)?;
        let name = server::name(place);
        Ok(Self { name, prefix: prefix()?, copies: place.copies, servers })
    }

    fn key(&self, number: u64) -> String {
        format!("zfold:{}:{number}", self.prefix)
    }

    /// Makes attempts until one succeeds, is refused, or the deadline has passed (R7).
    fn insist<T>(
        &self,
        number: u64,
        mut patience: Duration,
        deadline: Instant,
        attempt: impl Fn(&str, Instant) -> Result<T, Trouble>,
    ) -> Result<T, EngineError> {
        let key = self.key(number);
        left(deadline).ok_or(EngineError::Late)?;
        loop {
            let trouble = match attempt(&key, deadline.min(Instant::now() + patience)) {
                Ok(done) => return Ok(done),
                Err(refused @ Trouble::Refused(_)) => return Err(refused.into()),
                Err(trouble) => trouble,
            };
            match left(deadline) {
                Some(left) if left > PAUSE => thread::sleep(PAUSE),
                _ => return Err(trouble.into()),
            }
            self.servers.refresh(deadline);
            if trouble == Trouble::Late {
                patience = PATIENCE_MAX.min(2 * patience);
            }
        }
    }

    /// Sends one command for each object, a batch at a time. Returns the last trouble.
    fn broadcast(
        &self,
        numbers: &[u64],
        command: impl Fn(&str) -> Cmd,
        deadline: Instant,
    ) -> Result<(), EngineError> {
        left(deadline).ok_or(EngineError::Late)?;
        let mut last = Ok(());
        for numbers in numbers.chunks(BATCH) {
            let until = deadline.min(Instant::now() + 2 * PATIENCE);
            let commands: Vec<Cmd> =
                numbers.iter().map(|number| command(&self.key(*number))).collect();
            last = self.servers.call(&commands, until).map(drop).and(last);
        }
        last.map_err(|trouble| {
            self.servers.refresh(deadline);
            trouble.into()
        })
    }
}

/// Returns a name of 128 random bits, in hex, which no other process has.
///
/// # Errors
/// The system has no random numbers.
fn prefix() -> Result<String, PlaceError> {
    let mut random = [0; 16];
    SystemRandom::new()
        .fill(&mut random)
        .map_err(|_| place_error!("the system has no random numbers to name objects with"))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(random)))
}

/// Returns the command that waits for `replicas`, and says how many have what was sent before it.
/// The answer comes before the attempt ends.
fn wait(replicas: usize, until: Instant) -> Cmd {
    let patience = left(until).unwrap_or_default() / 2;
    redis::cmd("WAIT").arg(replicas).arg(patience.as_millis().max(1) as u64).take()
}

impl Engine for RedisEngine {
    fn name(&self) -> &str {
        &self.name
    }

    fn object_bytes(&self) -> usize {
        OBJECT_BYTES
    }

    fn put(&self, number: u64, bytes: &[u8], deadline: Instant) -> Result<(), EngineError> {
        let replicas = self.copies - 1;
        self.insist(number, 2 * PATIENCE, deadline, |key, until| {
            let expiry = EXPIRY.as_secs();
            let set = redis::cmd("SET").arg(key).arg(bytes).arg("EX").arg(expiry).take();
            if replicas == 0 {
                return self.servers.call(&[set], until).map(drop);
            }
            match self.servers.call(&[set, wait(replicas, until)], until)? {
                Value::Int(have) if usize::try_from(have).is_ok_and(|have| have >= replicas) => {
                    Ok(())
                }
                Value::Int(have) => Err(Trouble::NotNow(format!(
                    "{have} replicas have an object, and copies={} needs {replicas}",
                    self.copies
                ))),
                _ => Err(Trouble::Refused("WAIT: no number".to_owned())),
            }
        })
    }

    fn get(
        &self,
        number: u64,
        offset: usize,
        out: &mut [u8],
        deadline: Instant,
    ) -> Result<(), EngineError> {
        if out.is_empty() {
            return Ok(());
        }
        let last = offset + out.len() - 1;
        let reply = self.insist(number, PATIENCE, deadline, |key, until| {
            let get = redis::cmd("GETRANGE").arg(key).arg(offset).arg(last).take();
            self.servers.call(&[get], until)
        })?;
        match reply {
            Value::BulkString(bytes) if bytes.len() == out.len() => {
                out.copy_from_slice(&bytes);
                Ok(())
            }
            _ => Err(EngineError::Missing),
        }
    }

    fn delete(&self, numbers: &[u64], deadline: Instant) -> Result<(), EngineError> {
        self.broadcast(numbers, |key| redis::cmd("UNLINK").arg(key).take(), deadline)
    }

    fn renew(&self, numbers: &[u64], deadline: Instant) -> Result<(), EngineError> {
        let expire = |key: &str| redis::cmd("EXPIRE").arg(key).arg(EXPIRY.as_secs()).take();
        self.broadcast(numbers, expire, deadline)
    }
}
