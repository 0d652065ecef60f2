//! Leases: values live on while their owner does, and copies that are gone are made again.
//!
//! A renewal waits for no home that does not answer: the other copies are renewed, and R8 finds
//! the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::Value;

use super::requests::{BATCH, set};
use super::trouble::Trouble;
use super::{LEASE, PATIENCE, RedisEngine};
use crate::engine::EngineError;
use crate::engines::tcp::left;

/// How old a lease is when it is renewed.
const RENEW_AFTER: Duration = Duration::from_secs(LEASE.as_secs() / 4);

impl RedisEngine {
    /// Moves the expiry of objects on that are a quarter over, and makes copies again that are
    /// gone.
    ///
    /// # Errors
    /// The last trouble; what it kept from being renewed is tried again the next time.
    pub(super) fn renew_leases(&self, deadline: Instant) -> Result<(), EngineError> {
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
