//! Which master has which key: the only one, or that of the key's slot in a cluster.
//!
//! A master that is gone is replaced by one of its replicas: the map of a cluster says so, and of a
//! master and replicas that were all named, one calls itself a master then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use redis::Value;
use zfold_store::pool::sound;

use super::connections::Connections;
use super::info::Info;
use super::trouble::Trouble;
use crate::place::Address;

const SLOTS: usize = 16384;

/// How often servers are asked where masters are, at most.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// How long one server may take to answer that.
const ASK_PATIENCE: Duration = Duration::from_millis(500);

/// Stands for no master.
const NOBODY: u16 = u16::MAX;

/// The servers to which objects go.
#[derive(Debug)]
pub(super) struct Routes {
    is_cluster: bool,
    /// The servers as they were at first, which may be the only ones that answer when others are
    /// gone.
    first: Vec<Address>,
    now: RwLock<Arc<Map>>,
    asked: Mutex<Asked>,
}

/// The node that was asked for the map last, and when.
#[derive(Debug)]
struct Asked {
    when: Instant,
    next: usize,
}

/// Which servers are masters of which slots.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Map {
    /// Index of the master of each slot, or `NOBODY`.
    masters: Vec<u16>,
    /// All nodes, masters and replicas.
    nodes: Vec<Address>,
}

impl Routes {
    /// Returns the routes of the cluster that `seed` belongs to.
    pub(super) fn cluster(
        links: &Connections,
        seed: &Address,
        deadline: Instant,
    ) -> Result<Self, Trouble> {
        let map = Map::ask(links, seed, deadline)?;
        Ok(Self::new(true, map.nodes.clone(), map))
    }

    /// Returns the routes to one master; a replica that takes over is one of `servers`.
    pub(super) fn single(master: &Address, servers: &[Address]) -> Self {
        Self::new(false, servers.to_vec(), Map::of(master.clone()))
    }

    fn new(is_cluster: bool, first: Vec<Address>, map: Map) -> Self {
        let asked = Mutex::new(Asked { when: Instant::now(), next: 0 });
        Self { is_cluster, first, now: RwLock::new(Arc::new(map)), asked }
    }

    /// Returns the masters now.
    pub(super) fn masters(&self) -> Vec<Address> {
        let map = self.map();
        let mut masters: Vec<u16> = map.masters.clone();
        masters.sort_unstable();
        masters.dedup();
        let known = masters.iter().filter_map(|at| map.nodes.get(usize::from(*at)));
        known.cloned().collect()
    }

    /// Returns the server to ask for a key.
    pub(super) fn address(&self, key: &str) -> Result<Address, Trouble> {
        let map = self.map();
        let found = map.nodes.get(usize::from(map.masters[slot(key)])).cloned();
        found.ok_or_else(|| Trouble::NotNow("no master has the key's slot".to_owned()))
    }

    /// Finds out where the masters are, unless another thread did so just now.
    pub(super) fn refresh(&self, links: &Connections, deadline: Instant) {
        let Ok(mut asked) = self.asked.try_lock() else { return };
        if asked.when.elapsed() < ASK_EVERY {
            return;
        }
        let until = || deadline.min(Instant::now() + ASK_PATIENCE);
        let map = if self.is_cluster {
            // A different node each time.
            let mut nodes = self.map().nodes.clone();
            nodes.extend_from_slice(&self.first);
            asked.next += 1;
            let turn = asked.next % nodes.len();
            nodes.rotate_left(turn);
            let nodes = nodes.iter().take_while(|_| Instant::now() < deadline);
            nodes.filter_map(|node| Map::ask(links, node, until()).ok()).next()
        } else {
            let info = |server| Some((server, Info::ask(links, server, until()).ok()?));
            // One that was replaced may not know it yet, and has lost its replicas.
            let masters = self.first.iter().filter_map(info).filter(|(_, info)| !info.is_replica);
            let master = masters.max_by_key(|(_, info)| info.replicas);
            master.map(|(server, _)| Map::of(server.clone()))
        };
        if let Some(map) = map {
            *sound(self.now.write()) = Arc::new(map);
        }
        asked.when = Instant::now();
    }

    fn map(&self) -> Arc<Map> {
        let now = sound(self.now.read());
        Arc::clone(&now)
    }
}

impl Map {
    /// Returns the map of one master that has all keys.
    fn of(master: Address) -> Self {
        Self { masters: vec![0; SLOTS], nodes: vec![master] }
    }

    /// Asks one node of a cluster.
    fn ask(links: &Connections, node: &Address, deadline: Instant) -> Result<Self, Trouble> {
        let ask = redis::cmd("CLUSTER").arg("SLOTS").take();
        let reply = links.call(node, &[ask], deadline)?;
        let strange = || Trouble::Refused("CLUSTER SLOTS: an answer of another form".to_owned());
        Self::parse(&reply, node.host()).ok_or_else(strange)
    }

    /// Reads `[[first, last, [host, port, ..], replica..]..]`. A node that does not know its own
    /// host is the one that answers, `answering`.
    pub(super) fn parse(reply: &Value, answering: &str) -> Option<Self> {
        let mut map = Self { masters: vec![NOBODY; SLOTS], nodes: Vec::new() };
        let Value::Array(ranges) = reply else { return None };
        if ranges.len() > SLOTS {
            return None;
        }
        // By address: a reply may name more nodes than there is time to compare with each other.
        let mut numbers = HashMap::new();
        for range in ranges {
            let Value::Array(parts) = range else { return None };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = &parts[..] else { return None };
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            let slots = map.masters.get_mut(first..=last)?;
            let mut master = None;
            for node in nodes {
                let Some(address) = node_address(node, answering) else { continue };
                let at = *numbers.entry(address).or_insert_with_key(|address| {
                    map.nodes.push(address.clone());
                    map.nodes.len() - 1
                });
                master = master.or(u16::try_from(at).ok());
            }
            slots.fill(master.unwrap_or(NOBODY));
        }
        Some(map)
    }
}

fn node_address(node: &Value, answering: &str) -> Option<Address> {
    let Value::Array(parts) = node else { return None };
    let port = match parts.get(1)? {
        Value::Int(port) => u16::try_from(*port).ok()?,
        _ => return None,
    };
    let host = match parts.first()? {
        Value::BulkString(host) => str::from_utf8(host).ok()?,
        Value::Nil => "",
        _ => return None,
    };
    match host {
        "?" => None,
        "" => Some(Address::new(answering, port)),
        host => Some(Address::new(host, port)),
    }
}

/// Returns the slot that a cluster puts a key into. Our keys have no braces, so all of it counts.
fn slot(key: &str) -> usize {
    usize::from(crc16::State::<crc16::XMODEM>::calculate(key.as_bytes())) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: i64) -> Value {
        let host = host.as_bytes().to_vec();
        Value::Array(vec![Value::BulkString(host), Value::Int(port)])
    }

    fn range(first: i64, last: i64, nodes: &[Value]) -> Value {
        let mut parts = vec![Value::Int(first), Value::Int(last)];
        parts.extend_from_slice(nodes);
        Value::Array(parts)
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot("123456789"), 0x31c3 % SLOTS);
    }

    #[test]
    fn a_map_names_masters_and_replicas() {
        let reply = Value::Array(vec![
            range(0, 9, &[node("a", 1), node("b", 2)]),
            range(10, 16383, &[node("", 3)]),
        ]);
        let map = Map::parse(&reply, "self").expect("a map");
        let named = ["a:1", "b:2", "self:3"].map(|text| Address::parse(text).expect("address"));
        assert_eq!(map.nodes, named);
        assert_eq!((map.masters[9], map.masters[10], map.masters[16383]), (0, 2, 2));
    }

    #[test]
    fn a_map_with_slots_that_no_cluster_has_is_refused() {
        for (first, last) in [(0, 16384), (-1, 3), (9, 2)] {
            let reply = Value::Array(vec![range(first, last, &[node("a", 1)])]);
            assert_eq!(Map::parse(&reply, "self"), None, "{first} to {last}");
        }
        assert_eq!(Map::parse(&Value::Nil, "self"), None);
        let ranges = |count| Value::Array(vec![range(0, 0, &[node("a", 1)]); count]);
        assert!(Map::parse(&ranges(SLOTS), "self").is_some());
        assert_eq!(Map::parse(&ranges(SLOTS + 1), "self"), None, "more ranges than slots");
    }
}
