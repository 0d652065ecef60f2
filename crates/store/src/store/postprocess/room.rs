//! Making room under a memory limit: compaction, and writeback of the least recently used pages.
//!
//! A page that leaves leaves a hole; the pool gives memory back only once a compaction has filled
//! holes with what lay elsewhere. One that looks at all of a large pool takes milliseconds, so
//!
//! - M1: a store that is full makes room for many pages at once ([`slack`]);
//! - M2: a compaction frees what is needed and ends, and there is none before as many pages as are
//!   needed have left since the last one that did not free that.

use std::sync::atomic::{AtomicBool, Ordering};

use super::selection::Selection;
use crate::content::Stored;
use crate::entry::Entry;
use crate::error::StoreError;
use crate::store::Store;

/// Rounds of writeback after which a store that waits for room gives up, if it has none by then
/// (zswap's `MAX_RECLAIM_RETRIES` is as many).
const ROUNDS_MAX: u64 = 16;

/// The room that is made at once: a share of the limit, but no more than is made in milliseconds.
const SLACK_SHARE: u64 = 128;
const SLACK_MAX: u64 = 2 << 20;

/// Returns the bytes by which a store that has hit its mark goes below it.
fn slack(limit: u64) -> u64 {
    (limit / SLACK_SHARE).min(SLACK_MAX)
}

impl Store {
    /// Calls `attempt`, which finds the store full or not, again as long as room can be made. No
    /// slot is locked (K6). `full` is the error that says that the limit was hit.
    pub(crate) fn retry_with_room<T, E: PartialEq>(
        &self,
        full: &E,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        for _ in 0..ROUNDS_MAX {
            match attempt() {
                Err(error) if error == *full && self.make_room() => {}
                result => return result,
            }
        }
        attempt()
    }

    /// Stores `page` under `key` as [`store`](Self::store) does, but beyond the limit if it is hit:
    /// for the few pages that must leave where they are at once. Makes no room.
    ///
    /// # Errors
    /// As for a store, but never [`StoreError::Full`].
    ///
    /// # Cost
    /// That of a store.
    pub fn store_beyond(&self, key: u64, page: &[u8]) -> Result<Stored, StoreError> {
        self.check_page(key, page)?;
        let (entry, stored) = match self.pages.place(key, page, self.tuning.codec()) {
            Ok((entry, stored)) => (entry, Ok(stored)),
            Err(error) => (Entry::EMPTY, Err(error)),
        };
        self.exchange(key, entry, self.share());
        self.count_store(stored, self.share())
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
        let mark = self.limit.mark(limit);
        if self.pages.backed.is_none() {
            if self.held_bytes() >= mark && self.freeable_pages() > 0 {
                self.compact();
            }
            let held = self.held_bytes();
            return held < mark && held <= self.limit.accepted(&self.tuning, limit);
        }
        let below = || self.held_bytes() < mark;
        // Another thread has made it.
        if below() {
            return true;
        }
        let slack = slack(limit);
        // Pages are compressed, so several leave for each that is freed.
        let batch = u64::from(self.tuning.get().writeback_batch_pages);
        let rounds = ROUNDS_MAX + 8 * slack / (self.page_len() as u64 * batch);
        self.shrink(mark - slack, rounds, &AtomicBool::new(false));
        if !below() {
            self.compact();
        }
        let made = below();
        self.share().reject_reclaim_fail_total.add((!made).into());
        made
    }

    /// Returns the pages that a compaction could free, by the pool's estimate.
    fn freeable_pages(&self) -> u64 {
        self.pages.objects.pool().stats().freeable_pages.0
    }

    /// Writes least recently used pages back until at most `target` bytes are held, nothing more
    /// can be written, `stop` is set, or after so many rounds of a batch. Returns the pages
    /// written.
    fn shrink(&self, target: u64, rounds: u64, stop: &AtomicBool) -> u64 {
        // Pages that the pool said it could free, and did not.
        let (mut pages, mut stays) = (0, 0);
        for _ in 0..rounds {
            let over = self.held_bytes().saturating_sub(target);
            if over == 0 || stop.load(Ordering::Relaxed) {
                break;
            }
            let needed = over.div_ceil(self.page_len() as u64);
            if self.freeable_pages() >= needed + stays {
                // M2.
                if self.compact_pool(needed, stop) < needed {
                    stays = self.freeable_pages();
                }
                continue;
            }
            let batch = self.tuning.get().writeback_batch_pages;
            match self.writeback(&Selection::Lru, Some(batch.into())) {
                Ok(written) if written.pages > 0 => pages += written.pages,
                _ => break,
            }
        }
        pages
    }

    /// Writes least recently used pages back until at most `target` bytes are held, nothing more
    /// can be written, or `stop` is set. Returns the pages written.
    ///
    /// This is what a shrinker does in the background, so that stores need not wait for room.
    ///
    /// # Cost
    /// Writes of the backing file, and a compaction of the pool.
    pub fn shrink_to(&self, target: u64, stop: &AtomicBool) -> u64 {
        let pages = self.shrink(target, u64::MAX, stop);
        if pages > 0 {
            self.compact();
        }
        pages
    }
}
