//! The memory limit: whether a store takes pages, and the most that it held.
//!
//! A store is *full* at its mark, a little below the limit: a page counts before it can be
//! refused, and so does what making room for it takes, and no observer may see more than the limit
//! meanwhile. One that can send pages to a backing file is full only while it is there; one that
//! cannot, until it has shrunk to its accept threshold.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::StoreError;
use crate::tuning::Tuning;

/// The room that a store leaves free below its limit: a share of it, but no more than the pages of
/// a few threads take.
const MARGIN_SHARE: u64 = 32;
const MARGIN_MAX: u64 = 128 << 10;

/// Returns the bytes at which a store makes room, or refuses pages.
pub(crate) fn mark(limit: u64) -> u64 {
    limit - (limit / MARGIN_SHARE).min(MARGIN_MAX)
}

/// Returns the bytes to which a full store that cannot evict must shrink before it takes pages
/// again.
pub(crate) fn accepted(tuning: &Tuning, limit: u64) -> u64 {
    tuning.accept_bytes(mark(limit))
}

/// Whether the limit was hit, and the most memory held.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    /// The limit was hit, and the store has not shrunk to its accept threshold since.
    full: AtomicBool,
    /// The most that was held, as far as was looked.
    held_max: AtomicU64,
}

// Relaxed throughout: decisions that may be one store late, and a statistic.
impl Limit {
    /// Refuses pages while the store is full. `held` returns the bytes held; `evicts` is whether
    /// pages can leave memory.
    ///
    /// # Errors
    /// [`StoreError::Full`].
    pub(crate) fn check(
        &self,
        tuning: &Tuning,
        held: impl FnOnce() -> u64,
        evicts: bool,
    ) -> Result<(), StoreError> {
        let Some(limit) = tuning.limit_bytes() else { return Ok(()) };
        let held = held();
        if held >= mark(limit) {
            self.full.store(true, Ordering::Relaxed);
        } else if evicts || held <= accepted(tuning, limit) {
            self.full.store(false, Ordering::Relaxed);
        }
        if self.full.load(Ordering::Relaxed) { Err(StoreError::Full) } else { Ok(()) }
    }

    /// Says that the limit was hit.
    pub(crate) fn hit(&self) {
        self.full.store(true, Ordering::Relaxed);
    }

    /// Takes note of how much is held; returns the most that was.
    pub(crate) fn look(&self, held: u64) -> u64 {
        let before = self.held_max.load(Ordering::Relaxed);
        if held > before {
            self.held_max.fetch_max(held, Ordering::Relaxed);
        }
        before.max(held)
    }

    /// Begins to look for the most from `held` on.
    pub(crate) fn reset_held_max(&self, held: u64) {
        self.held_max.store(held, Ordering::Relaxed);
    }
}
