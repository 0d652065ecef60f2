//! The servers of a place: which of them is the master, and whether it is fit to keep pages.
//!
//! A master that is gone is replaced by one of its replicas. Of servers that were all named, one
//! calls itself a master then.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use zfold_store::pool::Lock;

use super::connections::Connections;
use super::info::Info;
use super::trouble::Trouble;
use crate::engine::EngineError;
use crate::place::{Address, PlaceError, RedisPlace, place_error};

/// How long one of several servers may take to answer at the start.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often servers are asked which is the master, at most.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// How long one server may take to answer that.
const ASK_PATIENCE: Duration = Duration::from_millis(500);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Servers {
    links: Connections,
    all: Vec<Address>,
    master: Lock<Address>,
    /// When the servers were asked last.
    asked: Mutex<Instant>,
}

impl Servers {
    /// Looks at the servers of `place` for the one master that is among them.
    pub(super) fn survey(
        links: Connections,
        place: &RedisPlace,
        deadline: Instant,
    ) -> Result<Self, PlaceError> {
        let mut found: Option<(&Address, Info)> = None;
        let mut last = None;
        for server in &place.servers {
            let info = match Info::ask(&links, server, deadline.min(Instant::now() + PATIENCE)) {
                Ok(info) => info,
                Err(trouble) => {
                    last = Some(failed(server, trouble));
                    continue;
                }
            };
            match &found {
                _ if info.is_replica => {}
                Some((_, master)) if master.run == info.run => {}
                Some((master, _)) => {
                    return Err(place_error!(
                        "redis at {master} and at {server} are two masters: name one and its \
                         replicas"
                    ));
                }
                None => found = Some((server, info)),
            }
        }
        let Some((master, info)) = found else {
            return Err(last.unwrap_or_else(|| {
                place_error!("{} takes no data, being a replica: name its master too", name(place))
            }));
        };
        info.check(master, place.copies)?;
        let (master, asked) = (Lock::new(master.clone()), Mutex::new(Instant::now()));
        Ok(Self { links, all: place.servers.clone(), master, asked })
    }

    /// Sends commands to the master; returns the reply to the last one, or the first trouble.
    pub(super) fn call(&self, commands: &[Cmd], until: Instant) -> Result<Value, Trouble> {
        let master = self.master.lock().clone();
        self.links.call(&master, commands, until)
    }

    /// Finds out which is the master, unless another thread did so just now.
    pub(super) fn refresh(&self, deadline: Instant) {
        let Ok(mut asked) = self.asked.try_lock() else { return };
        if asked.elapsed() < ASK_EVERY {
            return;
        }
        let until = || deadline.min(Instant::now() + ASK_PATIENCE);
        let info = |server| Some((server, Info::ask(&self.links, server, until()).ok()?));
        // One that was replaced may not know it yet, and has lost its replicas.
        let masters = self.all.iter().filter_map(info).filter(|(_, info)| !info.is_replica);
        if let Some((master, _)) = masters.max_by_key(|(_, info)| info.replicas) {
            *self.master.lock() = master.clone();
        }
        *asked = Instant::now();
    }
}

/// Returns what messages call the servers.
pub(super) fn name(place: &RedisPlace) -> String {
    let servers: Vec<_> = place.servers.iter().map(Address::to_string).collect();
    format!("redis at {}", servers.join(", "))
}

/// Tells why a server cannot be used at the start.
fn failed(server: &Address, trouble: Trouble) -> PlaceError {
    match EngineError::from(trouble) {
        error @ EngineError::Refused(_) => place_error!("redis at {server} {error}"),
        EngineError::Late => place_error!(
            "redis at {server} does not answer: start it, or name another server for --backing"
        ),
        error => place_error!(
            "redis at {server} {error}; start it, or name another server for --backing"
        ),
    }
}
