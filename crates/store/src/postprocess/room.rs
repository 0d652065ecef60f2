//! Making room under a memory limit: compaction, and writeback of what was not used for longest.

use std::sync::atomic::{AtomicBool, Ordering};

use zfold_pool::PageCount;

use super::selection::Selection;
use crate::error::{StoreError, UpdateError};
use crate::store::Store;

/// Rounds of writeback after which a store that waits for room gives up (zswap's
/// `MAX_RECLAIM_RETRIES` is as many).
const ROUNDS_MAX: usize = 16;

/// Pages that are worth a compaction while a store waits, if the pool says that it could free them.
const COMPACT_MIN: PageCount = PageCount(16);

/// An error that may say that the limit was hit.
pub(crate) trait LimitHit {
    fn limit_hit(&self) -> bool;
}

impl LimitHit for StoreError {
    fn limit_hit(&self) -> bool {
        *self == Self::Full
    }
}

impl LimitHit for UpdateError {
    fn limit_hit(&self) -> bool {
        *self == Self::Store(StoreError::Full)
    }
}

impl Store {
    /// Calls `attempt`, which finds the store full or not, again as long as room can be made. No
    /// slot is locked (K6).
    pub(crate) fn retry_with_room<T, E: LimitHit>(
        &self,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        for _ in 0..ROUNDS_MAX {
            match attempt() {
                Err(error) if error.limit_hit() && self.make_room() => {}
                result => return result,
            }
        }
        attempt()
    }

    /// Refuses a page whose entry has brought the store over its limit, if no room can be made;
    /// the caller takes the entry out again.
    pub(crate) fn enforce_limit(&self) -> Result<(), StoreError> {
        let within = || self.tuning.limit_bytes().is_none_or(|limit| self.held_bytes() <= limit);
        if within() || (self.pages.backed.is_some() && self.make_room() && within()) {
            return Ok(());
        }
        self.limit.hit();
        Err(StoreError::Full)
    }

    /// Brings what is held below the limit if it can; returns whether it is.
    fn make_room(&self) -> bool {
        let Some(limit) = self.tuning.limit_bytes() else { return true };
        let below = || self.held_bytes() < limit;
        let freeable = || self.pages.objects.pool().stats().freeable_pages;
        if !below() && freeable() > PageCount::ZERO {
            self.compact();
        }
        if self.pages.backed.is_none() {
            return self.held_bytes() <= self.tuning.accept_bytes(limit);
        }
        for _ in 0..ROUNDS_MAX {
            if below() {
                return true;
            }
            let batch = self.tuning.get().writeback_batch_pages;
            let written = self.writeback(&Selection::Lru, Some(batch.into()));
            if written.is_err() || freeable() >= COMPACT_MIN {
                self.compact();
            }
            if !written.is_ok_and(|written| written.pages > 0) {
                break;
            }
        }
        if !below() {
            self.compact();
        }
        let made = below();
        self.share().reject_reclaim_fail_total.add((!made).into());
        made
    }

    /// Writes least recently used pages back until at most `target` bytes are held, nothing more
    /// can be written, or `stop` is set. Returns the pages written.
    ///
    /// This is what a shrinker does in the background, so that stores need not wait for room.
    ///
    /// # Cost
    /// Writes of the backing file, and a compaction of the pool.
    pub fn shrink_to(&self, target: u64, stop: &AtomicBool) -> u64 {
        let mut pages = 0;
        while self.held_bytes() > target && !stop.load(Ordering::Relaxed) {
            let batch = self.tuning.get().writeback_batch_pages;
            match self.writeback(&Selection::Lru, Some(batch.into())) {
                Ok(written) if written.pages > 0 => pages += written.pages,
                _ => break,
            }
            if self.pages.objects.pool().stats().freeable_pages >= COMPACT_MIN {
                self.compact();
            }
        }
        if pages > 0 {
            self.compact();
        }
        pages
    }
}
