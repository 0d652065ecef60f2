//! Equal pages share one object: which objects there are, by the hash of their bytes, and how
//! many slots refer to each.
//!
//! Compressors are deterministic, so equal pages are equal compressed, and it is the compressed
//! bytes that are hashed and compared: fewer, and they are at hand on either side.
//!
//! - C1: an object in the table has one reference for each slot that holds its handle with
//!   [`Flag::Shared`](crate::entry::Flag); it is freed with the last.
//! - C2: bytes are always compared; a hash alone never makes two pages one. An object whose hash
//!   is taken by other bytes stays outside the table, unshared.
//! - C3: an object in the table is never written again.
//!
//! Locking: one of the shards at a time, under a slot's lock or none; the pool's below it.

use std::collections::HashMap;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64;
use zfold_pool::Lock;
use zfold_pool::{AllocError, Handle, HandleError, Pool};

const SHARDS: usize = 64;

/// Bytes that room for one entry costs: the hash, the object, a byte of the hash table's own, and
/// the eighth that it leaves empty.
const ENTRY_BYTES: u64 = (size_of::<(u64, Object)>() as u64 + 1) * 8 / 7;

/// A shard with less than one in this many places in use releases memory.
const SPARSE: usize = 4;

type Shard = HashMap<u64, Object>;

/// An object that slots share.
#[derive(Debug)]
struct Object {
    handle: Handle,
    references: u32,
}

/// The result of trying to share bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inserted {
    pub(crate) handle: Handle,
    /// Whether the object is in the table.
    pub(crate) shared: bool,
}

/// The table of shared objects.
#[derive(Debug)]
pub(crate) struct Duplicates {
    shards: [Lock<Shard>; SHARDS],
    /// Room for entries in all shards.
    capacity: AtomicU64,
}

impl Duplicates {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Lock::default()), capacity: AtomicU64::new(0) }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[hash as usize % SHARDS];
        // A panic in the pool makes the pool dead; the table itself is whole at every step.
        shard.lock()
    }

    /// Returns an object with these bytes: one that is there already, or a new one.
    pub(crate) fn insert(&self, pool: &dyn Pool, bytes: &[u8]) -> Result<Inserted, AllocError> {
        let hash = xxh3_64(bytes);
        let mut shard = self.shard(hash);
        let Some(object) = shard.get_mut(&hash) else {
            let handle = pool.insert(bytes)?;
            let before = shard.capacity();
            shard.insert(hash, Object { handle, references: 1 });
            self.count_capacity(before, shard.capacity());
            return Ok(Inserted { handle, shared: true });
        };
        let equal = pool.read(object.handle).is_ok_and(|found| *found == *bytes);
        if equal && object.references < u32::MAX {
            object.references += 1;
            return Ok(Inserted { handle: object.handle, shared: true });
        }
        drop(shard);
        Ok(Inserted { handle: pool.insert(bytes)?, shared: false })
    }

    fn count_capacity(&self, before: usize, now: usize) {
        // Relaxed: a gauge.
        self.capacity.fetch_add((now as u64).wrapping_sub(before as u64), Ordering::Relaxed);
    }

    /// Takes one reference away, and frees the object with the last (C1). Returns whether other
    /// references are left.
    pub(crate) fn remove(&self, pool: &dyn Pool, handle: Handle) -> Result<bool, HandleError> {
        let hash = xxh3_64(&pool.read(handle)?);
        let mut shard = self.shard(hash);
        let object = shard.get_mut(&hash).expect("C1: a shared object is in the table");
        assert_eq!(object.handle, handle, "C1: it is there under its hash");
        object.references -= 1;
        if object.references > 0 {
            return Ok(true);
        }
        shard.remove(&hash);
        let before = shard.capacity();
        if shard.len() < before / SPARSE {
            let room = shard.len() * 2;
            shard.shrink_to(room);
            self.count_capacity(before, shard.capacity());
        }
        drop(shard);
        pool.free(handle).map(|()| false)
    }

    /// Returns how many slots refer to the object with these bytes.
    pub(crate) fn references(&self, bytes: &[u8]) -> u32 {
        let hash = xxh3_64(bytes);
        self.shard(hash).get(&hash).map_or(0, |object| object.references)
    }

    /// Returns the number of objects, and of references to them.
    pub(crate) fn count(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(objects, references), shard| {
            let shard = shard.lock();
            let of_shard: u64 = shard.values().map(|object| u64::from(object.references)).sum();
            (objects + shard.len() as u64, references + of_shard)
        })
    }

    /// Returns the bytes that the table takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed) * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfold_pool::PoolOptions;

    #[test]
    fn equal_bytes_are_one_object_until_the_last_reference() {
        let pool = zfold_pool::create("test", &PoolOptions::default()).unwrap();
        let table = Duplicates::new();
        let first = table.insert(&*pool, b"equal bytes").unwrap();
        let second = table.insert(&*pool, b"equal bytes").unwrap();
        let other = table.insert(&*pool, b"other bytes").unwrap();
        assert_eq!(first, second);
        assert!(first.shared && other.handle != first.handle);
        assert_eq!((pool.stats().objects, table.count()), (2, (2, 3)));
        assert_eq!(table.remove(&*pool, first.handle), Ok(true));
        assert_eq!(table.remove(&*pool, first.handle), Ok(false));
        assert_eq!((pool.stats().objects, table.count()), (1, (1, 1)));
        assert_eq!(table.remove(&*pool, first.handle), Err(HandleError::Stale));
        assert_eq!(table.remove(&*pool, other.handle), Ok(false));
    }

    #[test]
    fn bytes_that_only_hash_alike_stay_apart() {
        let pool = zfold_pool::create("test", &PoolOptions::default()).unwrap();
        let table = Duplicates::new();
        // An object put where "b" belongs, as if the two hashed alike.
        let handle = pool.insert(b"a").unwrap();
        let hash = xxh3_64(b"b");
        table.shard(hash).insert(hash, Object { handle, references: 1 });
        let inserted = table.insert(&*pool, b"b").unwrap();
        assert!(!inserted.shared && inserted.handle != handle);
        assert_eq!(*pool.read(inserted.handle).unwrap(), *b"b");
    }
}
