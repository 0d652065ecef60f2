//! The options, the statistics and the errors of a cache.

use thiserror::Error;
use zfold_pool::{AllocError, PoolOptions, PoolStats, builders};

use crate::codec::CodecKind;
use crate::options::CodecChoice;

/// What a cache is made of: public fields with defaults. Start from [`CacheOptions::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Most bytes that the cache may hold: values, keys, tables, working memory of codecs, and
    /// what the pool needs besides.
    pub limit_bytes: u64,
    /// The codec, and the dictionary that it works with.
    pub codec: CodecChoice,
    /// The options of the pool.
    pub pool: PoolOptions,
}

impl CacheOptions {
    /// Returns the defaults for a limit in bytes: LZ4, a pool of fit with 4 KiB pages.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        let pool = PoolOptions::default();
        Self { limit_bytes, codec: CodecKind::Lz4.into(), pool }
    }

    builders! {
        with_codec => codec: impl Into<CodecChoice>,
        with_pool => pool: PoolOptions,
    }
}

/// The statistics of a cache. `_total` counters only grow, the others are of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Values held.
    pub values: u64,
    /// Their bytes, as they were inserted.
    pub value_bytes: u64,
    /// All bytes of memory that the cache holds, which the limit is for.
    pub held_bytes: u64,
    /// Of these, bytes outside of the pool: keys, tables, working memory of codecs.
    pub metadata_bytes: u64,
    /// Values inserted, ever.
    pub insertions_total: u64,
    /// Values that were not inserted.
    pub refusals_total: u64,
    /// Reads that found their value.
    pub hits_total: u64,
    /// Reads that did not.
    pub misses_total: u64,
    /// Values that left for want of room.
    pub evictions_total: u64,
    /// Values that were removed by their owner.
    pub removals_total: u64,
    /// The pool's own counters; its payload is the compressed bytes of all values.
    pub pool: PoolStats,
}

/// Why a value was not inserted or not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The value does not fit below the limit, even alone.
    #[error("the value does not fit below the limit of {limit_bytes} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// The pool took no object.
    #[error("{0}")]
    Pool(#[source] AllocError),
    /// The system has no memory for the bytes of the value, or for its handles.
    #[error("the system gave no memory for {bytes} bytes")]
    NoMemory {
        /// So many were asked for.
        bytes: usize,
    },
    /// The stored bytes are not those of a value.
    #[error("the value is damaged")]
    Damaged,
    /// A thread panicked inside the pool; it refuses all calls.
    #[error("the pool is dead: a thread panicked inside it")]
    Dead,
}
