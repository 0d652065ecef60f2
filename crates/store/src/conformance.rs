//! A model of the store that any sequence of operations can be held against, for tests, property
//! tests and fuzz targets.

use std::collections::HashMap;

use crate::error::StoreError;
use crate::store::{Store, Stored};

/// Keys that a model uses: enough to keep some, few enough to meet again.
const KEYS: u64 = 600;

/// An operation on a store. `fill` says how the page's bytes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Stores a page.
    Store {
        /// The key.
        key: u64,
        /// A seed of the page's contents; its low bits choose how well it compresses.
        fill: u32,
    },
    /// Loads a page and compares.
    Load {
        /// The key.
        key: u64,
    },
    /// Invalidates a page.
    Invalidate {
        /// The key.
        key: u64,
    },
    /// Compacts the store.
    Compact,
}

impl Op {
    /// Returns the operation that a random word stands for.
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        let key = (word >> 8) % KEYS;
        match word & 15 {
            0..=5 => Self::Store { key, fill: (word >> 32) as u32 },
            6..=11 => Self::Load { key },
            12..=14 => Self::Invalidate { key },
            // Compaction is rare: most words that land here load instead.
            _ if word >> 4 & 15 == 0 => Self::Compact,
            _ => Self::Load { key },
        }
    }
}

/// Returns a page that `fill` stands for: same-filled, compressible to various degrees, or noise.
#[must_use]
pub fn page(fill: u32, len: usize) -> Vec<u8> {
    let mut state = u64::from(fill) | 1;
    let mut noise = || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 56) as u8
    };
    match fill & 7 {
        0 => fill.to_le_bytes().repeat(2).repeat(len / 8),
        // Noise up to a place that `fill` chooses, then a pattern.
        share => {
            let noisy = len * share as usize / 7;
            (0..len).map(|at| if at < noisy { noise() } else { (at / 16) as u8 }).collect()
        }
    }
}

/// What a store should hold.
#[derive(Debug)]
pub struct Model<'a> {
    store: &'a Store,
    /// First key of the range of `KEYS` that this model alone uses.
    base: u64,
    pages: HashMap<u64, Vec<u8>>,
    buffer: Vec<u8>,
}

impl<'a> Model<'a> {
    /// Returns the model of the keys `base..base + 600` of `store`, which nobody else uses.
    ///
    /// # Panics
    /// If the store has fewer slots.
    #[must_use]
    pub fn new(store: &'a Store, base: u64) -> Self {
        assert!(store.slots() >= base + KEYS, "the model needs {KEYS} slots");
        Self { store, base, pages: HashMap::new(), buffer: vec![0; store.page_len()] }
    }

    /// Does `op` in store and model.
    ///
    /// # Panics
    /// If the store does not do what it should. Refusing a page is allowed, if the key holds
    /// nothing afterwards.
    pub fn apply(&mut self, op: &Op) {
        match *op {
            Op::Store { key, fill } => self.store(self.base + key, fill),
            Op::Load { key } => self.load(self.base + key),
            Op::Invalidate { key } => {
                let key = self.base + key;
                assert_eq!(self.store.invalidate(key), self.pages.remove(&key).is_some());
            }
            Op::Compact => {
                self.store.compact();
            }
        }
    }

    /// Checks every page and drops it.
    ///
    /// # Panics
    /// If the store does not do what it should.
    pub fn finish(mut self) {
        (0..KEYS).for_each(|key| self.load(self.base + key));
        for key in std::mem::take(&mut self.pages).into_keys() {
            assert!(self.store.invalidate(key));
            assert!(!self.store.contains(key));
        }
    }

    fn store(&mut self, key: u64, fill: u32) {
        let page = page(fill, self.store.page_len());
        match self.store.store(key, &page) {
            Ok(stored) => {
                assert!(fill & 7 != 0 || stored == Stored::SameFilled, "{stored:?}");
                self.pages.insert(key, page);
            }
            Err(StoreError::Full | StoreError::Incompressible | StoreError::Pool(_)) => {
                self.pages.remove(&key);
            }
            Err(error) => panic!("store of {key}: {error}"),
        }
    }

    fn load(&mut self, key: u64) {
        let found = self.store.load(key, &mut self.buffer).expect("a page that can be loaded");
        assert_eq!(found, self.pages.contains_key(&key), "presence of {key}");
        assert_eq!(found, self.store.contains(key));
        if let Some(page) = self.pages.get(&key) {
            assert!(*page == self.buffer, "the page of {key} has other bytes than were stored");
        }
    }
}
