//! Which values a cache has, and in what order they were used. Single-threaded.
//!
//! - V1: `charged_bytes` is the sum of the bytes that the values take outside the index.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher, RandomState};
use std::sync::Arc;

use lru::LruCache;

use super::value::Value;

/// Bytes of a place in the hash table: two pointers, and a byte of the table's own.
const PLACE_BYTES: u64 = 2 * size_of::<usize>() as u64 + 1;

/// Bytes of a node in the order of use: the key, two neighbours, and what the allocator adds.
const NODE_BYTES: u64 = 4 * size_of::<usize>() as u64;

/// A value as a key of the table: its key's bytes.
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

/// The values of a cache.
#[derive(Debug)]
pub(super) struct Index {
    values: LruCache<Key, (), RandomState>,
    /// The most values that there were: the table does not shrink.
    most: usize,
    charged_bytes: u64,
    /// Bytes of all values, as their owners know them.
    value_bytes: u64,
}

impl Default for Index {
    fn default() -> Self {
        let values = LruCache::unbounded_with_hasher(RandomState::new());
        Self { values, most: 0, charged_bytes: 0, value_bytes: 0 }
    }
}

impl Index {
    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns the bytes of all values, as their owners know them.
    pub(super) fn value_bytes(&self) -> u64 {
        self.value_bytes
    }

    /// Returns all bytes of memory that the index, keys and values take, but for the values'
    /// objects.
    pub(super) fn bytes(&self) -> u64 {
        // A hash table leaves an eighth of its places empty, and doubles.
        let places = (8 * self.most).div_ceil(7).next_power_of_two() as u64;
        places * PLACE_BYTES + self.len() as u64 * NODE_BYTES + self.charged_bytes
    }

    /// Returns whether there is a value of `key`, which does not count as a use.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.values.contains(key)
    }

    /// Returns the value of `key`, which is the newest then.
    pub(super) fn used(&mut self, key: &[u8]) -> Option<Arc<Value>> {
        self.values.get_key_value(key).map(|(Key(value), ())| Arc::clone(value))
    }

    /// Makes `value` the newest; returns the value that its key had.
    pub(super) fn insert(&mut self, value: Arc<Value>) -> Option<Arc<Value>> {
        let old = self.remove(value.key());
        self.charged_bytes += value.charged_bytes();
        self.value_bytes += value.len() as u64;
        self.values.put(Key(value), ());
        self.most = self.most.max(self.len());
        old
    }

    /// Takes the value of `key` out.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Arc<Value>> {
        let (Key(value), ()) = self.values.pop_entry(key)?;
        Some(self.uncount(value))
    }

    /// Returns copies of all keys, the oldest first.
    pub(super) fn keys(&self) -> Vec<Box<[u8]>> {
        self.values.iter().rev().map(|(Key(value), ())| value.key().into()).collect()
    }

    /// Takes the oldest values out, until those taken say that they take `bytes`, their objects
    /// included, or none is left.
    pub(super) fn take_oldest(&mut self, bytes: u64) -> Vec<Arc<Value>> {
        let (mut taken, mut taken_bytes) = (Vec::new(), 0);
        while taken_bytes < bytes
            && let Some((Key(value), ())) = self.values.pop_lru()
        {
            taken_bytes += value.charged_bytes() + value.stored_bytes();
            taken.push(self.uncount(value));
        }
        taken
    }

    /// Uncounts a value that was taken out.
    fn uncount(&mut self, value: Arc<Value>) -> Arc<Value> {
        self.charged_bytes -= value.charged_bytes();
        self.value_bytes -= value.len() as u64;
        value
    }

    /// Asserts V1.
    ///
    /// # Panics
    /// If it is broken.
    pub(super) fn check(&self) {
        let charged: u64 = self.values.iter().map(|(Key(value), ())| value.charged_bytes()).sum();
        assert_eq!(self.charged_bytes, charged, "V1");
    }
}
