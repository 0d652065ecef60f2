//! Counters of a store, kept per thread and summed on demand, so that threads that store and
//! load share no counter.
//!
//! Names are zswap's where the meaning is.

use std::sync::atomic::{AtomicU64, Ordering};

use thread_local::ThreadLocal;
use zfold_pool::PoolStats;

/// Declares the counters once: the per-thread atomics and the public sums.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One thread's share of the counters. A gauge's share may be negative (stored here,
        /// freed there); the wrapping sum over all threads is right.
        #[derive(Debug, Default)]
        pub(crate) struct Share { $(pub(crate) $name: Counter,)* }

        /// What a store holds and has done. `_total` counters only grow, the others are of now;
        /// all are sums over threads that may be at work, so each is right but two of them may
        /// differ by the operations in progress.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct StoreStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Bytes of the slot table and of the codec contexts of all threads.
            pub metadata_bytes: u64,
            /// The pool's own counters; its payload is the compressed bytes stored.
            pub pool: PoolStats,
        }

        impl StoreStats {
            fn sum(shares: &ThreadLocal<Share>) -> Self {
                let mut sum = Self::default();
                for share in shares {
                    $(sum.$name = sum.$name.wrapping_add(share.$name.get());)*
                }
                sum
            }
        }
    };
}

counters! {
    /// Pages that the store holds, in whatever form.
    stored_pages,
    /// Of these, pages of one repeated word, which take no pool memory.
    same_filled_pages,
    /// Of these, pages kept as they are.
    stored_incompressible_pages,
    /// Pages stored, ever.
    stores_total,
    /// Pages loaded, ever.
    loads_total,
    /// Loads of keys that held nothing.
    load_misses_total,
    /// Pages invalidated by the owner, ever.
    invalidates_total,
    /// Stores refused because the store was full and had not shrunk to its accept threshold.
    pool_limit_hit_total,
    /// Stores refused because the pool had no memory.
    reject_alloc_fail_total,
    /// Stores refused because the page did not compress enough for the pool or the options.
    reject_compress_poor_total,
    /// Loads that failed because the bytes did not decode.
    decompress_fail_total,
}

impl StoreStats {
    /// Sums the shares and adds what the shares do not know.
    pub(crate) fn collect(
        shares: &ThreadLocal<Share>,
        metadata_bytes: u64,
        pool: PoolStats,
    ) -> Self {
        Self { metadata_bytes, pool, ..Self::sum(shares) }
    }

    /// Returns all bytes that the store holds.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.pool.held_bytes() + self.metadata_bytes
    }

    /// Returns how many stores were refused.
    #[must_use]
    pub fn rejects_total(&self) -> u64 {
        self.pool_limit_hit_total + self.reject_alloc_fail_total + self.reject_compress_poor_total
    }
}

/// A counter that one thread writes and others read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        // Relaxed, and no read-modify-write: only the owning thread writes.
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn sub(&self, n: u64) {
        self.add(n.wrapping_neg());
    }

    #[inline]
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
