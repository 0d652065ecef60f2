//! Which master keeps which object, and where that master is now.
//!
//! A *home* is a master as it was when the engine connected: one of the servers that the user
//! named, or one of a cluster's masters with the slots that it had. Objects are dealt out among
//! homes by number, so that copies of one object have different homes. In a cluster a home is
//! reached through the keys' slots, wherever these are by then: a replica that took over, or
//! another master after the cluster was rearranged.
//!
//! - R4: two copies of an object lie on different masters, unless slots were moved from master to
//!   master since the engine connected.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use redis::Value;
use zfold_store::pool::sound;

use super::connections::Connections;
use super::trouble::Trouble;
use crate::place::Address;

const SLOTS: usize = 16384;

/// Masters with fewer slots get no objects: too few keys in a row would fall on them.
const SLOTS_MIN: usize = 64;

/// How often a cluster is asked for its map at most.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// How long one node may take to send the map.
const ASK_PATIENCE: Duration = Duration::from_millis(500);

/// Stands for no home.
const NOBODY: u16 = u16::MAX;

/// The servers to which objects go.
#[derive(Debug)]
pub(super) enum Routes {
    /// Servers that know nothing of each other.
    Nodes(Vec<Address>),
    /// A cluster.
    Cluster(Cluster),
}

/// A cluster's map: as it was, and as it is.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The home of each slot.
    home: Box<[u16]>,
    homes: usize,
    /// The nodes as they were, which may be the only ones that answer when others are gone.
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

/// A node's description of its cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Map {
    /// Index of the master of each slot, or `NOBODY`.
    masters: Vec<u16>,
    /// All nodes, masters and replicas.
    nodes: Vec<Address>,
}

/// A key, and the slot that it falls into.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) text: String,
    slot: usize,
}

impl Routes {
    /// Returns the routes of the cluster that `seed` belongs to.
    pub(super) fn cluster(
        links: &Connections,
        seed: &Address,
        deadline: Instant,
    ) -> Result<Self, Trouble> {
        let map = Map::ask(links, seed, deadline)?;
        let mut slots = vec![0_usize; map.nodes.len()];
        for master in map.masters.iter().filter(|master| **master != NOBODY) {
            slots[usize::from(*master)] += 1;
        }
        let mut homes = 0;
        let numbered: Vec<u16> = slots
            .iter()
            .map(|count| {
                if *count < SLOTS_MIN {
                    return NOBODY;
                }
                homes += 1;
                homes - 1
            })
            .collect();
        let home = map.masters.iter();
        let home = home.map(|master| numbered.get(usize::from(*master)).copied());
        let home = home.map(|home| home.unwrap_or(NOBODY)).collect();
        if homes == 0 {
            return Err(Trouble::NotNow("the cluster has no masters with slots".to_owned()));
        }
        Ok(Self::Cluster(Cluster {
            home,
            homes: usize::from(homes),
            first: map.nodes.clone(),
            now: RwLock::new(Arc::new(map)),
            asked: Mutex::new(Asked { when: Instant::now(), next: 0 }),
        }))
    }

    /// Returns how many masters share the objects.
    pub(super) fn homes(&self) -> usize {
        match self {
            Self::Nodes(nodes) => nodes.len(),
            Self::Cluster(cluster) => cluster.homes,
        }
    }

    /// Returns the masters now.
    pub(super) fn masters(&self) -> Vec<Address> {
        match self {
            Self::Nodes(nodes) => nodes.clone(),
            Self::Cluster(cluster) => {
                let map = cluster.map();
                let mut masters: Vec<u16> = map.masters.clone();
                masters.sort_unstable();
                masters.dedup();
                let known = masters.iter().filter_map(|at| map.nodes.get(usize::from(*at)));
                known.cloned().collect()
            }
        }
    }

    /// Returns where a home is now, if it is anywhere.
    pub(super) fn place(&self, home: usize) -> Option<Address> {
        match self {
            Self::Nodes(nodes) => nodes.get(home).cloned(),
            Self::Cluster(cluster) => {
                let map = cluster.map();
                let slot = cluster.home.iter().position(|of| usize::from(*of) == home)?;
                map.nodes.get(usize::from(map.masters[slot])).cloned()
            }
        }
    }

    /// Returns the key of an object's copy at `home`. A cluster deals keys out by a checksum, so a
    /// salt is searched for that lets the key fall to that home.
    pub(super) fn key(&self, prefix: &str, number: u64, home: usize) -> Key {
        let text = |salt: usize| format!("zfold:{prefix}:{number}:{salt}");
        match self {
            Self::Nodes(_) => Key { text: text(home), slot: home },
            Self::Cluster(cluster) => (0..)
                .map(|salt| {
                    let text = text(salt);
                    Key { slot: slot(&text), text }
                })
                .find(|key| usize::from(cluster.home[key.slot]) == home)
                .expect("a home has slots, and keys fall into all slots"),
        }
    }

    /// Returns the server to ask for a key.
    pub(super) fn address(&self, key: &Key) -> Result<Address, Trouble> {
        let found = match self {
            Self::Nodes(nodes) => nodes.get(key.slot).cloned(),
            Self::Cluster(cluster) => {
                let map = cluster.map();
                map.nodes.get(usize::from(map.masters[key.slot])).cloned()
            }
        };
        found.ok_or_else(|| Trouble::NotNow("no master has the key's slot".to_owned()))
    }

    /// Asks the cluster for its map, a different node each time, unless another thread did so just
    /// now.
    pub(super) fn refresh(&self, links: &Connections, deadline: Instant) {
        let Self::Cluster(cluster) = self else { return };
        let Ok(mut asked) = cluster.asked.try_lock() else { return };
        if asked.when.elapsed() < ASK_EVERY {
            return;
        }
        let mut nodes = cluster.map().nodes.clone();
        nodes.extend_from_slice(&cluster.first);
        for _ in 0..nodes.len() {
            asked.next = (asked.next + 1) % nodes.len();
            let until = deadline.min(Instant::now() + ASK_PATIENCE);
            if let Ok(map) = Map::ask(links, &nodes[asked.next], until) {
                *sound(cluster.now.write()) = Arc::new(map);
                break;
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        asked.when = Instant::now();
    }
}

impl Cluster {
    fn map(&self) -> Arc<Map> {
        let now = sound(self.now.read());
        Arc::clone(&now)
    }
}

impl Map {
    /// Asks one node.
    fn ask(links: &Connections, node: &Address, deadline: Instant) -> Result<Self, Trouble> {
        let reply = links.call(node, redis::cmd("CLUSTER").arg("SLOTS"), deadline)?;
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

    #[test]
    fn copies_fall_to_the_homes_that_they_are_for() {
        let home: Box<[u16]> = (0..SLOTS).map(|slot| (slot % 3) as u16).collect();
        let map = Map { masters: home.to_vec(), nodes: Vec::new() };
        let routes = Routes::Cluster(Cluster {
            home,
            homes: 3,
            first: Vec::new(),
            now: RwLock::new(Arc::new(map)),
            asked: Mutex::new(Asked { when: Instant::now(), next: 0 }),
        });
        for number in 0..100 {
            for home in 0..3 {
                let key = routes.key("prefix", number, home);
                assert_eq!(slot(&key.text) % 3, home, "{key:?}");
            }
        }
    }
}
