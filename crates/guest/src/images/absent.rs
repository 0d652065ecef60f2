//! Pages that left guests: a store of their own, with a range of keys for each guest.
//!
//! They belong to one server while it lives: no snapshot has them, and a copy of this memory drops
//! them. Callers have opened the gate of the images (gate/F1).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use zfold_store::{LoadError, Store, StoreOptions, StoreStats};

use super::keys::{free, keys_of};

/// The store, and the ranges of keys in use: each end by its beginning.
#[derive(Debug)]
pub(crate) struct Absent {
    options: StoreOptions,
    /// Made when it is first needed.
    store: OnceLock<Store>,
    taken: Mutex<BTreeMap<u64, u64>>,
}

/// The keys of a guest, until they are given back.
#[derive(Debug)]
pub(crate) struct Keys {
    absent: Arc<Absent>,
    keys: Range<u64>,
}

impl Absent {
    pub(super) fn new(options: StoreOptions) -> Self {
        Self { options, store: OnceLock::new(), taken: Mutex::default() }
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stats(&self) -> StoreStats {
        self.store.get().map_or_else(StoreStats::default, Store::stats)
    }

    /// Forgets everything, in a copy of this memory that has no other threads.
    pub(super) fn clear(&self) {
        let taken = std::mem::take(&mut *self.taken());
        let Some(store) = self.store.get() else { return };
        for (start, end) in taken {
            store.invalidate_range(start..end);
        }
        store.compact();
    }

    /// Returns keys for so many pages, if there are any left.
    pub(crate) fn take(self: &Arc<Self>, pages: u64) -> Option<Keys> {
        if self.store.get().is_none() {
            let made = Store::open(&self.options).ok()?;
            // Another thread may have been faster.
            let _ = self.store.set(made);
        }
        let mut taken = self.taken();
        let len = keys_of(pages, 0);
        let first = free(taken.iter().map(|(start, end)| *start..*end), len)?;
        taken.insert(first, first + len);
        drop(taken);
        Some(Keys { absent: Arc::clone(self), keys: first..first + len })
    }
}

impl Keys {
    fn store(&self) -> &Store {
        self.absent.store.get().expect("made before there were keys")
    }

    /// Keeps a page; returns whether there was room.
    pub(crate) fn keep(&self, unit: u64, page: &[u8]) -> bool {
        self.store().store(self.keys.start + unit, page).is_ok()
    }

    pub(crate) fn recall(&self, unit: u64, into: &mut [u8]) -> Result<(), LoadError> {
        match self.store().load(self.keys.start + unit, into)? {
            true => Ok(()),
            // Nobody asks for a page that was not kept.
            false => Err(LoadError::Dead),
        }
    }

    pub(crate) fn forget(&self, unit: u64) {
        self.store().invalidate(self.keys.start + unit);
    }

    /// Drops all kept pages, and returns the keys.
    pub(crate) fn give_back(&self) {
        self.store().invalidate_range(self.keys.clone());
        self.store().compact_if_due();
        self.absent.taken().remove(&self.keys.start);
    }
}
