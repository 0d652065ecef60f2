//! The store, which of its keys are in use, and by how many address spaces: parent and child of a
//! fork share the pages that were stored before it.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard};

use zfold_pool::Lock;
use zfold_store::Store;

use crate::core::pages::{Key, PAYLOADS};

/// A store and its keys.
pub(crate) struct Stock {
    pub store: Arc<Store>,
    keys: Lock<Keys>,
}

impl Stock {
    /// Returns a store of which no key is in use.
    pub(crate) fn new(store: Arc<Store>) -> Self {
        let keys = u32::try_from(store.slots()).unwrap_or(PAYLOADS).min(PAYLOADS);
        Self { store, keys: Lock::new(Keys::new(keys)) }
    }

    /// Takes the lock of the keys, a leaf.
    pub(crate) fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock()
    }

    /// Removes a user of each of these keys. Those that it was the last user of are free when what
    /// this returns is dropped.
    pub(crate) fn release(&self, keys: impl Iterator<Item = Key>) -> Unused<'_> {
        let mut of = None;
        let last = keys.filter(|&key| of.get_or_insert_with(|| self.keys()).release(key));
        Unused { stock: self, keys: last.collect() }
    }
}

/// Keys that nobody uses.
///
/// # Cost
/// A free in the store for each of them, when this is dropped.
pub(crate) struct Unused<'a> {
    stock: &'a Stock,
    keys: Vec<Key>,
}

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        for &key in &self.keys {
            self.stock.store.invalidate(u64::from(key));
        }
        if !self.keys.is_empty() {
            let mut keys = self.stock.keys();
            self.keys.drain(..).for_each(|key| keys.put_back(key));
        }
    }
}

/// The keys of a store.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Keys that were used and are free, the next one last.
    free: Vec<Key>,
    /// The lowest key never used.
    next: Key,
    /// Number of keys.
    end: Key,
    /// References beyond the first.
    shared: HashMap<Key, u32>,
}

impl Keys {
    /// Returns the keys 0 to `count - 1`, all free.
    fn new(count: Key) -> Self {
        Self { free: Vec::new(), next: 0, end: count, shared: HashMap::new() }
    }

    /// Returns how many there are.
    pub(crate) fn count(&self) -> Key {
        self.end
    }

    /// Takes a key into use; `None` if all are.
    pub(crate) fn take(&mut self) -> Option<Key> {
        self.free.pop().or_else(|| {
            let key = self.next;
            self.next += u32::from(key < self.end);
            (key < self.end).then_some(key)
        })
    }

    /// Adds a user of a key that is in use.
    pub(crate) fn share(&mut self, key: Key) {
        *self.shared.entry(key).or_insert(0) += 1;
    }

    /// Returns whether a key in use has more than one user.
    pub(crate) fn is_shared(&self, key: Key) -> bool {
        self.shared.contains_key(&key)
    }

    /// Removes a user; returns whether it was the last. Then the caller empties the key and puts
    /// it back.
    fn release(&mut self, key: Key) -> bool {
        // Without forks there is nothing to look up.
        if self.shared.is_empty() {
            return true;
        }
        match self.shared.get_mut(&key) {
            None => true,
            Some(1) => {
                self.shared.remove(&key);
                false
            }
            Some(more) => {
                *more -= 1;
                false
            }
        }
    }

    /// Puts back a key that nobody uses and that holds nothing.
    fn put_back(&mut self, key: Key) {
        self.free.push(key);
    }

    /// Returns how many keys are in use.
    pub(crate) fn used(&self) -> usize {
        self.next as usize - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_when_the_last_user_is_gone() {
        let mut keys = Keys::new(2);
        let (a, b) = (keys.take().unwrap(), keys.take().unwrap());
        assert_ne!(a, b);
        assert_eq!(keys.take(), None, "both in use");
        keys.share(a);
        keys.share(a);
        assert!(!keys.release(a));
        assert!(keys.release(b));
        keys.put_back(b);
        assert_eq!(keys.take(), Some(b));
        assert!(!keys.release(a));
        assert!(keys.release(a));
        assert_eq!(keys.used(), 2, "not before it is put back");
        keys.put_back(a);
        assert_eq!(keys.used(), 1);
    }
}
