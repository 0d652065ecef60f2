//! What a server says of itself.

use std::time::Instant;

use redis::Value;

use super::connections::Connections;
use super::trouble::Trouble;
use crate::engines::said::short;
use crate::place::{Address, PlaceError, place_error};

/// A server's description of itself.
pub(super) struct Info {
    pub(super) run: String,
    policy: String,
    pub(super) is_replica: bool,
    is_cluster: bool,
    /// Replicas that are connected to it.
    pub(super) replicas: usize,
}

impl Info {
    pub(super) fn ask(
        links: &Connections,
        server: &Address,
        deadline: Instant,
    ) -> Result<Self, Trouble> {
        let reply = links.call(server, &[redis::cmd("INFO")], deadline)?;
        Self::of(&reply).ok_or_else(|| Trouble::Refused("INFO: no text".to_owned()))
    }

    /// Reads a reply; none if it is no text.
    pub(super) fn of(reply: &Value) -> Option<Self> {
        let text = match reply {
            Value::BulkString(text) => str::from_utf8(text).ok(),
            Value::VerbatimString { text, .. } => Some(text.as_str()),
            _ => None,
        }?;
        let field = |name: &str| {
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            lines.filter(|(key, _)| *key == name).map(|(_, value)| value.trim()).next()
        };
        Some(Self {
            run: field("run_id").unwrap_or_default().to_owned(),
            policy: short(field("maxmemory_policy").unwrap_or("noeviction")),
            is_replica: field("role") == Some("slave"),
            is_cluster: field("cluster_enabled") == Some("1"),
            replicas: field("connected_slaves").and_then(|count| count.parse().ok()).unwrap_or(0),
        })
    }

    /// Refuses a master that is not fit for so many copies.
    pub(super) fn check(&self, server: &Address, copies: usize) -> Result<(), PlaceError> {
        if self.is_cluster {
            return Err(place_error!(
                "redis at {server} is a node of a cluster: name a server that is in none"
            ));
        }
        if self.policy != "noeviction" {
            return Err(place_error!(
                "redis at {server} throws values away when it is full (maxmemory-policy {}): \
                 redis-cli -h {} -p {} CONFIG SET maxmemory-policy noeviction",
                self.policy,
                server.host(),
                server.port()
            ));
        }
        if self.replicas < copies.saturating_sub(1) {
            return Err(place_error!(
                "redis at {server} has {} replicas, and copies={copies} needs {}: start more of \
                 them, or ask for fewer copies",
                self.replicas,
                copies - 1
            ));
        }
        Ok(())
    }
}
