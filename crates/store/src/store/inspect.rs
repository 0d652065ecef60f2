//! A store's reports about itself: counters, whether it is sound, what pages have in common.

use std::sync::atomic::Ordering;

use super::Store;
#[cfg(feature = "zstd")]
use crate::codec::{CodecError, Dictionary};
use crate::entry::{Flag, Kind, State};
#[cfg(feature = "zstd")]
use crate::pages::same;
use crate::stats::StoreStats;

/// Bytes of pages to train a byte of dictionary on, as Zstandard's authors advise.
#[cfg(feature = "zstd")]
const SAMPLES: usize = 100;

impl Store {
    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let held_max = self.limit.look(self.held_bytes());
        let mut stats = self.pages.counts.sum();
        stats.pool = self.pages.objects.pool().stats();
        stats.metadata_bytes = self.metadata_bytes();
        stats.held_max_bytes = held_max;
        stats.duplicate_pages = self.pages.duplicate_pages();
        if let Some(backed) = &self.pages.backed {
            stats.backing_used_bytes = backed.used_bytes();
            stats.backing_bytes = backed.len();
        }
        stats
    }

    /// Returns all bytes of memory that the store holds: pages, idle pages and metadata.
    ///
    /// It adds up the pool's shards without a lock. While threads store and free, the sum may
    /// therefore be off by what moved between shards meanwhile; [`stats`](Self::stats) is of one
    /// moment.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.pages.objects.pool().held_bytes() + self.metadata_bytes()
    }

    /// Returns the bytes of pool memory that the pages held take, without tables and gaps.
    ///
    /// # Cost
    /// All locks of the pool, once: it counts these bytes under them, so that an allocation writes
    /// to no counter that others read. For once a batch, not once a page.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.pages.objects.pool().stats().payload_bytes
    }

    /// Returns the bytes of pool memory that the page under `key` takes at this moment, without
    /// gaps: none if it is one repeated word, on the backing, or not there.
    ///
    /// # Cost
    /// A load of one word.
    #[must_use]
    pub fn payload_len(&self, key: u64) -> usize {
        if key >= self.slots() {
            return 0;
        }
        let state = self.slots.state_now(key);
        match state.kind() {
            Kind::Compressed | Kind::Raw if !state.has(Flag::Backed) => state.len(),
            _ => 0,
        }
    }

    /// Asserts the pool's invariants, and that its objects are those of the slots.
    ///
    /// # Panics
    /// If one is broken. Call it while no other call is in progress.
    pub fn check(&self) {
        self.pages.objects.pool().check();
        let stats = self.stats();
        let elsewhere = stats.same_filled_pages + stats.backed_pages + stats.duplicate_pages;
        let objects = stats.stored_pages - elsewhere;
        assert_eq!(stats.pool.objects, objects, "objects and slots differ");
        let states: Vec<_> =
            self.present(0..self.slots()).map(|key| self.check_slot(key)).collect();
        let backed = states.into_iter().filter(|state: &State| state.has(Flag::Backed));
        let bytes_of = |state: State| {
            self.pages.backed.as_ref().map_or(0, |backed| backed.bytes_of(state.len()))
        };
        let units = backed.map(bytes_of);
        assert_eq!(units.sum::<u64>(), stats.backing_used_bytes, "units and slots differ");
    }

    /// Asserts that the object of a slot is where it says; returns the slot's state.
    fn check_slot(&self, key: u64) -> State {
        let slot = self.slots.lock(key);
        self.pages.check(key, slot.entry());
        slot.entry().state
    }

    fn metadata_bytes(&self) -> u64 {
        // Relaxed: a gauge.
        let processing = self.processing_bytes.load(Ordering::Relaxed);
        self.slots.bytes() + self.pages.metadata_bytes() + self.saving.bytes() + processing
    }

    /// Trains a dictionary of at most `len_max` bytes on the pages held.
    ///
    /// # Errors
    /// When there are too few pages to learn from.
    ///
    /// # Cost
    /// A load of up to a hundred times `len_max` bytes of pages, and the training, seconds for
    /// 16 KiB.
    #[cfg(feature = "zstd")]
    pub fn train_dictionary(&self, len_max: usize) -> Result<Dictionary, CodecError> {
        let wanted = (len_max * SAMPLES / self.pages.len) as u64;
        let step = (self.len() / wanted.max(1)).max(1) as usize;
        let mut samples = Vec::new();
        for key in self.present(0..self.slots()).step_by(step) {
            let mut page = vec![0; self.pages.len];
            // A page that is gone or damaged teaches nothing.
            if self.load(key, &mut page) == Ok(true) && same::repeated_word(&page).is_none() {
                samples.push(page);
            }
        }
        let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        Dictionary::train(&samples, len_max)
    }
}
