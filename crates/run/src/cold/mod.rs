//! Where pages are that have left their address space.
//!
//! | file | what is there |
//! | --- | --- |
//! | `swap_cache` | pages that left last, uncompressed |
//! | `storing` | how they get to the store |
//! | `keys` | which keys of the store are in use |
//! | `copies` | what the store keeps of pages that came back |
//! | `starving` | pages that found no room, and the process that ends for that |

pub(crate) mod copies;
pub(crate) mod keys;
pub(crate) mod starving;
pub(crate) mod storing;
pub(crate) mod swap_cache;

use std::io;
use std::num::NonZero;
use std::sync::{Arc, Mutex};

use zfold_store::{Digests, Store};

use crate::cold::copies::Copies;
use crate::cold::keys::Keys;
use crate::cold::starving::Starving;
use crate::cold::swap_cache::SwapCache;
use crate::core::pages::{Key, PAYLOADS, Page};
use crate::core::ranges::PageNo;
use crate::figures::Counters;
use crate::spaces::books::Books;
use crate::spaces::budget::Budget;
use crate::spaces::managed::lock;
use zfold_uffd::page::pages_in;

/// The parts of the limit that the swap cache takes: where there is room, and where it is tight.
/// What is taken back from it are pages that were picked too early, and many were because it took
/// the room.
const SWAP_CACHE: [usize; 2] = [16, 48];

/// The swap cache and the store, and what is known of the pages there.
pub(crate) struct Cold {
    budget: Arc<Budget>,
    books: Arc<Books>,
    counters: Arc<Counters>,
    pub store: Arc<Store>,
    /// What was stored under each key.
    digests: Digests,
    pub keys: Mutex<Keys>,
    pub copies: Copies,
    pub swap_cache: Mutex<SwapCache>,
    /// Pages that found no room, and the process that is ended for that.
    pub starving: Mutex<Starving>,
}

impl Cold {
    /// Returns an empty swap cache before a store.
    ///
    /// # Errors
    /// The store has no room for a page, or the system no memory.
    pub(crate) fn new(
        store: Arc<Store>,
        books: Arc<Books>,
        budget: Arc<Budget>,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        let keys = u32::try_from(store.slots()).unwrap_or(PAYLOADS).min(PAYLOADS);
        Ok(Self {
            budget,
            books,
            counters,
            digests: Digests::new(NonZero::new(keys.into()).ok_or(io::ErrorKind::InvalidInput)?)?,
            store,
            keys: Mutex::new(Keys::new(keys)),
            copies: Copies::default(),
            swap_cache: Mutex::default(),
            starving: Mutex::default(),
        })
    }

    /// Returns whether pages that come in leave copies in the store; `reach`: how long their
    /// sequence is.
    pub(crate) fn keeps(&self, reach: usize) -> bool {
        self.copies.keeps(&self.budget, reach)
    }

    /// Returns how many pages the swap cache may hold without pressure.
    pub(crate) fn swap_cache_max(&self) -> usize {
        let part = SWAP_CACHE[usize::from(self.budget.is_tight())];
        (self.budget.limit() / part).min(pages_in(4 << 20))
    }

    /// Releases keys and slots named by states that were taken out of a space (space/S3).
    ///
    /// # Cost
    /// A free in the store for each key that no other space names.
    pub(crate) fn release(&self, pages: &[(PageNo, Page)]) {
        let keys = pages.iter().filter_map(|(_, state)| match state {
            Page::Stored(key) => Some(*key),
            _ => None,
        });
        self.release_keys(keys);
    }

    /// Releases keys.
    pub(crate) fn release_keys(&self, keys: impl Iterator<Item = Key>) {
        let last: Vec<Key> = {
            let mut of = None;
            keys.filter(|&key| of.get_or_insert_with(|| lock(&self.keys)).release(key)).collect()
        };
        for &key in &last {
            self.store.invalidate(u64::from(key));
        }
        if !last.is_empty() {
            let mut keys = lock(&self.keys);
            last.into_iter().for_each(|key| keys.put_back(key));
        }
    }

    /// Returns the remedy for a store that takes no more pages.
    pub(crate) fn remedy(&self) -> &'static str {
        let stats = self.store.stats();
        let limit = self.store.tunables().limit_bytes.unwrap_or(u64::MAX);
        match (stats.backing_bytes, stats.backing_used_bytes) {
            // Each page that has left takes a few bytes here.
            (1.., _) if stats.metadata_bytes > limit / 2 => {
                "buffers and tables of pages that have left take most of it: raise --store-limit"
            }
            (0, _) if self.budget.is_together() => {
                "what the program has does not fit into the memory that there is: give the \
                 container more, or give --backing a place for what does not fit"
            }
            (0, _) => {
                "raise --limit or --store-limit, or give --backing a place for what does not fit"
            }
            // A run of free units may be too short for a batch.
            (all, used) if used >= all - all / 16 => {
                "the backing is full, too: raise --backing-size or --store-limit"
            }
            _ => "no page could go to the backing: raise --store-limit, or repair the backing",
        }
    }
}
