//! A cache: values of any length by keys of bytes, compressed, under a limit.
//!
//! ```text
//!   insert: value -> pieces -> codec -> objects of the pool -> index -> oldest values leave
//!   get:    key -> index -> objects -> codec -> value
//! ```
//!
//! - K1: a value is what one call of [`Cache::insert`] gave its key, all of it, or absent.
//! - K2: codecs run and objects are made, read and freed without any lock of the cache: a thread
//!   that works on a value has a reference to it, and the last reference frees its objects.
//! - K3: after an insertion that failed its key has no value: never the one before.
//! - K4: what is held exceeds the limit at most by the calls in progress, each of which takes no
//!   more than the limit for its value, however long that is. Values leave in the order of their
//!   last use, a share of the limit at a time, so that compaction is worth its while.
//! - K5: a call looks for its key and changes what it finds under one hold of the index's lock: one
//!   call alone takes a value, and [`Cache::get_or_insert`] replaces none.
//!
//! Lock order: the turn to make room, then the index. Both are held for no call of the pool but the
//! compaction under the turn.

mod index;
mod options;
mod value;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zfold_pool::Lock;

use crate::error::OpenError;
use crate::pages::contexts::Contexts;
use index::Index;
use options::Counters;
use value::{Objects, Value};

pub use options::{CacheError, CacheOptions, CacheStats};

/// When values leave, at least one byte in so many of the limit becomes free.
const SHARE: u64 = 64;

/// Values by key, compressed; the least recently used leave when the limit is hit. All methods take
/// `&self` and may be called from any number of threads.
///
/// A value is read or inserted with one short lock of the whole cache; compression and
/// decompression go on beside it. A value costs its compressed bytes and about 140 bytes besides,
/// its key included if that is short.
///
/// A forked child must neither call nor drop its parent's: see [`zfold_pool::process::Local`].
///
/// # Examples
/// ```
/// use zfold_store::{Cache, CacheOptions};
///
/// let cache = Cache::open(&CacheOptions::new(16 << 20))?;
/// cache.insert(b"/index.html", "<p>hello</p>".repeat(1000).as_bytes())?;
/// assert_eq!(cache.get(b"/index.html")?.map(|page| page.len()), Some(12_000));
/// assert!(cache.get(b"/other.html")?.is_none());
/// assert!(cache.remove(b"/index.html"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Cache {
    objects: Arc<Objects>,
    index: Lock<Index>,
    /// Bytes of the index, as of its last change.
    index_bytes: AtomicU64,
    limit_bytes: AtomicU64,
    /// One thread at a time makes room.
    turn: Lock<()>,
    counts: Counters,
}

impl Cache {
    /// Returns an empty cache.
    ///
    /// # Errors
    /// [`OpenError`] if the pool or the codec cannot be had.
    pub fn open(options: &CacheOptions) -> Result<Self, OpenError> {
        let pool = zfold_pool::create("cache", &options.pool).map_err(OpenError::Pool)?;
        let piece_len = pool.stats().page_size.bytes().min(pool.len_max());
        let contexts = Contexts::new(piece_len, vec![options.codec.clone()]);
        let contexts = contexts.map_err(OpenError::Codec)?;
        Ok(Self {
            objects: Arc::new(Objects { pool, contexts, piece_len }),
            index: Lock::default(),
            index_bytes: AtomicU64::new(0),
            limit_bytes: AtomicU64::new(options.limit_bytes),
            turn: Lock::default(),
            counts: Counters::default(),
        })
    }

    /// Gives `key` the value `bytes`, in place of the one it had, if it had one. The least recently
    /// used values leave if there is no room.
    ///
    /// # Errors
    /// [`CacheError`]; `key` has no value then.
    ///
    /// # Cost
    /// The codec's compression, and about 300 ns; at the limit now and then an eviction of a 64th
    /// of all values, with a compaction of the pool.
    pub fn insert(&self, key: &[u8], bytes: &[u8]) -> Result<(), CacheError> {
        let inserted = self.value(key, bytes).and_then(|value| {
            drop(self.with_index(|index| index.insert(value)));
            self.settle()
        });
        if inserted.is_err() {
            drop(self.with_index(|index| index.remove(key)));
        }
        self.count_insertion(inserted)
    }

    /// Gives `key` the value `bytes` unless it has one; returns the value that it has then already,
    /// of which this is a use. Of several threads that call it at once, one inserts its value, and
    /// all others get that.
    ///
    /// # Errors
    /// [`CacheError`]; the value of `key` is as it was.
    ///
    /// # Cost
    /// As [`get`](Self::get) if `key` has a value, otherwise as [`insert`](Self::insert) besides.
    pub fn get_or_insert(&self, key: &[u8], bytes: &[u8]) -> Result<Option<Vec<u8>>, CacheError> {
        if let Some(found) = self.get(key)? {
            return Ok(Some(found));
        }
        let value = match self.value(key, bytes) {
            Ok(value) => value,
            Err(error) => return self.count_insertion(Err(error)).map(|()| None),
        };
        let found = self.with_index(|index| {
            let found = index.used(key);
            if found.is_none() {
                index.insert(Arc::clone(&value));
            }
            found
        });
        drop(value);
        match found {
            None => self.count_insertion(self.settle()).map(|()| None),
            Some(found) => {
                self.make_room();
                found.to_vec().map(Some)
            }
        }
    }

    /// Makes a value that fits below the limit.
    fn value(&self, key: &[u8], bytes: &[u8]) -> Result<Arc<Value>, CacheError> {
        let limit_bytes = self.limit_bytes();
        let value = Value::new(&self.objects, key, bytes, limit_bytes)?;
        // Once more: the codec may have taken working memory meanwhile.
        let least = value.stored_bytes() + value.charged_bytes() + self.objects.contexts.bytes();
        if least > limit_bytes {
            return Err(CacheError::TooLarge { limit_bytes });
        }
        Ok(Arc::new(value))
    }

    /// Makes room for a value that is in the index; fails if that took all values, it too.
    fn settle(&self) -> Result<(), CacheError> {
        let limit_bytes = self.limit_bytes();
        if self.make_room() { Ok(()) } else { Err(CacheError::TooLarge { limit_bytes }) }
    }

    fn count_insertion(&self, inserted: Result<(), CacheError>) -> Result<(), CacheError> {
        match inserted {
            Ok(()) => self.counts.insertions_total.add(1),
            Err(_) => {
                // What the value took must not stay as idle memory above the limit.
                self.make_room();
                self.counts.refusals_total.add(1);
            }
        }
        inserted
    }

    /// Returns the value of `key`, which counts as a use; `None` if it has none.
    ///
    /// # Errors
    /// [`CacheError::NoMemory`], [`CacheError::Damaged`] or [`CacheError::Dead`].
    ///
    /// # Cost
    /// The codec's decompression, an allocation, and about 200 ns.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, CacheError> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Reads the value of `key` into `out` in place of what is there, which counts as a use;
    /// returns whether there is one. If not, `out` is left as it is.
    ///
    /// # Errors
    /// As [`get`](Self::get); `out` then holds anything.
    pub fn get_into(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, CacheError> {
        // Nothing of the index changes its size.
        let Some(value) = self.index.lock().used(key) else {
            self.counts.misses_total.add(1);
            return Ok(false);
        };
        value.read(out)?;
        self.counts.hits_total.add(1);
        Ok(true)
    }

    /// Takes the value of `key` out and returns it; `None` if it has none. Of several threads that
    /// call it at once, one gets the value.
    ///
    /// # Errors
    /// As [`get`](Self::get); `key` has no value then.
    ///
    /// # Cost
    /// As [`get`](Self::get).
    pub fn take(&self, key: &[u8]) -> Result<Option<Vec<u8>>, CacheError> {
        let Some(value) = self.with_index(|index| index.remove(key)) else {
            self.counts.misses_total.add(1);
            return Ok(None);
        };
        self.taken(&value).map(Some)
    }

    /// Takes the least recently used value out and returns it with its key; `None` if there is no
    /// value.
    ///
    /// # Errors
    /// As [`get`](Self::get); the key has no value then.
    ///
    /// # Cost
    /// As [`get`](Self::get).
    #[expect(clippy::type_complexity, reason = "key and value need no type of their own")]
    pub fn take_oldest(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>, CacheError> {
        // Every value takes more than a byte.
        let oldest = self.with_index(|index| index.take_oldest(1)).pop();
        oldest.map(|value| Ok((value.key().to_vec(), self.taken(&value)?))).transpose()
    }

    /// Reads a value that was taken out.
    fn taken(&self, value: &Value) -> Result<Vec<u8>, CacheError> {
        self.counts.removals_total.add(1);
        let bytes = value.to_vec()?;
        self.counts.hits_total.add(1);
        Ok(bytes)
    }

    /// Takes the value of `key` out; returns whether there was one.
    pub fn remove(&self, key: &[u8]) -> bool {
        let removed = self.with_index(|index| index.remove(key)).is_some();
        self.counts.removals_total.add(removed.into());
        removed
    }

    /// Returns whether `key` has a value, which does not count as a use.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.index.lock().contains(key)
    }

    /// Returns the keys of all values, the least recently used first.
    ///
    /// # Cost
    /// A copy of each key, under the cache's lock.
    #[must_use]
    pub fn keys(&self) -> Vec<Box<[u8]>> {
        self.index.lock().keys()
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.lock().len()
    }

    /// Returns whether there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes all values out and returns their memory to the system.
    pub fn clear(&self) {
        let all = self.with_index(std::mem::take);
        self.counts.removals_total.add(all.len() as u64);
        drop(all);
        self.objects.pool.compact(u64::MAX);
    }

    /// Returns the limit in bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Changes the limit; values leave at once if it is lower than what is held.
    pub fn resize(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
        self.make_room();
    }

    /// Returns all bytes of memory that the cache holds, which the limit is for.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.objects.pool.held_bytes() + self.metadata_bytes()
    }

    fn metadata_bytes(&self) -> u64 {
        self.index_bytes.load(Ordering::Relaxed) + self.objects.contexts.bytes()
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let (values, value_bytes) = {
            let index = self.index.lock();
            (index.len() as u64, index.value_bytes())
        };
        let pool = self.objects.pool.stats();
        CacheStats {
            limit_bytes: self.limit_bytes(),
            held_bytes: self.held_bytes(),
            metadata_bytes: self.metadata_bytes(),
            value_bytes,
            compressed_bytes: pool.payload_bytes,
            values,
            pool,
            ..self.counts.read()
        }
    }

    /// Asserts the invariants of pool and index.
    ///
    /// # Panics
    /// If one is broken. Call it while no other call is in progress.
    pub fn check(&self) {
        self.index.lock().check();
        self.objects.pool.check();
    }

    /// Changes the index; what `change` returns is dropped without the lock, by who called (K2).
    fn with_index<R>(&self, change: impl FnOnce(&mut Index) -> R) -> R {
        let mut index = self.index.lock();
        let result = change(&mut index);
        self.index_bytes.store(index.bytes(), Ordering::Relaxed);
        result
    }

    /// Has the oldest values leave until what is held is within the limit; returns whether values
    /// are left, or none had to leave.
    fn make_room(&self) -> bool {
        let above = || self.held_bytes().saturating_sub(self.limit_bytes());
        if above() == 0 {
            return true;
        }
        let _turn = self.turn.lock();
        // Idle memory first.
        self.objects.pool.compact(0);
        while let above @ 1.. = above() {
            let bytes = above.max(self.limit_bytes() / SHARE);
            let evicted = self.with_index(|index| index.take_oldest(bytes));
            self.counts.evictions_total.add(evicted.len() as u64);
            if evicted.is_empty() {
                break;
            }
            drop(evicted);
            self.objects.pool.compact(u64::MAX);
        }
        !self.is_empty()
    }
}
