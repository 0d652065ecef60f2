//! Checks, before the first object, whether servers are fit to keep pages.

use std::time::{Duration, Instant};

use super::connections::Connections;
use super::info::Info;
use super::routes::Routes;
use super::trouble::Trouble;
use crate::engine::EngineError;
use crate::place::{Address, PlaceError, RedisPlace, place_error};

/// How long one of several servers may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns what messages call the servers.
pub(super) fn name(place: &RedisPlace) -> String {
    let servers: Vec<_> = place.servers.iter().map(Address::to_string).collect();
    format!("redis at {}", servers.join(", "))
}

/// Looks at the servers of `place`, and returns the routes to them: those of a cluster, or of the
/// one master that is among them.
pub(super) fn survey(
    links: &Connections,
    place: &RedisPlace,
    deadline: Instant,
) -> Result<Routes, PlaceError> {
    let mut found: Option<(&Address, Info)> = None;
    let mut last = None;
    for server in &place.servers {
        let info = match Info::ask(links, server, deadline.min(Instant::now() + PATIENCE)) {
            Ok(info) => info,
            Err(trouble) => {
                last = Some(failed(server, trouble));
                continue;
            }
        };
        if info.is_cluster {
            let routes = Routes::cluster(links, server, deadline);
            let routes = routes.map_err(|trouble| failed(server, trouble))?;
            for master in routes.masters() {
                let info = Info::ask(links, &master, deadline);
                info.map_err(|trouble| failed(&master, trouble))?.check(&master, place.copies)?;
            }
            return Ok(routes);
        }
        match &found {
            _ if info.is_replica => {}
            Some((_, master)) if master.run == info.run => {}
            Some((master, _)) => {
                return Err(place_error!(
                    "redis at {master} and at {server} are two masters: name one and its replicas, \
                     or make them a cluster"
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
    Ok(Routes::single(master, &place.servers))
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
