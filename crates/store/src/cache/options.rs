//! The options, the statistics and the errors of a cache.

use thiserror::Error;
use zfold_figures::figures;
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

figures! {
    /// The statistics of a cache. `_total` counters only grow, the others are of now.
    #[non_exhaustive]
    pub struct CacheStats {
        /// The pool's own counters.
        pub pool: PoolStats,
    };
    pub(super) struct Counters;

    gauge limit_bytes: Bytes, "the most that may be held", [];
    gauge held_bytes: Bytes, "all memory that the cache holds, which the limit is for", [];
    gauge metadata_bytes: Bytes,
        "of these, bytes outside of the pool: keys, tables, working memory of codecs", [];
    gauge value_bytes: Bytes, "bytes of the values, as they were inserted", [];
    gauge compressed_bytes: Bytes, "their bytes in the pool", [];
    gauge values: Count, "values held", [];
    counter insertions_total: Count, "values inserted", [];
    counter refusals_total: Count, "values that were not inserted", [];
    counter hits_total: Count, "reads that found their value", [];
    counter misses_total: Count, "reads that did not", [];
    counter evictions_total: Count, "values that left for want of room", [];
    counter removals_total: Count, "values that were removed by their owner", [];
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
