//! The page store: pages by key, compressed into a pool.
//!
//! ```text
//!   store: page -> one word repeated? -> slot
//!               -> codec -> gains?  -> pool object -> slot
//!                        -> no gain -> raw object, or refused
//!   load:  slot -> word fill | pool object in place | bytes on the backing file
//!               -> codec or copy -> page
//! ```
//!
//! - K1: a page is compressed and its object written before its slot is locked; the lock covers
//!   the exchange of the slot's entry only. The object that was replaced is freed afterwards.
//!   Only [`Store::update`], which must, compresses under the slot's lock.
//! - K2: a load holds its slot's lock until the page is complete, so that nobody frees the object
//!   under it. Different keys have different locks. No lock is held while the backing file is
//!   read; a page that comes from there is right by its checksum.
//! - K3: after a [`Store::store`] that failed, its key holds nothing: never the page before. After
//!   a [`Store::overwrite`] or [`Store::update`] that failed, it holds what it held.
//! - K4: what a slot's entry says decides how its bytes are read, not an option that may have
//!   changed or been different when it was stored.
//! - K5: with a limit, what is held exceeds it at most by the calls in progress: a store that
//!   leaves more is taken back, an overwrite or update begins only below the limit.
//! - K6: room is made (compaction, writeback) by threads that hold no slot's lock.
//!
//! Lock order: processing, a slot's lock, then one of: a shard of duplicates, the list of
//! preserved entries, the extents of the backing file; then the pool's.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};
use thread_local::ThreadLocal;
use zfold_pool::{AllocError, HandleError, PageCount, Pool, ReadGuard};

use crate::backing::backed::{Backed, ReadError};
use crate::codec::{CodecError, Dictionary};
use crate::pages::contexts::{Contexts, KEY_BYTES};
use crate::pages::duplicates::{Duplicates, Inserted};
use crate::entry::{Entry, Flag, Kind, State};
use crate::error::{KeyError, LoadError, OpenError, StoreError, UpdateError};
use crate::options::{Incompressible, StoreOptions, Tunables, Tuning};
use crate::postprocess::Processing;
use crate::pages::same;
use crate::slots::{SlotGuard, SlotTable};
use crate::snapshot::Saving;
use crate::stats::{Share, StoreStats};

/// In what form a page was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stored {
    /// One repeated word, in the slot.
    SameFilled,
    /// Compressed to `len` bytes.
    Compressed {
        /// Compressed length in bytes.
        len: usize,
    },
    /// As it is.
    Raw,
}

/// What a key holds, as [`Store::peek`] sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// No page.
    Absent,
    /// A page of this word repeated.
    SameFilled(u64),
    /// Any other page.
    Data,
}

/// Pages by key, compressed. All methods take `&self` and may be called from any number of
/// threads; calls with different keys wait for each other at most inside the pool.
///
/// # Examples
/// ```
/// use zfold_pool::{Allocator, PoolOptions};
/// use zfold_store::{CodecKind, Store, StoreOptions};
///
/// let pool = zfold_pool::create("example", &PoolOptions::new(Allocator::Zsmalloc))?;
/// let store = Store::new(pool, &StoreOptions::new(1 << 20, CodecKind::Lz4.into()))?;
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
    pub(crate) pool: Box<dyn Pool>,
    pub(crate) page_len: usize,
    pub(crate) slots: SlotTable,
    pub(crate) contexts: Contexts,
    pub(crate) tuning: Tuning,
    pub(crate) backed: Option<Backed>,
    pub(crate) saving: Saving,
    pub(crate) processing: Mutex<Processing>,
    /// Bytes that processing holds for its work.
    pub(crate) processing_bytes: AtomicU64,
    incompressible: Incompressible,
    /// Bytes of the key in front of each object.
    pub(crate) header: usize,
    duplicates: Option<Duplicates>,
    shares: ThreadLocal<Share>,
    /// The limit was hit, and the store has not shrunk to its accept threshold since.
    full: AtomicBool,
    /// The most that was held, as far as was looked.
    held_max: AtomicU64,
    /// Loads by [`Store::load_with`], which no thread's share counts.
    pub(crate) direct_loads_total: AtomicU64,
    /// When the store was made, in seconds of the monotonic clock.
    made: i64,
}

/// Stores of a thread between two looks at how much is held, a power of two.
const LOOK_EVERY: u64 = 64;

/// Bytes of pages to train a byte of dictionary on, as Zstandard's authors advise.
const SAMPLES: usize = 100;

impl Store {
    /// Returns an empty store over `pool`, whose page size is that of the store.
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
            return Err(OpenError::PageLength(page_len));
        }
        Ok(Self {
            slots: SlotTable::new(options.slots).map_err(OpenError::SlotTable)?,
            contexts: Contexts::new(page_len, options.codecs()).map_err(OpenError::Codec)?,
            pool,
            page_len,
            tuning: Tuning::new(&options.tunables()),
            backed: options.backing.as_ref().map(Backed::new),
            saving: Saving::default(),
            processing: Mutex::default(),
            processing_bytes: AtomicU64::new(0),
            incompressible: options.incompressible,
            header: if options.key_header { KEY_BYTES } else { 0 },
            duplicates: options.deduplicate.then(Duplicates::new),
            shares: ThreadLocal::new(),
            full: AtomicBool::new(false),
            held_max: AtomicU64::new(0),
            direct_loads_total: AtomicU64::new(0),
            made: clock_gettime(ClockId::MonotonicCoarse).tv_sec,
        })
    }

    /// Returns the length of a page in bytes.
    #[must_use]
    pub fn page_len(&self) -> usize {
        self.page_len
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
    /// The codec's compression, and some 100 ns.
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
                self.pool.compact(PageCount::ZERO);
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

    /// Changes the page under `key` in place: `change` is given its bytes, zeros if there was
    /// none, and what it leaves is stored. No other call on this key comes between. Where room
    /// has to be made first, `change` is called again, with the page as it is then.
    ///
    /// # Errors
    /// [`UpdateError`]; the key holds what it held before.
    ///
    /// # Cost
    /// A load and a store, during which others wait for this key.
    pub fn update(&self, key: u64, change: impl Fn(&mut [u8])) -> Result<Stored, UpdateError> {
        self.check_key(key).map_err(StoreError::Key)?;
        let mut page = self.contexts.take_page();
        let updated = self.retry_with_room(|| self.try_update(key, &mut page, &change));
        self.contexts.put_page(page);
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
    /// The codec's decompression, and some 100 ns; a read of the backing file if the page is
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
                self.read_entry(key, entry, page)?;
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
        self.stats().stored_pages
    }

    /// Returns whether the store holds no page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Compacts the pool and returns idle memory to the system; returns the pages freed.
    pub fn compact(&self) -> PageCount {
        self.slots.trim();
        self.pool.compact(PageCount::MAX)
    }

    /// Returns what can be changed while the store works.
    #[must_use]
    pub fn tunables(&self) -> Tunables {
        self.tuning.get()
    }

    /// Changes it. A lower limit refuses or writes back pages from the next store on; what is
    /// held stays until then.
    ///
    /// # Errors
    /// [`OpenError`] if a value is out of range; then nothing changes.
    pub fn tune(&self, to: &Tunables) -> Result<(), OpenError> {
        self.tuning.set(to)
    }

    /// Returns once the pages on the backing file are on stable storage.
    ///
    /// # Errors
    /// What the system says. Without a backing file there is nothing to do.
    pub fn sync(&self) -> std::io::Result<()> {
        self.backed.as_ref().map_or(Ok(()), Backed::sync)
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let held = self.look_at_held();
        let mut stats = StoreStats::sum(&self.shares);
        stats.loads_total += self.direct_loads_total.load(Ordering::Relaxed);
        stats.pool = self.pool.stats();
        stats.metadata_bytes = self.metadata_bytes();
        stats.held_max_bytes = self.held_max.load(Ordering::Relaxed).max(held);
        if let Some(duplicates) = &self.duplicates {
            let (objects, references) = duplicates.count();
            stats.duplicate_pages = references.saturating_sub(objects);
        }
        if let Some(backed) = &self.backed {
            stats.backing_used_bytes = backed.used_bytes();
            stats.backing_bytes = backed.len();
        }
        stats
    }

    /// Begins to look for the most that is held from now on (zram's `mem_used_max`).
    pub fn reset_held_max(&self) {
        self.held_max.store(self.held_bytes(), Ordering::Relaxed);
    }

    /// Returns all bytes of memory that the store holds: pages, idle pages and metadata.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.pool.held_bytes() + self.metadata_bytes()
    }

    /// Asserts the pool's invariants, and that its objects are those of the slots.
    ///
    /// # Panics
    /// If one is broken. Call it while no other call is in progress.
    pub fn check(&self) {
        self.pool.check();
        let stats = self.stats();
        let elsewhere = stats.same_filled_pages + stats.backed_pages + stats.duplicate_pages;
        let objects = stats.stored_pages - elsewhere;
        assert_eq!(stats.pool.objects, objects, "objects and slots differ");
        let keys = self.present(0..self.slots());
        let backed = keys.map(|key| self.slots.lock(key).entry().state);
        let backed = backed.filter(|state| state.has(Flag::Backed));
        let units = backed.map(|state| self.backed.as_ref().map_or(0, |b| b.bytes_of(state.len())));
        assert_eq!(units.sum::<u64>(), stats.backing_used_bytes, "units and slots differ");
    }

    fn metadata_bytes(&self) -> u64 {
        self.slots.bytes()
            + self.contexts.bytes()
            + self.saving.bytes()
            // Relaxed: a gauge.
            + self.processing_bytes.load(Ordering::Relaxed)
            + self.duplicates.as_ref().map_or(0, Duplicates::bytes)
            + self.backed.as_ref().map_or(0, Backed::metadata_bytes)
    }

    fn check_key(&self, key: u64) -> Result<(), KeyError> {
        let slots = self.slots();
        if key < slots { Ok(()) } else { Err(KeyError { key, slots }) }
    }

    fn check_page(&self, key: u64, page: &[u8]) -> Result<(), StoreError> {
        self.check_key(key).map_err(StoreError::Key)?;
        let (len, expected) = (page.len(), self.page_len);
        if len != expected {
            return Err(StoreError::PageLength { len, expected });
        }
        // It is needed after the compression, which leaves time to fetch it.
        self.slots.prefetch(key);
        Ok(())
    }

    pub(crate) fn check_load(&self, key: u64, page: &[u8]) -> Result<(), LoadError> {
        self.check_key(key).map_err(LoadError::Key)?;
        let (len, expected) = (page.len(), self.page_len);
        if len == expected { Ok(()) } else { Err(LoadError::PageLength { len, expected }) }
    }

    #[inline]
    pub(crate) fn share(&self) -> &Share {
        self.shares.get_or_default()
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
                    self.look_at_held();
                }
            }
            Err(StoreError::Full) => share.pool_limit_hit_total.add(1),
            Err(StoreError::Incompressible) => share.reject_compress_poor_total.add(1),
            Err(_) => share.reject_alloc_fail_total.add(1),
        }
        result
    }

    fn look_at_held(&self) -> u64 {
        let held = self.held_bytes();
        // Relaxed: a statistic.
        if held > self.held_max.load(Ordering::Relaxed) {
            self.held_max.fetch_max(held, Ordering::Relaxed);
        }
        held
    }

    fn place_with_room(&self, key: u64, page: &[u8]) -> Result<(Entry, Stored), StoreError> {
        self.retry_with_room(|| self.place(key, page))
    }

    /// Brings `page` into the pool, or into the entry itself. The caller may hold a slot's lock.
    fn place(&self, key: u64, page: &[u8]) -> Result<(Entry, Stored), StoreError> {
        if self.tuning.same_filled()
            && let Some(word) = same::repeated_word(page)
        {
            return Ok((Entry::same(word), Stored::SameFilled));
        }
        self.check_limit()?;
        let context = &mut *self.contexts.mine();
        let header = self.header;
        // Without room to keep pages raw, anything that fits into a page is a gain.
        let (len_max, raw) = match self.incompressible {
            Incompressible::Reject => (self.page_len, None),
            Incompressible::Keep => {
                let huge = self.pool.huge_len().min(self.page_len);
                (huge.saturating_sub(header + 1), Some(Stored::Raw))
            }
        };
        let compressed = self.contexts.compress(context, 0, page, header, len_max);
        let stored = compressed.map(|len| Stored::Compressed { len }).or(raw);
        let stored = stored.ok_or(StoreError::Incompressible)?;
        let (kind, len) = match stored {
            Stored::Compressed { len } => (Kind::Compressed, len),
            _ => {
                context.object[header..header + page.len()].copy_from_slice(page);
                (Kind::Raw, page.len())
            }
        };
        context.object[..header].copy_from_slice(&key.to_le_bytes()[..header]);
        let inserted = self.insert(&context.object[..header + len])?;
        let state = State::new(kind, len, 0).set(Flag::Shared, inserted.shared);
        Ok((Entry { state, value: inserted.handle.to_bits().get() }, stored))
    }

    /// Returns whether a page with these kept bytes shares its object with another one.
    pub(crate) fn is_shared(&self, state: State, kept: &[u8]) -> bool {
        let shared = |duplicates: &Duplicates| duplicates.references(kept) > 1;
        state.has(Flag::Shared) && self.duplicates.as_ref().is_some_and(shared)
    }

    fn insert(&self, object: &[u8]) -> Result<Inserted, StoreError> {
        let inserted = match &self.duplicates {
            Some(duplicates) => duplicates.insert(&*self.pool, object),
            None => self.pool.insert(object).map(|handle| Inserted { handle, shared: false }),
        };
        inserted.map_err(|error| match error {
            AllocError::TooLong { .. } => StoreError::Incompressible,
            error => StoreError::Pool(error),
        })
    }

    /// Refuses pages at the limit; without a backing file to make room on, until the store has
    /// shrunk to its accept threshold.
    fn check_limit(&self) -> Result<(), StoreError> {
        let Some(limit) = self.tuning.limit_bytes() else { return Ok(()) };
        let held = self.held_bytes();
        // Relaxed: a decision that may be one store late.
        if held >= limit {
            self.full.store(true, Ordering::Relaxed);
        } else if self.backed.is_some() || held <= self.accept_bytes(limit) {
            self.full.store(false, Ordering::Relaxed);
        }
        if self.full.load(Ordering::Relaxed) { Err(StoreError::Full) } else { Ok(()) }
    }

    /// Returns the bytes below which a full store takes pages again.
    pub(crate) fn accept_bytes(&self, limit: u64) -> u64 {
        let percent = self.tuning.get().accept_percent;
        (u128::from(limit) * u128::from(percent) / 100) as u64
    }

    /// Refuses a page whose entry has brought the store over its limit, if no room can be made;
    /// the caller takes the entry out again.
    fn enforce_limit(&self) -> Result<(), StoreError> {
        let within = || self.tuning.limit_bytes().is_none_or(|limit| self.held_bytes() <= limit);
        if within() || (self.backed.is_some() && self.make_room() && within()) {
            return Ok(());
        }
        self.full.store(true, Ordering::Relaxed);
        Err(StoreError::Full)
    }

    /// Puts a restored entry into its slot.
    pub(crate) fn put(&self, key: u64, entry: Entry) {
        self.exchange(key, entry, self.share());
    }

    /// Puts a restored page into its slot, of which `kept` is what was kept.
    pub(crate) fn put_kept(&self, key: u64, state: State, kept: &[u8]) -> Result<(), StoreError> {
        let place = || {
            self.check_limit()?;
            let context = &mut *self.contexts.mine();
            let object = &mut context.object[..self.header + kept.len()];
            object[..self.header].copy_from_slice(&key.to_le_bytes()[..self.header]);
            object[self.header..].copy_from_slice(kept);
            self.insert(object)
        };
        let inserted = self.retry_with_room(place)?;
        let state = state.set(Flag::Shared, inserted.shared);
        self.put(key, Entry { state, value: inserted.handle.to_bits().get() });
        Ok(())
    }

    /// Trains a dictionary of at most `len_max` bytes on the pages held.
    ///
    /// # Errors
    /// When there are too few pages to learn from.
    ///
    /// # Cost
    /// A load of up to a hundred times `len_max` bytes of pages, and the training, seconds for
    /// 16 KiB.
    pub fn train_dictionary(&self, len_max: usize) -> Result<Dictionary, CodecError> {
        let wanted = (len_max * SAMPLES / self.page_len) as u64;
        let step = (self.len() / wanted.max(1)).max(1) as usize;
        let mut samples = Vec::new();
        for key in self.present(0..self.slots()).step_by(step) {
            let mut page = vec![0; self.page_len];
            // A page that is gone or damaged teaches nothing.
            if self.load(key, &mut page) == Ok(true) && same::repeated_word(&page).is_none() {
                samples.push(page);
            }
        }
        let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        Dictionary::train(&samples, len_max)
    }

    /// Puts `entry` into a slot, frees what it held, and counts both; returns what it held.
    fn exchange(&self, key: u64, entry: Entry, share: &Share) -> Option<State> {
        let slot = if entry.state.is_empty() {
            // Emptying an empty slot costs no write.
            self.slots.lock_present(key)?
        } else {
            self.slots.lock(key)
        };
        self.install(key, slot, entry, share)
    }

    /// Puts `entry` into a locked slot and unlocks it, frees what it held unless a snapshot still
    /// needs it, and counts both; returns what it held.
    fn install(
        &self,
        key: u64,
        mut slot: SlotGuard<'_>,
        mut entry: Entry,
        share: &Share,
    ) -> Option<State> {
        if !entry.state.is_empty() {
            // S2 of snapshots: from here on a sweep does not pass this slot over as empty.
            slot.announce();
        }
        let epoch = self.saving.epoch();
        if !entry.state.is_empty() {
            entry.state = entry.state.set(Flag::Epoch, epoch).used(self.second());
        }
        let old = slot.entry();
        let preserved = !old.state.is_empty() && old.state.has(Flag::Epoch) != epoch;
        if preserved {
            self.saving.preserve(key, old);
        }
        slot.replace(entry);
        share.count(entry.state);
        share.uncount(old.state);
        if !preserved {
            self.release(old);
        }
        (!old.state.is_empty()).then_some(old.state)
    }

    /// Puts another form of the same page into a locked slot and unlocks it, and frees the old
    /// form. Marks and ages stay, and a snapshot takes either form.
    pub(crate) fn swap_form(&self, slot: SlotGuard<'_>, form: Entry, share: &Share) {
        let old = slot.entry();
        let state =
            form.state.stamped(old.state.stamp()).set(Flag::Idle, old.state.has(Flag::Idle));
        let state = state.set(Flag::Epoch, old.state.has(Flag::Epoch)).without(Flag::Referenced);
        slot.replace(Entry { state, ..form });
        share.count(state);
        share.uncount(old.state);
        self.release(old);
    }

    /// Frees what an entry that is in no slot any more refers to.
    pub(crate) fn release(&self, entry: Entry) {
        if entry.state.in_pool() {
            // K2: no reader is left, because the entry was taken under the slot's lock. A dead
            // pool frees nothing; its objects go with it.
            let freed = match &self.duplicates {
                Some(duplicates) if entry.state.has(Flag::Shared) => {
                    duplicates.remove(&*self.pool, entry.handle()).map(|_| ())
                }
                _ => self.pool.free(entry.handle()),
            };
            debug_assert!(matches!(freed, Ok(()) | Err(HandleError::Dead)), "{freed:?}");
        } else if let (true, Some(backed)) = (entry.state.has(Flag::Backed), &self.backed) {
            backed.free(entry.place().unit, backed.units(entry.state.len()));
        }
    }

    /// Locks a slot with its page, zeros if it is empty, read into `page`.
    fn lock_with_page(&self, key: u64, page: &mut [u8]) -> Result<SlotGuard<'_>, LoadError> {
        loop {
            let slot = self.slots.lock(key);
            let entry = slot.entry();
            if !entry.state.has(Flag::Backed) {
                self.read_entry(key, entry, page)?;
                return Ok(slot);
            }
            drop(slot);
            if self.read_backed(key, entry, page)?
                && let slot = self.slots.lock(key)
                && is_same_form(slot.entry(), entry)
            {
                return Ok(slot);
            }
        }
    }

    /// Reads the page of an entry in memory, whose slot is locked, into `page`; zeros if it is
    /// empty.
    fn read_entry(&self, key: u64, entry: Entry, page: &mut [u8]) -> Result<(), LoadError> {
        match entry.state.kind() {
            Kind::Empty => page.fill(0),
            Kind::Same => same::fill(page, entry.value),
            _ => {
                let object = self.object(key, entry)?;
                self.decode(key, entry.state, self.payload(&object, key)?, page)?;
            }
        }
        Ok(())
    }

    /// Reads the page of an entry on the backing file into `page`; no slot is locked. Returns
    /// false if the slot holds something else by now.
    pub(crate) fn read_backed(
        &self,
        key: u64,
        entry: Entry,
        page: &mut [u8],
    ) -> Result<bool, LoadError> {
        let backed = self.backed.as_ref().expect("entries on it come from a backing file");
        let take = |bytes: &[u8]| self.decode(key, entry.state, bytes, page);
        match backed.read(key, entry.place(), entry.state.len(), take) {
            Ok(decoded) => {
                self.share().backing_reads_total.add(1);
                decoded.map(|()| true)
            }
            Err(_) if !is_same_form(self.slots.lock(key).entry(), entry) => Ok(false),
            Err(error) => {
                let share = self.share();
                match error {
                    ReadError::Checksum => share.backing_damaged_total.add(1),
                    ReadError::Io(_) => share.backing_failed_reads_total.add(1),
                }
                Err(error.of_page(key))
            }
        }
    }

    /// Turns what is kept of a page into the page.
    pub(crate) fn decode(
        &self,
        key: u64,
        state: State,
        bytes: &[u8],
        page: &mut [u8],
    ) -> Result<(), LoadError> {
        let decoded = match state.kind() {
            Kind::Raw if bytes.len() == page.len() => {
                page.copy_from_slice(bytes);
                true
            }
            Kind::Compressed => self.contexts.decompress(state.priority(), bytes, page).is_ok(),
            _ => false,
        };
        if decoded { Ok(()) } else { Err(self.damaged(key)) }
    }

    /// Pins the object of a slot that the caller has locked.
    pub(crate) fn object(&self, key: u64, entry: Entry) -> Result<ReadGuard<'_>, LoadError> {
        self.pool.read(entry.handle()).map_err(|error| match error {
            HandleError::Dead => LoadError::Dead,
            _ => self.damaged(key),
        })
    }

    /// Returns what follows the key header, which must name `key`.
    pub(crate) fn payload<'a>(&self, object: &'a [u8], key: u64) -> Result<&'a [u8], LoadError> {
        if self.header == 0 {
            return Ok(object);
        }
        object.strip_prefix(&key.to_le_bytes()).ok_or_else(|| self.damaged(key))
    }

    #[cold]
    pub(crate) fn damaged(&self, key: u64) -> LoadError {
        self.share().decompress_fail_total.add(1);
        LoadError::Damaged { key }
    }
}

/// Returns whether two entries name the same bytes, whatever their flags.
pub(crate) fn is_same_form(now: Entry, before: Entry) -> bool {
    let form = |entry: Entry| (entry.state.kind(), entry.state.has(Flag::Backed), entry.value);
    form(now) == form(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::CodecKind;
    use zfold_pool::{Allocator, Handle, PoolOptions};

    fn store(change: impl Fn(&mut StoreOptions)) -> Store {
        let pool = zfold_pool::create("test", &PoolOptions::new(Allocator::Zsmalloc)).unwrap();
        let mut options = StoreOptions::new(1000, CodecKind::Lz4.into());
        change(&mut options);
        Store::new(pool, &options).unwrap()
    }

    fn text_page() -> Vec<u8> {
        (0..4096_u32).map(|n| (n / 50 % 251) as u8).collect()
    }

    fn object_handle(store: &Store, key: u64) -> Handle {
        store.slots.lock(key).entry().handle()
    }

    #[test]
    fn bytes_that_do_not_decode_are_an_error_and_counted() {
        let store = store(|_| {});
        store.store(1, &text_page()).unwrap();
        store.pool.write(object_handle(&store, 1), &[0xFF; 16]).unwrap();
        let error = store.load(1, &mut vec![0; 4096]).unwrap_err();
        assert_eq!(error, LoadError::Damaged { key: 1 });
        assert_eq!(store.stats().decompress_fail_total, 1);
        assert!(store.invalidate(1), "a damaged page can be dropped");
    }

    #[test]
    fn the_key_header_is_in_front_of_each_object_and_is_checked() {
        let store = store(|options| options.key_header = true);
        let key = 0x123;
        let Stored::Compressed { len } = store.store(key, &text_page()).unwrap() else { panic!() };
        let handle = object_handle(&store, key);
        assert_eq!(store.pool.read(handle).unwrap().len(), len + 8);
        assert_eq!(store.pool.read(handle).unwrap()[..8], key.to_le_bytes());
        store.pool.write(handle, &[9]).unwrap();
        assert_eq!(store.load(key, &mut vec![0; 4096]), Err(LoadError::Damaged { key }));
    }

    /// A kernel bug to avoid: how a page is read must not depend on an option that was different
    /// when it was stored.
    #[test]
    fn a_page_is_read_as_it_was_stored_whatever_the_options_say_now() {
        let mut store = store(|_| {});
        let noise = crate::conformance::page(7, 4096);
        assert_eq!(store.store(1, &noise), Ok(Stored::Raw));
        store.store(2, &[5; 4096]).unwrap();
        store.incompressible = Incompressible::Reject;
        store.tune(&Tunables { same_filled: false, ..store.tunables() }).unwrap();
        let mut page = vec![0; 4096];
        assert!(store.load(1, &mut page).unwrap() && page == noise);
        assert!(store.load(2, &mut page).unwrap() && page == [5; 4096]);
    }
}
