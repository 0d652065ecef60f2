//! What the regions of one memory share: the words of all pages, the limit, the staging area,
//! the store. Pages have keys, numbers without regard to regions, so most of it knows no addresses.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use zfold_store::{Loader, Store};

use super::frames::Frames;
use super::ring::Ring;
use super::room::Room;
use super::space::{Space, WINDOW_MAX};
use super::stats::{Counters, Histogram};
use super::wait::{sleep_while, wake};
use super::word::{Page, State, Word};
use crate::sys::claims::Claims;
use crate::sys::map::{Mapping, Words, Zeros};
use zfold_uffd::page::PAGE;

/// Pages whose residents are counted together; regions begin at a multiple.
pub(super) const CHUNK: u32 = 512;

/// The end of the list of stale pages.
const NIL: u32 = u32::MAX;

/// Pages listed as stale between two wake-ups for them.
const STALE_MANY: u64 = 256;

/// Looks at a word before a thread sleeps on it.
const LOOKS: u32 = 200;

/// What a thread needs to bring pages.
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
    pub store: Store,
    pub scratches: Claims<Scratch>,
    pub counters: Counters,
    pub latency: Histogram,
    /// Zeros, for pages that nobody has touched before.
    pub zeros: Zeros,
    words: Words,
    /// For each listed page the next one.
    links: Words,
    /// For each chunk the pages that are in their place.
    residents: Words,
    stale: AtomicU32,
    stale_total: AtomicU64,
    pub pinned: AtomicU64,
    spaces: RwLock<Vec<Arc<Space>>>,
    /// The mover's: where it looks next. Who has it may move pages out.
    pub hand: Mutex<u32>,
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
        pages: u32,
        scratches: usize,
    ) -> std::io::Result<Self> {
        let scratch = || {
            let pages = Mapping::new(WINDOW_MAX as usize * PAGE)?;
            Ok(Scratch { loader: store.loader(), pages })
        };
        let scratches = (0..scratches).map(|_| scratch()).collect::<std::io::Result<Vec<_>>>()?;
        let chunks = pages.div_ceil(CHUNK) as usize;
        Ok(Self {
            frames,
            room,
            ring,
            scratches: Claims::new(scratches),
            store,
            counters: Counters::default(),
            latency: Histogram::new(),
            zeros: Zeros::new(WINDOW_MAX as usize)?,
            words: Words::new(pages as usize)?,
            links: Words::new(pages as usize)?,
            residents: Words::new(chunks)?,
            stale: AtomicU32::new(NIL),
            stale_total: AtomicU64::new(0),
            pinned: AtomicU64::new(0),
            spaces: RwLock::default(),
            hand: Mutex::new(0),
            refused: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        })
    }

    pub(super) fn page(&self, key: u32) -> Page<'_> {
        Page(&self.words[key as usize])
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

    /// Uncounts one that is not any more.
    pub(super) fn count_out(&self, key: u32) {
        self.residents[(key / CHUNK) as usize].fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn spaces(&self) -> RwLockReadGuard<'_, Vec<Arc<Space>>> {
        self.spaces.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a region for the mover, in the order of keys.
    pub(super) fn add_space(&self, space: Arc<Space>) {
        let mut spaces = self.spaces.write().unwrap_or_else(PoisonError::into_inner);
        let at = spaces.partition_point(|other| other.keys().start < space.keys().start);
        spaces.insert(at, space);
    }

    /// Removes a region; no page of it is moved any more when this returns.
    pub(super) fn remove_space(&self, space: &Space) {
        let mut spaces = self.spaces.write().unwrap_or_else(PoisonError::into_inner);
        spaces.retain(|other| other.keys() != space.keys());
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

    /// Ends being in charge of a page, wakes who waits for it, and lists it if its entry of the
    /// store is to be dropped.
    pub(super) fn settle(&self, key: u32, state: State, value: u32, stale: bool) {
        let settled = self.page(key).settle(state, value, stale);
        if settled.wake {
            wake(&self.words[key as usize], u32::MAX);
        }
        if settled.list {
            self.list(key);
        }
    }

    /// Puts a page on the list of stale ones, a stack that is only ever taken as a whole. The
    /// caller has set its `listed`, so it is on it once.
    fn list(&self, key: u32) {
        let mut first = self.stale.load(Ordering::Relaxed);
        loop {
            self.links[key as usize].store(first, Ordering::Relaxed);
            // Release pairs with the Acquire in `take_stale`: the link is seen.
            match self.stale.compare_exchange_weak(first, key, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
        if self.stale_total.fetch_add(1, Ordering::Relaxed).is_multiple_of(STALE_MANY) {
            self.room.call_for_work();
        }
    }

    /// Drops what the store holds for pages that are elsewhere by now (word/W2, word/W3).
    pub(super) fn drop_stale(&self) {
        let mut key = self.stale.swap(NIL, Ordering::Acquire);
        while key != NIL {
            // Read before the page is off the list, when it may be listed again.
            let next = self.links[key as usize].load(Ordering::Relaxed);
            self.page(key).unlist();
            if self.page(key).change(Word::freeing).is_ok() {
                self.store.invalidate(key.into());
                let _ = self.page(key).change(|word| Some(word.freed()));
            }
            key = next;
        }
    }
}
