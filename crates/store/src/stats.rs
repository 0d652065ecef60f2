//! Counters of a store, kept per thread and summed on demand, so that threads that store and
//! load share no counter.
//!
//! Names are zswap's where the meaning is.

use std::sync::atomic::{AtomicU64, Ordering};

use thread_local::ThreadLocal;
use zfold_pool::PoolStats;

use crate::entry::{Flag, Kind, State};

/// Declares the counters once: the per-thread atomics and the public sums.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One thread's share of the counters. A gauge's share may be negative (stored here,
        /// freed there); the wrapping sum over all threads is right. As the shares are read one
        /// after the other, it may have what left and not yet what came, and be negative, too.
        #[derive(Debug, Default)]
        pub(crate) struct Share { $(pub(crate) $name: Counter,)* }

        /// The statistics of a store. `_total` counters only grow, the others are of now; all are
        /// sums over threads that may be at work, so each is right but two of them may differ by
        /// the operations in progress.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct StoreStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Of the stored pages, those that share another one's object.
            pub duplicate_pages: u64,
            /// Bytes of the backing file in use.
            pub backing_used_bytes: u64,
            /// Bytes of the backing file.
            pub backing_bytes: u64,
            /// The most bytes held, as seen every 64th store of a thread and whenever these
            /// counters are read (zram's `mem_used_max`).
            pub held_max_bytes: u64,
            /// Bytes of the slot table, of the codec contexts of all threads, of the table of
            /// duplicates, and of the backing file's map.
            pub metadata_bytes: u64,
            /// The pool's own counters; its payload is the compressed bytes stored.
            pub pool: PoolStats,
        }

        impl Counts {
            /// Returns the sums of all threads; figures without a counter are zero.
            pub(crate) fn sum(&self) -> StoreStats {
                let mut sum = StoreStats::default();
                for share in &self.shares {
                    $(sum.$name = sum.$name.wrapping_add(share.$name.get());)*
                }
                $(sum.$name = sum.$name.cast_signed().max(0).cast_unsigned();)*
                // Relaxed: a counter.
                sum.loads_total += self.direct_loads_total.load(Ordering::Relaxed);
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
    /// Of these, pages kept as they are, in memory (zram's `huge_pages`).
    stored_incompressible_pages,
    /// Of these, pages whose bytes are on the backing file (zram's `bd_count`).
    backed_pages,
    /// Bytes of the backed pages, as they were written.
    backed_payload_bytes,
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
    /// Pages kept as they are, ever (zram's `huge_pages_since`).
    incompressible_stores_total,
    /// Loads that failed because the bytes did not decode.
    decompress_fail_total,
    /// Pages written back, ever (zswap's `written_back_pages`, zram's `bd_writes`).
    backing_writes_total,
    /// Pages read from the backing file (zram's `bd_reads`).
    backing_reads_total,
    /// Pages that could not be written back; they stayed in memory.
    backing_failed_writes_total,
    /// Loads that failed because the backing file could not be read.
    backing_failed_reads_total,
    /// Loads that failed because the backing file returned other bytes than were written.
    backing_damaged_total,
    /// Rounds of writeback for want of memory that made no room (zswap's `reject_reclaim_fail`).
    reject_reclaim_fail_total,
    /// Pages that a codec of higher priority made smaller.
    recompressed_total,
    /// Bytes that this saved.
    recompressed_saved_bytes_total,
}

/// The counters of all threads.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    shares: ThreadLocal<Share>,
    /// Loads by `Store::load_with`, which no thread's share counts.
    pub(crate) direct_loads_total: AtomicU64,
}

impl Counts {
    /// Returns the calling thread's share.
    #[inline]
    pub(crate) fn share(&self) -> &Share {
        self.shares.get_or_default()
    }

    /// Returns one of the sums: the pages held.
    pub(crate) fn stored_pages(&self) -> u64 {
        let stored = self.shares.iter().map(|share| share.stored_pages.get());
        stored.fold(0, u64::wrapping_add).cast_signed().max(0).cast_unsigned()
    }
}

impl Share {
    /// Counts a page that came into a slot.
    #[inline]
    pub(crate) fn count(&self, state: State) {
        self.change(state, 1);
        self.incompressible_stores_total.add(is_huge(state).into());
    }

    /// Uncounts a page that left a slot.
    #[inline]
    pub(crate) fn uncount(&self, state: State) {
        self.change(state, u64::MAX);
    }

    /// Adds `unit`, 1 or minus 1, to the gauges that a page counts in.
    #[inline]
    fn change(&self, state: State, unit: u64) {
        let times = |of: bool| if of { unit } else { 0 };
        self.stored_pages.add(times(!state.is_empty()));
        self.same_filled_pages.add(times(state.kind() == Kind::Same));
        self.stored_incompressible_pages.add(times(is_huge(state)));
        if state.has(Flag::Backed) {
            self.backed_pages.add(unit);
            self.backed_payload_bytes.add(unit.wrapping_mul(state.len() as u64));
        }
    }
}

/// Returns whether a page lies in memory as it is.
#[inline]
fn is_huge(state: State) -> bool {
    state.kind() == Kind::Raw && !state.has(Flag::Backed)
}

impl StoreStats {
    /// Returns all bytes that the store holds.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.pool.held_bytes() + self.metadata_bytes
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
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// As if a page came and went, by two threads, while the shares were read: only its going was
    /// seen.
    #[test]
    fn a_gauge_is_never_below_zero() {
        let counts = Counts::default();
        let state = State::new(Kind::Raw, 4096, 0).with(Flag::Backed);
        counts.share().uncount(state);
        assert_eq!(counts.sum(), StoreStats::default());
        std::thread::scope(|scope| {
            scope.spawn(|| (0..2).for_each(|_| counts.share().count(state)));
        });
        let sum = counts.sum();
        assert_eq!((sum.stored_pages, sum.backed_payload_bytes), (1, 4096));
    }
}
