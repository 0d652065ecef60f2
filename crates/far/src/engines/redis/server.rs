//! Checks, before the first object, whether servers are fit to keep pages.

use std::time::{Duration, Instant};

use redis::Value;

use super::connections::Connections;
use super::routes::Routes;
use super::trouble::Trouble;
use crate::engine::EngineError;
use crate::engines::said::short;
use crate::place::{Address, PlaceError, RedisPlace, place_error};

/// How long one of several nodes of a cluster may take to answer before the next is asked.
const PATIENCE: Duration = Duration::from_secs(1);

/// A server's description of itself.
pub(super) struct Info {
    run: String,
    policy: String,
    is_replica: bool,
    is_cluster: bool,
}

/// Returns what messages call the servers.
pub(super) fn name(place: &RedisPlace) -> String {
    let servers: Vec<_> = place.servers.iter().map(Address::to_string).collect();
    format!("redis at {}", servers.join(", "))
}

/// Looks at the servers of `place`, and returns the routes to them.
pub(super) fn survey(
    links: &Connections,
    place: &RedisPlace,
    deadline: Instant,
) -> Result<Routes, PlaceError> {
    let (seed, info) = first(links, place, deadline)?;
    let routes = if info.is_cluster {
        Routes::cluster(links, seed, deadline).map_err(|trouble| failed(seed, trouble))?
    } else {
        Routes::Nodes(place.servers.clone())
    };
    let mut runs: Vec<(String, Address)> = Vec::new();
    for master in routes.masters() {
        let info =
            Info::ask(links, &master, deadline).map_err(|trouble| failed(&master, trouble))?;
        info.check(&master)?;
        if let Some((_, other)) = runs.iter().find(|(run, _)| *run == info.run) {
            return Err(place_error!(
                "redis at {master} and at {other} is one server: name it once"
            ));
        }
        if info.is_cluster != matches!(routes, Routes::Cluster(_)) {
            return Err(place_error!(
                "redis at {master} is part of a cluster, and others that were named are not: name \
                 nodes of one cluster, or servers without one"
            ));
        }
        runs.push((info.run, master));
    }
    if place.copies > routes.homes() {
        return Err(place_error!(
            "{}: copies={} needs as many masters, and there are {}: name more servers, or ask for \
             fewer copies",
            name(place),
            place.copies,
            routes.homes()
        ));
    }
    Ok(routes)
}

/// Returns the first server that answers. All must, unless it is in a cluster.
fn first<'a>(
    links: &Connections,
    place: &'a RedisPlace,
    deadline: Instant,
) -> Result<(&'a Address, Info), PlaceError> {
    let mut last = None;
    for server in &place.servers {
        match Info::ask(links, server, deadline.min(Instant::now() + PATIENCE)) {
            Ok(info) => return Ok((server, info)),
            Err(trouble) => last = Some(failed(server, trouble)),
        }
    }
    Err(last.unwrap_or_else(|| place_error!("redis: no server is named")))
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

impl Info {
    fn ask(links: &Connections, server: &Address, deadline: Instant) -> Result<Self, Trouble> {
        let reply = links.call(server, &redis::cmd("INFO"), deadline)?;
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
        })
    }

    pub(super) fn check(&self, server: &Address) -> Result<(), PlaceError> {
        if self.is_replica {
            return Err(place_error!(
                "redis at {server} is a replica, which takes no data: name its master"
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
        Ok(())
    }
}
