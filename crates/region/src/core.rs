//! The state that the regions of one memory share: the words of all pages, the limit, the staging
//! area, the store. Pages have keys, which are numbered across regions, so most of this code uses
//! no addresses.

use std::io::ErrorKind;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::Duration;

use zfold_figures::Histogram;
use zfold_pool::{Lock, sound};
use zfold_store::{Digests, Loader, Store};

use super::ahead::Ahead;
use super::frames::Frames;
use super::ring::Ring;
use super::room::Room;
use super::space::{Space, window_max};
use super::stats::Counters;
use super::wait::{sleep_while, wake};
use super::word::{Page, State, Word};
use crate::sys::claims::Claims;
use crate::sys::map::{Mapping, Words, Zeros};
use zfold_uffd::page::page_len;
use zfold_uffd::policy::{Clock, Past};

/// Pages of a chunk, whose residents are counted together; regions begin at a multiple.
pub(super) const CHUNK: u32 = 512;

/// The end of the list of pages with copies.
const NIL: u32 = u32::MAX;

/// Pages listed between two wake-ups for them, and copies that are always kept.
const COPIES_MANY: u64 = 256;

/// In the word of a page's history: it has changed between the last two times that it left.
const CHANGED: u32 = 1 << 31;

/// What protection earns for each page that is dropped, at most, and what a write to a protected
/// page costs. Where writes come so often that it is in debt, pages come unprotected until each
/// arrival has paid one back.
const EARNED_MAX: i32 = 256;
pub(super) const WRITE_COSTS: i32 = 16;

/// How often a thread reads a word before it sleeps on it.
const LOOKS: u32 = 200;

/// The buffers that a thread needs to bring pages in.
#[derive(Debug)]
pub(super) struct Scratch {
    pub loader: Loader,
    pub pages: Mapping,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Core {
    pub frames: Frames,
    pub room: Room,
    pub ring: Ring,
    pub ahead: Ahead,
    pub store: Store,
    /// What was stored under each key (word/W2).
    pub digests: Digests,
    pub scratches: Claims<Scratch>,
    pub counters: Counters,
    pub latency: Histogram,
    /// Zeros, for pages that were not touched before.
    pub zeros: Zeros,
    words: Words,
    /// For each listed page the next one.
    links: Words,
    /// The history of each page, and the rounds of the hand for which it is spared: hints, of which
    /// one of two simultaneous changes may be lost.
    pasts: Words,
    /// Counts pages that leave.
    pub clock: Clock,
    /// How pages have come back, as `Returns` says it: a hint like the pasts.
    pub returns: AtomicU64,
    /// What protecting pages from writes has earned lately: a hint.
    earned: AtomicI32,
    /// For each chunk, the number of pages that are in their place.
    residents: Words,
    /// The newest page of the list of those with copies.
    listed: AtomicU32,
    listed_total: AtomicU64,
    /// The rest of a list that was taken, of which copies are dropped.
    taken: Lock<u32>,
    /// The store has a backing file.
    backed: bool,
    /// Pages that are not Stored and have a copy in the store (word/W2).
    pub copies: AtomicU64,
    /// Pages that are Stored.
    pub stored: AtomicU64,
    pub pinned: AtomicU64,
    spaces: RwLock<Vec<Arc<Space>>>,
    /// Where the mover looks next. The thread that holds the lock may move pages out.
    pub hand: Lock<u32>,
    /// The store has refused a page since the last one that it took.
    pub refused: AtomicBool,
    pub stop: AtomicBool,
}

impl Core {
    pub(super) fn new(
        frames: Frames,
        room: Room,
        ring: Ring,
        store: Store,
        backed: bool,
        pages: u32,
        scratches: usize,
    ) -> std::io::Result<Self> {
        let scratch = || {
            let pages = Mapping::new(window_max() as usize * page_len())?;
            Ok(Scratch { loader: store.loader(), pages })
        };
        let scratches = (0..scratches).map(|_| scratch()).collect::<std::io::Result<Vec<_>>>()?;
        let chunks = pages.div_ceil(CHUNK) as usize;
        Ok(Self {
            frames,
            room,
            ring,
            ahead: Ahead::default(),
            scratches: Claims::new(scratches),
            digests: Digests::new(NonZero::new(store.slots()).ok_or(ErrorKind::InvalidInput)?)?,
            store,
            counters: Counters::default(),
            latency: Histogram::default(),
            zeros: Zeros::new(window_max() as usize)?,
            words: Words::new(pages as usize)?,
            links: Words::new(pages as usize)?,
            pasts: Words::new(pages as usize)?,
            clock: Clock::default(),
            returns: AtomicU64::default(),
            earned: AtomicI32::new(0),
            residents: Words::new(chunks)?,
            listed: AtomicU32::new(NIL),
            listed_total: AtomicU64::new(0),
            taken: Lock::new(NIL),
            backed,
            copies: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            pinned: AtomicU64::new(0),
            spaces: RwLock::default(),
            hand: Lock::new(0),
            refused: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        })
    }

    pub(super) fn page(&self, key: u32) -> Page<'_> {
        Page(&self.words[key as usize])
    }

    /// Returns the history of a page, and for how many rounds it is spared.
    pub(super) fn past(&self, key: u32) -> (Past, u8) {
        let word = self.pasts[key as usize].load(Ordering::Relaxed);
        (Past::from_bits(word as u16), (word >> 16) as u8)
    }

    /// Sets both.
    pub(super) fn remember(&self, key: u32, past: Past, rounds: u8) {
        let word = u32::from(past.bits()) | u32::from(rounds) << 16;
        let pasts = &self.pasts[key as usize];
        pasts.store(word | pasts.load(Ordering::Relaxed) & CHANGED, Ordering::Relaxed);
    }

    /// Whether a page changed before it left last: it may do so again. A hint, as the history.
    pub(super) fn has_changed(&self, key: u32) -> bool {
        self.pasts[key as usize].load(Ordering::Relaxed) & CHANGED != 0
    }

    /// Sets that.
    pub(super) fn set_changed(&self, key: u32, changed: bool) {
        let pasts = &self.pasts[key as usize];
        match changed {
            true => pasts.fetch_or(CHANGED, Ordering::Relaxed),
            false => pasts.fetch_and(!CHANGED, Ordering::Relaxed),
        };
    }

    /// Returns whether protecting pages pays. To be asked once for each call that brings some.
    pub(super) fn protection_pays(&self) -> bool {
        let pays = self.earned.load(Ordering::Relaxed) >= 0;
        if !pays {
            self.earn(1);
        }
        pays
    }

    /// Protection has earned that much: a page that was dropped earns one, a write to a protected
    /// page costs [`WRITE_COSTS`].
    pub(super) fn earn(&self, by: i32) {
        // Relaxed, as the pasts: of two simultaneous changes one may be lost.
        let earned = self.earned.load(Ordering::Relaxed).saturating_add(by);
        self.earned.store(earned.clamp(-EARNED_MAX, EARNED_MAX), Ordering::Relaxed);
    }

    /// Number of chunks.
    pub(super) fn chunks(&self) -> u32 {
        (self.store.slots() as u32).div_ceil(CHUNK)
    }

    /// Pages of a chunk that are in their place.
    pub(super) fn residents(&self, chunk: u32) -> u32 {
        self.residents[chunk as usize].load(Ordering::Relaxed)
    }

    /// Counts pages from `key` on, all of one chunk, that are in their place now.
    pub(super) fn count_in(&self, key: u32, count: u32) {
        // Relaxed: hints for the mover.
        self.residents[(key / CHUNK) as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Subtracts a page that no longer is.
    pub(super) fn count_out(&self, key: u32) {
        self.residents[(key / CHUNK) as usize].fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn spaces(&self) -> RwLockReadGuard<'_, Vec<Arc<Space>>> {
        sound(self.spaces.read())
    }

    /// Adds a region for the mover, in the order of keys.
    pub(super) fn add_space(&self, space: Arc<Space>) {
        let mut spaces = sound(self.spaces.write());
        let at = spaces.partition_point(|other| other.keys().start < space.keys().start);
        spaces.insert(at, space);
    }

    /// Removes a region; none of its pages is moved after this returns.
    pub(super) fn remove_space(&self, space: &Space) {
        sound(self.spaces.write()).retain(|other| other.keys() != space.keys());
    }

    /// Waits while another thread is in charge of a page.
    pub(super) fn await_page(&self, key: u32) {
        for _ in 0..LOOKS {
            if self.page(key).load().waited().is_none() {
                return;
            }
            std::hint::spin_loop();
        }
        if self.page(key).change(Word::waited).is_ok() {
            let word = self.page(key).load();
            if word.is_waited() {
                let word_itself = &self.words[key as usize];
                sleep_while(word_itself, word.bits(), Duration::from_millis(100));
            }
        }
    }

    /// Releases a page that this thread is in charge of, wakes the threads that wait for it, and
    /// lists it if the store has a copy of it from now on.
    pub(super) fn settle(&self, key: u32, state: State, value: u32, copied: bool) {
        if copied {
            // It was Stored.
            self.stored.fetch_sub(1, Ordering::Relaxed);
            self.copies.fetch_add(1, Ordering::Relaxed);
        }
        let settled = self.page(key).settle(state, value, copied);
        if settled.wake {
            wake(&self.words[key as usize], u32::MAX);
        }
        if settled.list {
            self.list(key);
        }
    }

    /// Puts a page on the list of those with copies, a stack that is only ever taken as a whole.
    /// The caller has set its `listed`, so it is on it once.
    pub(super) fn list(&self, key: u32) {
        let mut first = self.listed.load(Ordering::Relaxed);
        loop {
            self.links[key as usize].store(first, Ordering::Relaxed);
            // Release pairs with the Acquire in `drop_copies`: the link is seen.
            match self.listed.compare_exchange_weak(
                first,
                key,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
        if self.listed_total.fetch_add(1, Ordering::Relaxed).is_multiple_of(COPIES_MANY) {
            self.room.call_for_work();
        }
    }

    /// Drops copies until there are no more of them than pages that lie only in the store: copies
    /// make evictions cheaper, but take memory for pages that are in memory anyway.
    pub(super) fn trim_copies(&self) {
        let most = match self.backed {
            // A store with a file writes pages to it instead of losing room to copies.
            true => 0,
            false => self.stored.load(Ordering::Relaxed).max(COPIES_MANY),
        };
        let copies = self.copies.load(Ordering::Relaxed);
        if copies > most {
            self.drop_copies(copies - most);
        }
    }

    /// Drops up to `most` copies, for room in the store; returns how many.
    pub(super) fn drop_copies(&self, most: u64) -> u64 {
        let mut taken = self.taken.lock();
        let mut dropped = 0;
        while dropped < most {
            if *taken == NIL {
                *taken = self.listed.swap(NIL, Ordering::Acquire);
            }
            if *taken == NIL {
                break;
            }
            let key = *taken;
            // Read before the page is taken off the list, after which it may be listed again.
            *taken = self.links[key as usize].load(Ordering::Relaxed);
            self.page(key).unlist();
            dropped += u64::from(self.drop_copy(key));
        }
        dropped
    }

    /// Drops the copy of a page, unless it has none or is being stored; returns whether it did.
    pub(super) fn drop_copy(&self, key: u32) -> bool {
        let drops = self.page(key).change(Word::freeing).is_ok();
        if drops {
            self.store.invalidate(key.into());
            self.freed(key);
        }
        drops
    }

    /// Records that the store no longer holds anything for a page that this thread is storing.
    pub(super) fn freed(&self, key: u32) {
        if let Ok(before) = self.page(key).change(|word| Some(word.freed())) {
            self.uncount_copy(before);
        }
    }

    /// Subtracts a copy, if the page had one in this state.
    pub(super) fn uncount_copy(&self, before: Word) {
        self.copies.fetch_sub(u64::from(before.is_copied()), Ordering::Relaxed);
    }
}
