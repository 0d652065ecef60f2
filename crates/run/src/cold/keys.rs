//! Which keys of the store are in use, and by how many address spaces: parent and child of a fork
//! share the pages that were stored before it.

use std::collections::HashMap;

use crate::core::pages::Key;

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
    pub(crate) fn new(count: Key) -> Self {
        Self { free: Vec::new(), next: 0, end: count, shared: HashMap::new() }
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
    pub(crate) fn release(&mut self, key: Key) -> bool {
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
    pub(crate) fn put_back(&mut self, key: Key) {
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
