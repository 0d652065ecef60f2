//! The page store: pages by key, compressed into a pool.
//!
//! ```text
//!   store: page -> one word repeated? -> entry ---------> slot
//!               -> limit -> placed by `Pages` -> entry -> slot
//!   load:  slot -> entry -> read by `Pages`
//! ```
//!
//! - K1: a page is compressed and its object written before its slot is locked; the lock covers
//!   the exchange of the slot's entry only. The object that was replaced is freed afterwards.
//!   Only [`Store::update`], which must, compresses under the slot's lock.
//! - K2: a load holds its slot's lock until the page is complete, so that no thread frees or moves
//!   the object meanwhile. Different keys have different locks. No lock is held while the backing
//!   file is read; a page that comes from there is right by its checksum.
//! - K3: after a [`Store::store`] that failed, its key holds nothing: never the page before. After
//!   a [`Store::overwrite`] or [`Store::update`] that failed, it holds what it held.
//! - K4: a slot's entry decides how its bytes are read, not an option, which may have been
//!   different when the page was stored.
//! - K5: with a limit, what is held exceeds it at most by the calls in progress: a store that
//!   leaves more is taken back, an overwrite or update begins only below the limit.
//! - K6: room is made (compaction, writeback) by threads that hold no slot's lock.
//!
//! Lock order: processing, a slot's lock, then one of: a shard of duplicates, the list of
//! preserved entries, the extents of the backing file; then the pool's.

mod exchange;
mod inspect;
pub(crate) mod postprocess;
pub mod snapshot;

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use rustix::time::{ClockId, clock_gettime};
use zfold_pool::Pool;

use crate::content::{Content, Stored};
use crate::entry::{Entry, Flag, Kind, State};
use crate::error::{KeyError, LoadError, OpenError, StoreError, UpdateError};
use crate::limit::Limit;
use crate::options::{StoreOptions, Tunables};
use crate::pages::backed::Backed;
use crate::pages::{Pages, same};
use crate::slots::{Form, SlotTable};
use crate::stats::Share;
use crate::store::postprocess::rounds::Processing;
use crate::store::snapshot::epoch::Saving;
use crate::tuning::Tuning;

/// Pages by key, compressed. All methods take `&self` and may be called from any number of
/// threads; calls with different keys wait for each other at most inside the pool.
///
/// A forked child must neither call nor drop its parent's: see [`zfold_pool::process::Local`].
///
/// # Examples
/// ```
/// use zfold_store::{CodecKind, Store, StoreOptions};
///
/// let store = Store::open(&StoreOptions::new(1 << 20, CodecKind::Lz4.into()))?;
/// let page: Vec<u8> = (0..4096).map(|byte| (byte / 64) as u8).collect();
/// store.store(7, &page)?;
///
/// let mut back = vec![0; 4096];
/// assert!(store.load(7, &mut back)?);
/// assert_eq!(back, page);
/// assert!(store.invalidate(7));
/// assert!(!store.load(7, &mut back)?, "absent now");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Store {
    pub(crate) slots: SlotTable,
    pub(crate) pages: Pages,
    pub(crate) tuning: Tuning,
    pub(crate) limit: Limit,
    pub(crate) saving: Saving,
    pub(crate) processing: Mutex<Processing>,
    /// Bytes that processing holds for its work.
    pub(crate) processing_bytes: AtomicU64,
    /// When the store was made, in seconds of the monotonic clock.
    made: i64,
}

/// Share of the pool's pages that are worth a compaction when it would free them.
const HOLES: u64 = 32;

/// Stores of a thread between two looks at how much is held, a power of two.
const LOOK_EVERY: u64 = 64;

impl Store {
    /// Returns an empty store over a pool of its own, which
    /// [`StoreOptions::pool`] describes.
    ///
    /// # Errors
    /// [`OpenError`] if an option is out of range, or the pool, a codec or the slot table cannot
    /// be had.
    pub fn open(options: &StoreOptions) -> Result<Self, OpenError> {
        let pool = zfold_pool::create("store", &options.pool).map_err(OpenError::Pool)?;
        Self::new(pool, options)
    }

    /// Returns an empty store over a `pool` that the caller has made, whose page size is that of
    /// the store. [`StoreOptions::pool`] is not looked at.
    ///
    /// # Errors
    /// [`OpenError`] if an option is out of range, the pool is not empty, a codec cannot be set up
    /// or the slot table cannot be reserved.
    pub fn new(pool: Box<dyn Pool>, options: &StoreOptions) -> Result<Self, OpenError> {
        options.check()?;
        let stats = pool.stats();
        if stats.objects != 0 {
            return Err(OpenError::PoolInUse);
        }
        let page_len = stats.page_size.bytes();
        if page_len > State::LEN_MAX {
            let what = format!("pages of {page_len} bytes are too long for a store");
            return Err(OpenError::Option(what));
        }
        let pages = Pages::new(pool, options).map_err(OpenError::Codec)?;
        let tunables = options.tunables();
        let processing = match &pages.backed {
            Some(backed) if tunables.limit_bytes.is_some() => {
                let page_max = backed.bytes_of(page_len) as usize;
                // Most pages take half of that, or less.
                let half = tunables.writeback_batch_pages as usize * page_max / 2;
                Processing::with_len_max(half.max(page_max), page_max)
            }
            _ => Processing::default(),
        };
        let form = if pages.are_owned() { Form::Narrow } else { Form::Wide };
        Ok(Self {
            slots: SlotTable::new(options.slots, form).map_err(OpenError::SlotTable)?,
            pages,
            tuning: Tuning::new(&tunables),
            limit: Limit::new(page_len),
            saving: Saving::default(),
            processing_bytes: AtomicU64::new(processing.bytes()),
            processing: Mutex::new(processing),
            made: clock_gettime(ClockId::MonotonicCoarse).tv_sec,
        })
    }

    /// Returns the length of a page in bytes.
    #[must_use]
    pub fn page_len(&self) -> usize {
        self.pages.len
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.slots.len()
    }

    /// Stores `page` under `key`, in place of what the key held; returns in what form.
    ///
    /// # Errors
    /// [`StoreError`]. For one of a wrong key or length nothing changes; after any other the key
    /// holds nothing, so that a later load cannot return an older page.
    ///
    /// # Cost
    /// The codec's compression, and about 100 ns.
    pub fn store(&self, key: u64, page: &[u8]) -> Result<Stored, StoreError> {
        self.check_page(key, page)?;
        let share = self.share();
        let placed = self.place_with_room(key, page).and_then(|(entry, stored)| {
            self.exchange(key, entry, share);
            self.enforce_limit()?;
            Ok(stored)
        });
        if let Err(error) = placed {
            let held = self.exchange(key, Entry::EMPTY, share).is_some();
            if held && error == StoreError::Full {
                // What the page took must not stay as idle memory above the limit.
                self.slots.trim();
                self.compact_pool(0, &AtomicBool::new(false));
            }
        }
        self.count_store(placed, share)
    }

    /// Stores `page` under `key` as [`store`](Self::store) does; but if that fails, the key holds
    /// what it held before.
    ///
    /// # Errors
    /// [`StoreError`]; nothing has changed.
    ///
    /// # Cost
    /// That of a store.
    pub fn overwrite(&self, key: u64, page: &[u8]) -> Result<Stored, StoreError> {
        self.check_page(key, page)?;
        let share = self.share();
        let placed = self.place_with_room(key, page).map(|(entry, stored)| {
            self.exchange(key, entry, share);
            stored
        });
        self.count_store(placed, share)
    }

    /// Changes the page under `key` in place: `change` is given its bytes, zeros if there was none,
    /// and what it leaves is stored. No other call on this key comes between. If room has to be
    /// made first, `change` is called again, with the page as it is then.
    ///
    /// # Errors
    /// [`UpdateError`]; the key holds what it held before.
    ///
    /// # Cost
    /// A load and a store, during which others wait for this key.
    pub fn update(&self, key: u64, change: impl Fn(&mut [u8])) -> Result<Stored, UpdateError> {
        self.check_key(key).map_err(StoreError::Key)?;
        let mut page = self.pages.contexts.take_page();
        let full = UpdateError::Store(StoreError::Full);
        let updated = self.retry_with_room(&full, || self.try_update(key, &mut page, &change));
        self.pages.contexts.put_page(page);
        match updated {
            Err(UpdateError::Store(error)) => {
                self.count_store(Err(error), self.share()).map_err(UpdateError::Store)
            }
            Ok(stored) => Ok(self.count_store(Ok(stored), self.share())?),
            error => error,
        }
    }

    fn try_update(
        &self,
        key: u64,
        page: &mut [u8],
        change: impl Fn(&mut [u8]),
    ) -> Result<Stored, UpdateError> {
        let slot = self.lock_with_page(key, page).map_err(UpdateError::Load)?;
        change(page);
        let (entry, stored) = self.place(key, page)?;
        self.install(key, slot, entry, self.share());
        Ok(stored)
    }

    /// Loads the page under `key` into `page`; returns whether the key holds one. If not, `page`
    /// is left as it is.
    ///
    /// # Errors
    /// [`LoadError`]. The entry stays; `page` may have been written to.
    ///
    /// # Cost
    /// The codec's decompression, and about 100 ns; a read of the backing file if the page is
    /// there.
    pub fn load(&self, key: u64, page: &mut [u8]) -> Result<bool, LoadError> {
        self.check_load(key, page)?;
        let share = self.share();
        loop {
            let Some(mut slot) = self.slots.lock_present(key) else {
                share.load_misses_total.add(1);
                return Ok(false);
            };
            let entry = slot.entry();
            slot.set_state(entry.state.used(self.second()));
            if !entry.state.has(Flag::Backed) {
                self.pages.read(None, key, entry, page)?;
                break;
            }
            drop(slot);
            if self.read_backed(key, entry, page)? {
                break;
            }
        }
        share.loads_total.add(1);
        Ok(true)
    }

    /// Drops the page under `key`; returns whether there was one. A key beyond the last holds
    /// none.
    pub fn invalidate(&self, key: u64) -> bool {
        if key >= self.slots() {
            return false;
        }
        let share = self.share();
        let held = self.exchange(key, Entry::EMPTY, share).is_some();
        share.invalidates_total.add(held.into());
        held
    }

    /// Drops the pages of all `keys`; returns how many there were. Costs as
    /// [`next_present`](Self::next_present) and a free for each page.
    pub fn invalidate_range(&self, keys: Range<u64>) -> u64 {
        self.present(keys).map(|key| u64::from(self.invalidate(key))).sum()
    }

    /// Returns whether `key` holds a page.
    #[must_use]
    pub fn contains(&self, key: u64) -> bool {
        key < self.slots() && self.slots.lock_present(key).is_some()
    }

    /// Returns what `key` holds at this moment, without waiting. A key beyond the last holds
    /// nothing.
    ///
    /// # Cost
    /// A load of one word; a short lock for a same-filled page.
    #[must_use]
    pub fn peek(&self, key: u64) -> Content {
        if key >= self.slots() {
            return Content::Absent;
        }
        match self.slots.state_now(key).kind() {
            Kind::Empty => Content::Absent,
            Kind::Same => self.slots.lock_present(key).map_or(Content::Absent, |slot| {
                let entry = slot.entry();
                match entry.state.kind() {
                    Kind::Same => Content::SameFilled(entry.value),
                    _ => Content::Data,
                }
            }),
            _ => Content::Data,
        }
    }

    /// Returns the first key of `keys` that holds a page, if one does.
    ///
    /// # Cost
    /// Reads a word for each 256 absent keys in a row, and a word for each key among others.
    #[must_use]
    pub fn next_present(&self, keys: Range<u64>) -> Option<u64> {
        self.slots.next_present(keys.start, keys.end)
    }

    /// Returns the keys of a range that hold pages, as they are found.
    pub(crate) fn present(&self, keys: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let mut rest = keys;
        std::iter::from_fn(move || {
            let key = self.next_present(rest.clone())?;
            rest.start = key + 1;
            Some(key)
        })
    }

    /// Returns the number of pages held.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.pages.counts.stored_pages()
    }

    /// Returns whether the store holds no page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Compacts the pool and returns idle memory to the system; returns the pages freed.
    pub fn compact(&self) -> u64 {
        self.slots.trim();
        self.compact_pool(u64::MAX, &AtomicBool::new(false))
    }

    /// Compacts if that frees more than a thirty-second of the pool's pages, as a
    /// [`Shrinker`](crate::shrinker::Shrinker) does ten times a second; returns the pages freed.
    ///
    /// # Cost
    /// Only reads the pool's counters if there is not that much to free.
    pub fn compact_if_due(&self) -> u64 {
        self.compact_if_due_until(&AtomicBool::new(false))
    }

    /// As [`compact_if_due`](Self::compact_if_due), until `stop` is true.
    pub(crate) fn compact_if_due_until(&self, stop: &AtomicBool) -> u64 {
        if !self.has_holes() {
            return 0;
        }
        self.compact_pool(u64::MAX, stop)
    }

    pub(crate) fn compact_pool(&self, pages: u64, stop: &AtomicBool) -> u64 {
        self.pages.objects.compact(&self.slots, pages, stop)
    }

    /// Returns whether enough pages could be freed for a compaction to be worth it.
    pub(crate) fn has_holes(&self) -> bool {
        let stats = self.pages.objects.pool().stats();
        stats.freeable_pages.0 * HOLES > stats.pages.0
    }

    /// Returns what can be changed while the store works.
    #[must_use]
    pub fn tunables(&self) -> Tunables {
        self.tuning.get()
    }

    /// Changes it. A lower limit refuses or writes back pages from the next store on; what is
    /// held stays until then, and stays compressed as it is.
    ///
    /// # Errors
    /// [`OpenError`] if a value is out of range; then nothing changes.
    pub fn tune(&self, to: &Tunables) -> Result<(), OpenError> {
        if usize::from(to.codec) >= self.pages.contexts.choices().len() {
            return Err(OpenError::Option(format!("there is no codec of priority {}", to.codec)));
        }
        self.tuning.set(to)
    }

    /// Returns once the pages on the backing file are on stable storage.
    ///
    /// # Errors
    /// What the system says. Without a backing file there is nothing to do.
    pub fn sync(&self) -> std::io::Result<()> {
        self.pages.backed.as_ref().map_or(Ok(()), Backed::sync)
    }

    fn check_key(&self, key: u64) -> Result<(), KeyError> {
        let slots = self.slots();
        if key < slots { Ok(()) } else { Err(KeyError { key, slots }) }
    }

    fn check_page(&self, key: u64, page: &[u8]) -> Result<(), StoreError> {
        self.check_key(key).map_err(StoreError::Key)?;
        let (len, expected) = (page.len(), self.pages.len);
        if len != expected {
            return Err(StoreError::PageLength { len, expected });
        }
        // It is needed after the compression, which leaves time to fetch it.
        self.slots.prefetch(key);
        Ok(())
    }

    pub(crate) fn check_load(&self, key: u64, page: &[u8]) -> Result<(), LoadError> {
        self.check_key(key).map_err(LoadError::Key)?;
        let (len, expected) = (page.len(), self.pages.len);
        if len == expected { Ok(()) } else { Err(LoadError::PageLength { len, expected }) }
    }

    #[inline]
    pub(crate) fn share(&self) -> &Share {
        self.pages.counts.share()
    }

    /// Returns the seconds since the store was made.
    #[inline]
    pub(crate) fn second(&self) -> u32 {
        (clock_gettime(ClockId::MonotonicCoarse).tv_sec - self.made) as u32
    }

    fn count_store(
        &self,
        result: Result<Stored, StoreError>,
        share: &Share,
    ) -> Result<Stored, StoreError> {
        match &result {
            Ok(_) => {
                share.stores_total.add(1);
                if share.stores_total.get().is_multiple_of(LOOK_EVERY) {
                    self.limit.look(self.held_bytes());
                }
            }
            Err(StoreError::Full) => share.pool_limit_hit_total.add(1),
            Err(StoreError::Incompressible) => share.reject_compress_poor_total.add(1),
            Err(_) => share.reject_alloc_fail_total.add(1),
        }
        result
    }

    fn place_with_room(&self, key: u64, page: &[u8]) -> Result<(Entry, Stored), StoreError> {
        self.retry_with_room(&StoreError::Full, || self.place(key, page))
    }

    /// Makes an entry of `page`. The caller may hold a slot's lock.
    fn place(&self, key: u64, page: &[u8]) -> Result<(Entry, Stored), StoreError> {
        if self.tuning.same_filled()
            && let Some(word) = same::repeated_word(page)
        {
            return Ok((Entry::same(word), Stored::SameFilled));
        }
        self.check_limit()?;
        self.pages.place(key, page, self.tuning.codec())
    }

    pub(super) fn check_limit(&self) -> Result<(), StoreError> {
        self.limit.check(&self.tuning, || self.held_bytes(), self.pages.backed.is_some())
    }
}

#[cfg(test)]
mod tests;
