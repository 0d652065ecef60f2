//! Where pages are that have left their address space.
//!
//! | file | what is there |
//! | --- | --- |
//! | `swap_cache` | pages that left last, uncompressed |
//! | `storing` | how they get to the store |
//! | `copies` | what the store keeps of pages that came back |
//! | `starving` | pages that found no room, and the process that ends for that |

pub(crate) mod copies;
pub(crate) mod starving;
pub(crate) mod storing;
pub(crate) mod swap_cache;

use std::io;
use std::num::NonZero;
use std::sync::{Arc, Mutex};

use zfold_store::{Digests, Store};

use crate::cold::copies::Copies;
use crate::cold::starving::Starving;
use crate::cold::swap_cache::SwapCache;
use crate::figures::Counters;
use crate::spaces::books::Books;
use crate::spaces::budget::Budget;
use crate::spaces::keys::Stock;
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
    pub stock: Arc<Stock>,
    /// What was stored under each key.
    digests: Digests,
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
        stock: Arc<Stock>,
        books: Arc<Books>,
        budget: Arc<Budget>,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        let keys = NonZero::new(stock.keys().count().into());
        Ok(Self {
            budget,
            books,
            counters,
            digests: Digests::new(keys.ok_or(io::ErrorKind::InvalidInput)?)?,
            store: Arc::clone(&stock.store),
            stock,
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
