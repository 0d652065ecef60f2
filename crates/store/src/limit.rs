//! The memory limit: whether a store takes pages, and the most that it held.
//!
//! A store is *full* at its mark, a little below the limit: a page counts before it can be
//! refused, and so does what making room for it takes, and no observer may see more than the limit
//! meanwhile. One that can send pages to a backing file is full only while it is there; one that
//! cannot, until it has shrunk to its accept threshold.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::StoreError;
use crate::tuning::Tuning;

/// The room that a store leaves free below its limit: a share of it, but no more than this many
/// pages, those of a few threads.
const MARGIN_SHARE: u64 = 32;
const MARGIN_PAGES: u64 = 32;

/// Whether the limit was hit, and the most memory held.
#[derive(Debug)]
pub(crate) struct Limit {
    /// The most bytes that are left free below the limit.
    margin: u64,
    /// The limit was hit, and the store has not shrunk to its accept threshold since.
    full: AtomicBool,
    /// The most that was held, as far as was looked.
    held_max: AtomicU64,
}

// Relaxed throughout: decisions that may be one store late, and a statistic.
impl Limit {
    /// Returns the limit of a store with pages of `page_len` bytes that was not hit.
    pub(crate) fn new(page_len: usize) -> Self {
        let margin = MARGIN_PAGES * page_len as u64;
        Self { margin, full: AtomicBool::new(false), held_max: AtomicU64::new(0) }
    }

    /// Returns the bytes at which a store with a limit of `bytes` makes room, or refuses pages.
    pub(crate) fn mark(&self, bytes: u64) -> u64 {
        bytes - (bytes / MARGIN_SHARE).min(self.margin)
    }

    /// Returns the bytes to which a full store that cannot evict must shrink before it takes pages
    /// again.
    pub(crate) fn accepted(&self, tuning: &Tuning, bytes: u64) -> u64 {
        tuning.accept_bytes(self.mark(bytes))
    }

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
        if held >= self.mark(limit) {
            self.full.store(true, Ordering::Relaxed);
        } else if evicts || held <= self.accepted(tuning, limit) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_free_is_counted_in_pages() {
        for page_len in [4 << 10, 16 << 10, 64 << 10] {
            let limit = Limit::new(page_len as usize);
            assert_eq!(limit.mark(1 << 30), (1 << 30) - 32 * page_len);
            assert_eq!(limit.mark(32 << 10), 31 << 10, "a share of a small one");
        }
    }
}
