//! A model of the store that any sequence of operations can be held against, for tests, property
//! tests and fuzz targets.

use std::collections::HashMap;

use zfold_pool::PoolOptions;

use crate::codec::CodecKind;
use crate::content::Stored;
use crate::error::{ProcessError, StoreError, UpdateError};
use crate::options::StoreOptions;
use crate::store::Store;
use crate::store::postprocess::{Recompress, Selection};

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
    /// Changes a few bytes of a page in place.
    Update {
        /// The key.
        key: u64,
        /// The bytes are made of this.
        fill: u32,
    },
    /// Compacts the store.
    Compact,
    /// Marks all pages idle.
    Idle,
    /// Writes some pages back, if there is a backing file: idle, huge or least recently used
    /// ones.
    WriteBack(u8),
    /// Recompresses some pages, if there is a codec to do it.
    Recompress(u8),
    /// Takes a snapshot, restores it into an empty store and compares.
    Snapshot,
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
            // What concerns all pages is rare: most words that land here change a page instead.
            _ => match word >> 4 & 63 {
                0 | 1 => Self::Compact,
                2 => Self::Idle,
                3..=9 => Self::WriteBack((word >> 32) as u8),
                10..=13 => Self::Recompress((word >> 32) as u8),
                14 => Self::Snapshot,
                _ => Self::Update { key, fill: (word >> 32) as u32 },
            },
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
        // Of words with two equal halves, and of others.
        0 if fill & 8 == 0 => fill.to_le_bytes().repeat(len / 4),
        0 => u64::from(fill).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes().repeat(len / 8),
        // Noise up to a place that `fill` chooses, then a pattern.
        share => {
            let noisy = len * share as usize / 7;
            (0..len).map(|at| if at < noisy { noise() } else { (at / 16) as u8 }).collect()
        }
    }
}

fn selection(choice: u8) -> Selection {
    match choice & 3 {
        0 => Selection::Idle,
        1 => Selection::Huge,
        2 => Selection::All,
        _ => Selection::Lru,
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
    /// Returns the model of the keys `base..base + 600` of `store`, which no other thread uses.
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
            Op::Update { key, fill } => self.update(self.base + key, fill),
            Op::Compact => {
                self.store.compact();
            }
            Op::Idle => {
                self.store.mark_idle(None);
            }
            Op::WriteBack(choice) => {
                let pages = Some(u64::from(choice >> 2));
                match self.store.writeback(&selection(choice), pages) {
                    Ok(_) | Err(ProcessError::NoBacking | ProcessError::BackingFull) => {}
                    Err(error) => panic!("writeback: {error}"),
                }
            }
            Op::Recompress(choice) => self.recompress(choice),
            Op::Snapshot => self.snapshot(),
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

    fn update(&mut self, key: u64, fill: u32) {
        let at = fill as usize % (self.store.page_len() - 16);
        let change = |page: &mut [u8]| page[at..at + 4].copy_from_slice(&fill.to_le_bytes());
        match self.store.update(key, change) {
            Ok(_) => {
                let empty = || vec![0; self.store.page_len()];
                change(self.pages.entry(key).or_insert_with(empty));
            }
            // The page is as it was.
            Err(UpdateError::Store(
                StoreError::Full | StoreError::Incompressible | StoreError::Pool(_),
            )) => {}
            Err(error) => panic!("update of {key}: {error}"),
        }
    }

    fn recompress(&self, choice: u8) {
        let recompress = Recompress::new(selection(choice), 1)
            .with_threshold_bytes((choice & 4 == 0).then_some(200))
            .with_max_pages((choice & 8 == 0).then_some(20));
        match self.store.recompress(&recompress) {
            Ok(done) => assert!(done.bytes_after <= done.bytes_before),
            Err(ProcessError::Priority { max: 0, .. } | ProcessError::Pool(_)) => {}
            Err(error) => panic!("recompression: {error}"),
        }
    }

    /// Only this model's keys are compared: others may change while the snapshot is taken.
    fn snapshot(&mut self) {
        let mut file = Vec::new();
        let report = self.store.save(b"model", &mut file).expect("a snapshot");
        assert_eq!(report.bytes, file.len() as u64);
        let page_size = self.store.stats().pool.page_size;
        let pool = PoolOptions::default().with_page_size(page_size);
        let pool = zfold_pool::create("restored", &pool).expect("a pool");
        let options = StoreOptions::new(self.store.slots(), CodecKind::Lz4.into());
        let restored = Store::new(pool, &options).expect("a store");
        assert_eq!(restored.restore(&mut &file[..]).expect("a whole snapshot"), report);
        for key in self.base..self.base + KEYS {
            let found = restored.load(key, &mut self.buffer).expect("a page");
            assert_eq!(found, self.pages.contains_key(&key), "presence of {key} in a snapshot");
            assert!(!found || self.pages[&key] == self.buffer, "{key} of a snapshot differs");
        }
        restored.check();
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
