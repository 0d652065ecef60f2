//! Which values a cache has, and in what order they were used. Single-threaded.
//!
//! ```text
//!   map:  key -> node          oldest <-> node <-> ... <-> newest
//! ```
//!
//! - V1: map and list hold the same values; a node in neither is in the list of free nodes.
//! - V2: `charged_bytes` is the sum of the bytes that the values take outside map and nodes.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::value::Value;

/// No node.
const NONE: u32 = u32::MAX;

/// Bytes that room for one entry of the map costs: the entry, a byte of the hash table's own, and
/// the eighth that it leaves empty.
const ENTRY_BYTES: u64 = (size_of::<(Key, u32)>() as u64 + 1) * 8 / 7;

/// A value as a key of the map: its key's bytes.
#[derive(Debug)]
struct Key(Arc<Value>);

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.0.key()
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key().hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for Key {}

/// A place in the order of use.
#[derive(Debug)]
struct Node {
    /// `None` in a free node.
    value: Option<Arc<Value>>,
    older: u32,
    /// In a free node the next free one.
    newer: u32,
}

/// The values of a cache.
#[derive(Debug)]
pub(super) struct Index {
    map: HashMap<Key, u32>,
    nodes: Vec<Node>,
    free: u32,
    oldest: u32,
    newest: u32,
    charged_bytes: u64,
    /// Bytes of all values, as their owners know them.
    value_bytes: u64,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            map: HashMap::new(),
            nodes: Vec::new(),
            free: NONE,
            oldest: NONE,
            newest: NONE,
            charged_bytes: 0,
            value_bytes: 0,
        }
    }
}

impl Index {
    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns the bytes of all values, as their owners know them.
    pub(super) fn value_bytes(&self) -> u64 {
        self.value_bytes
    }

    /// Returns all bytes of memory that map, nodes, keys and values take, but for the values'
    /// objects.
    pub(super) fn bytes(&self) -> u64 {
        let nodes = self.nodes.capacity() * size_of::<Node>();
        self.map.capacity() as u64 * ENTRY_BYTES + nodes as u64 + self.charged_bytes
    }

    /// Returns whether there is a value of `key`, which does not count as a use.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.map.contains_key(key)
    }

    /// Returns the value of `key`, which is the newest then.
    pub(super) fn used(&mut self, key: &[u8]) -> Option<Arc<Value>> {
        let node = *self.map.get(key)?;
        if node != self.newest {
            self.unlink(node);
            self.link_newest(node);
        }
        self.nodes[node as usize].value.clone()
    }

    /// Makes `value` the newest; returns the value that its key had.
    ///
    /// # Panics
    /// If there are 2^32 - 1 values.
    pub(super) fn insert(&mut self, value: Arc<Value>) -> Option<Arc<Value>> {
        let old = self.remove(value.key());
        self.charged_bytes += value.charged_bytes();
        self.value_bytes += value.len() as u64;
        let node = self.take_node(Arc::clone(&value));
        self.map.insert(Key(value), node);
        self.link_newest(node);
        old
    }

    /// Takes the value of `key` out.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Arc<Value>> {
        let node = self.map.remove(key)?;
        self.unlink(node);
        let freed = &mut self.nodes[node as usize];
        let value = freed.value.take().expect("V1: a node of the map has a value");
        freed.newer = std::mem::replace(&mut self.free, node);
        self.charged_bytes -= value.charged_bytes();
        self.value_bytes -= value.len() as u64;
        Some(value)
    }

    /// Returns copies of all keys, the oldest first.
    pub(super) fn keys(&self) -> Vec<Box<[u8]>> {
        let mut keys = Vec::with_capacity(self.len());
        let mut node = self.oldest;
        while let Some(found) = self.nodes.get(node as usize) {
            keys.extend(found.value.as_ref().map(|value| value.key().into()));
            node = found.newer;
        }
        keys
    }

    /// Takes the oldest values out, until those taken say that they take `bytes`, their objects
    /// included, or none is left.
    pub(super) fn take_oldest(&mut self, bytes: u64) -> Vec<Arc<Value>> {
        let (mut taken, mut taken_bytes) = (Vec::new(), 0);
        while taken_bytes < bytes
            && let Some(oldest) = self.nodes.get(self.oldest as usize)
        {
            let value = oldest.value.clone().expect("V1: a node of the list has a value");
            taken_bytes += value.charged_bytes() + value.stored_bytes();
            self.remove(value.key());
            taken.push(value);
        }
        taken
    }

    fn take_node(&mut self, value: Arc<Value>) -> u32 {
        let new = Node { value: Some(value), older: NONE, newer: NONE };
        let node = self.free;
        if node == NONE {
            let node = u32::try_from(self.nodes.len()).ok().filter(|&node| node != NONE);
            self.nodes.push(new);
            return node.expect("fewer than 2^32 - 1 values");
        }
        self.free = self.nodes[node as usize].newer;
        self.nodes[node as usize] = new;
        node
    }

    fn link_newest(&mut self, node: u32) {
        let before = std::mem::replace(&mut self.newest, node);
        self.nodes[node as usize].older = before;
        self.nodes[node as usize].newer = NONE;
        match self.nodes.get_mut(before as usize) {
            Some(before) => before.newer = node,
            None => self.oldest = node,
        }
    }

    fn unlink(&mut self, node: u32) {
        let Node { older, newer, .. } = self.nodes[node as usize];
        match self.nodes.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.nodes.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
    }

    /// Asserts V1 and V2.
    ///
    /// # Panics
    /// If one is broken.
    pub(super) fn check(&self) {
        let (mut node, mut older, mut count, mut charged) = (self.oldest, NONE, 0, 0);
        while let Some(found) = self.nodes.get(node as usize) {
            let value = found.value.as_ref().expect("V1: a node of the list has a value");
            assert_eq!(found.older, older, "V1: the list runs both ways");
            assert_eq!(self.map.get(value.key()), Some(&node), "V1: the map has its key");
            charged += value.charged_bytes();
            count += 1;
            (older, node) = (node, found.newer);
        }
        assert_eq!((self.newest, self.map.len()), (older, count), "V1");
        assert_eq!(self.charged_bytes, charged, "V2");
    }
}
