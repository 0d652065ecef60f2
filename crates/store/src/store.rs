//! The page store: pages by key, compressed into a pool.
//!
//! ```text
//!   store: page -> one word repeated? -> slot
//!               -> codec -> gains?  -> pool object -> slot
//!                        -> no gain -> raw object, or refused
//!   load:  slot -> word fill | pool object in place -> codec or copy -> page
//! ```
//!
//! - K1: a page is compressed and its object written before its slot is locked; the lock covers
//!   the exchange of the slot's entry only. The object that was replaced is freed afterwards.
//! - K2: a load holds its slot's lock until the page is complete, so that nobody frees the object
//!   under it. Different keys have different locks.
//! - K3: after a store that failed, its key holds nothing: never the page before.
//! - K4: what a slot's kind says decides how its object is read, not an option that may have
//!   changed or been different when it was stored.
//! - K5: a store that leaves `held_bytes` above the limit is taken back, so with a limit, what
//!   is held exceeds it at most by the stores in progress.
//!
//! Lock order: a slot's lock, then the pool's.

use std::cell::RefCell;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thread_local::ThreadLocal;
use zfold_pool::{AllocError, Handle, HandleError, PageCount, Pool, ReadGuard};

use crate::codec::{Codec, CodecSpec};
use crate::error::{KeyError, LoadError, OpenError, StoreError, UpdateError};
use crate::same;
use crate::slots::{Entry, Kind, SlotGuard, SlotTable};
use crate::stats::{Share, StoreStats};

/// Bytes of the key in front of an object, if [`StoreOptions::key_header`] is set.
const KEY_BYTES: usize = size_of::<u64>();

/// What to do with a page that does not compress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Incompressible {
    /// Keep it as it is (zram's huge page, zswap since 6.18), as also a page that would cost as
    /// much compressed.
    #[default]
    Keep,
    /// Refuse it (zswap before 6.18).
    Reject,
}

/// What a store is made of. Public fields with defaults; start from [`StoreOptions::new`].
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Number of keys: 0 up to `slots - 1`. Costs 16 bytes of address space each, and memory only
    /// around keys in use.
    pub slots: u64,
    /// The codec.
    pub codec: CodecSpec,
    /// What to do with pages that do not compress.
    pub incompressible: Incompressible,
    /// Whether pages of one repeated word are recognised and kept in their slot.
    pub same_filled: bool,
    /// Whether each object begins with its 8-byte key, as zswap does in pools that evict, so
    /// that an evict hook finds the key of an object.
    pub key_header: bool,
    /// Most bytes that the store may hold: pages, idle pages and metadata. `None`: no limit.
    pub limit_bytes: Option<u64>,
    /// A full store takes pages again when it has shrunk to this share of its limit, in percent
    /// (zswap's `accept_threshold_percent`).
    pub accept_percent: u8,
}

impl StoreOptions {
    /// Returns the defaults for `slots` keys and `codec`: incompressible pages kept, same-filled
    /// pages recognised, no key header, no limit, accept at 90 percent.
    #[must_use]
    pub fn new(slots: u64, codec: CodecSpec) -> Self {
        Self {
            slots,
            codec,
            incompressible: Incompressible::default(),
            same_filled: true,
            key_header: false,
            limit_bytes: None,
            accept_percent: 90,
        }
    }
}

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
    pool: Box<dyn Pool>,
    options: StoreOptions,
    page_len: usize,
    slots: SlotTable,
    contexts: ThreadLocal<RefCell<Context>>,
    context_bytes: AtomicU64,
    shares: ThreadLocal<Share>,
    /// The limit was hit, and the store has not shrunk to its accept threshold since.
    full: AtomicBool,
}

/// What a thread needs to compress and decompress.
#[derive(Debug)]
struct Context {
    codec: Box<dyn Codec>,
    /// A key and a page.
    scratch: Vec<u8>,
    /// A page that is being updated; empty until the first update.
    page: Vec<u8>,
}

impl Store {
    /// Returns an empty store over `pool`, whose page size is that of the store.
    ///
    /// # Errors
    /// [`OpenError`] if an option is out of range, the pool is not empty, or the slot table cannot
    /// be reserved.
    pub fn new(pool: Box<dyn Pool>, options: &StoreOptions) -> Result<Self, OpenError> {
        if options.slots == 0 {
            return Err(OpenError::NoSlots);
        }
        if options.accept_percent > 100 {
            return Err(OpenError::AcceptPercent(options.accept_percent));
        }
        let stats = pool.stats();
        if stats.objects != 0 {
            return Err(OpenError::PoolInUse);
        }
        let page_len = stats.page_size.bytes();
        Ok(Self {
            slots: SlotTable::new(options.slots).map_err(OpenError::SlotTable)?,
            pool,
            options: *options,
            page_len,
            contexts: ThreadLocal::new(),
            context_bytes: AtomicU64::new(0),
            shares: ThreadLocal::new(),
            full: AtomicBool::new(false),
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
        self.check_key(key).map_err(StoreError::Key)?;
        if page.len() != self.page_len {
            return Err(StoreError::PageLength { len: page.len(), expected: self.page_len });
        }
        // It is needed after the compression, which leaves time to fetch it.
        self.slots.prefetch(key);
        let share = self.shares.get_or_default();
        let placed = self.place(key, page).and_then(|(entry, stored)| {
            self.exchange(key, entry, share);
            self.enforce_limit()?;
            Ok(stored)
        });
        match placed {
            Ok(_) => share.stores_total.add(1),
            Err(error) => {
                let held = self.exchange(key, Entry::EMPTY, share) != Kind::Empty;
                if held && error == StoreError::Full {
                    // What the page took must not stay as idle memory above the limit.
                    self.slots.trim();
                    self.pool.compact(PageCount::ZERO);
                }
                match error {
                    StoreError::Full => share.pool_limit_hit_total.add(1),
                    StoreError::Incompressible => share.reject_compress_poor_total.add(1),
                    _ => share.reject_alloc_fail_total.add(1),
                }
            }
        }
        placed
    }

    /// Loads the page under `key` into `page`; returns whether the key holds one. If not, `page`
    /// is left as it is.
    ///
    /// # Errors
    /// [`LoadError`]. The entry stays; `page` may have been written to.
    ///
    /// # Cost
    /// The codec's decompression, and some 100 ns.
    pub fn load(&self, key: u64, page: &mut [u8]) -> Result<bool, LoadError> {
        self.check_key(key).map_err(LoadError::Key)?;
        if page.len() != self.page_len {
            return Err(LoadError::PageLength { len: page.len(), expected: self.page_len });
        }
        let share = self.shares.get_or_default();
        let Some(slot) = self.slots.lock_present(key) else {
            share.load_misses_total.add(1);
            return Ok(false);
        };
        self.read_entry(key, slot.entry(), page)?;
        share.loads_total.add(1);
        Ok(true)
    }

    /// Reads the page of an entry, whose slot is locked, into `page`; zeros if it is empty.
    fn read_entry(&self, key: u64, entry: Entry, page: &mut [u8]) -> Result<(), LoadError> {
        let Entry { kind, value } = entry;
        match kind {
            Kind::Empty => page.fill(0),
            Kind::Same => same::fill(page, value),
            Kind::Raw => page.copy_from_slice(self.payload(&self.object(key, value)?, key)?),
            Kind::Compressed => {
                let object = self.object(key, value)?;
                let payload = self.payload(&object, key)?;
                let decoded = self.context().borrow_mut().codec.decompress(payload, page);
                decoded.map_err(|_| self.damaged(key))?;
            }
        }
        Ok(())
    }

    /// Drops the page under `key`; returns whether there was one. A key beyond the last holds
    /// none.
    pub fn invalidate(&self, key: u64) -> bool {
        if key >= self.slots() {
            return false;
        }
        let share = self.shares.get_or_default();
        let held = self.exchange(key, Entry::EMPTY, share) != Kind::Empty;
        share.invalidates_total.add(held.into());
        held
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
        match self.slots.kind_now(key) {
            Kind::Empty => Content::Absent,
            Kind::Same => {
                self.slots.lock_present(key).map_or(Content::Absent, |slot| match slot.entry() {
                    Entry { kind: Kind::Same, value } => Content::SameFilled(value),
                    _ => Content::Data,
                })
            }
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

    /// Drops the pages of all `keys`; returns how many there were. Costs as
    /// [`next_present`](Self::next_present) and a free for each page.
    pub fn invalidate_range(&self, keys: Range<u64>) -> u64 {
        let mut dropped = 0;
        let mut from = keys.start;
        while let Some(key) = self.next_present(from..keys.end) {
            dropped += u64::from(self.invalidate(key));
            from = key + 1;
        }
        dropped
    }

    /// Changes the page under `key` in place: `change` is given its bytes, zeros if there was
    /// none, and what it leaves is stored. No other call on this key comes between.
    ///
    /// # Errors
    /// [`UpdateError`]. After one of loading the page is as it was; after one of storing the key
    /// holds what it held before, too.
    ///
    /// # Cost
    /// A load and a store, during which others wait for this key.
    pub fn update(&self, key: u64, change: impl FnOnce(&mut [u8])) -> Result<Stored, UpdateError> {
        self.check_key(key).map_err(StoreError::Key)?;
        let share = self.shares.get_or_default();
        let mut page = std::mem::take(&mut self.context().borrow_mut().page);
        page.resize(self.page_len, 0);
        let slot = self.slots.lock(key);
        let updated = self.read_entry(key, slot.entry(), &mut page).map_err(UpdateError::Load);
        let updated = updated.and_then(|()| {
            change(&mut page);
            let (entry, stored) = self.place(key, &page)?;
            self.install(slot, entry, share);
            Ok(stored)
        });
        self.context().borrow_mut().page = page;
        updated.inspect(|_| share.stores_total.add(1))
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

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        StoreStats::collect(&self.shares, self.metadata_bytes(), self.pool.stats())
    }

    /// Returns all bytes that the store holds: pages, idle pages and metadata.
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
        let objects = stats.stored_pages - stats.same_filled_pages;
        assert_eq!(stats.pool.objects, objects, "objects and slots differ");
    }

    fn metadata_bytes(&self) -> u64 {
        self.slots.bytes() + self.context_bytes.load(Ordering::Relaxed)
    }

    fn check_key(&self, key: u64) -> Result<(), KeyError> {
        let slots = self.slots();
        if key < slots { Ok(()) } else { Err(KeyError { key, slots }) }
    }

    fn context(&self) -> &RefCell<Context> {
        self.contexts.get_or(|| {
            let codec = self.options.codec.context(self.page_len).expect("a page of the pool");
            let scratch = vec![0; KEY_BYTES + self.page_len];
            let bytes = codec.working_bytes() + scratch.len();
            self.context_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            RefCell::new(Context { codec, scratch, page: Vec::new() })
        })
    }

    /// Brings `page` into the pool, or into the entry itself.
    fn place(&self, key: u64, page: &[u8]) -> Result<(Entry, Stored), StoreError> {
        if self.options.same_filled
            && let Some(value) = same::repeated_word(page)
        {
            return Ok((Entry { kind: Kind::Same, value }, Stored::SameFilled));
        }
        let context = &mut *self.context().borrow_mut();
        self.check_limit()?;
        let header = if self.options.key_header { KEY_BYTES } else { 0 };
        let (head, body) = context.scratch.split_at_mut(header);
        head.copy_from_slice(&key.to_le_bytes()[..header]);
        // Without room to keep pages raw, anything that fits into a page is a gain.
        let (len_max, raw) = match self.options.incompressible {
            Incompressible::Reject => (self.page_len, None),
            Incompressible::Keep => {
                let huge = self.pool.huge_len().min(self.page_len);
                (huge.saturating_sub(header + 1), Some(Stored::Raw))
            }
        };
        let compressed = context.codec.compress(page, &mut body[..len_max]);
        let stored = compressed.map(|len| Stored::Compressed { len }).or(raw);
        let stored = stored.ok_or(StoreError::Incompressible)?;
        let (kind, len) = match stored {
            Stored::Compressed { len } => (Kind::Compressed, len),
            _ => {
                body[..page.len()].copy_from_slice(page);
                (Kind::Raw, page.len())
            }
        };
        let object = &context.scratch[..header + len];
        let handle = self.pool.insert(object).map_err(|error| match error {
            AllocError::TooLong { .. } => StoreError::Incompressible,
            error => StoreError::Pool(error),
        })?;
        Ok((Entry { kind, value: handle.to_bits().get() }, stored))
    }

    /// Refuses pages from when the limit was hit until the store has shrunk to its accept
    /// threshold. Compaction is tried before.
    fn check_limit(&self) -> Result<(), StoreError> {
        let Some(limit) = self.options.limit_bytes else { return Ok(()) };
        let accept = u128::from(limit) * u128::from(self.options.accept_percent) / 100;
        let at_limit = || self.held_bytes() >= limit;
        // Relaxed: a decision that may be one store late.
        if at_limit() && self.pool.stats().freeable_pages > PageCount::ZERO {
            self.compact();
        }
        if at_limit() {
            self.full.store(true, Ordering::Relaxed);
        } else if u128::from(self.held_bytes()) <= accept {
            self.full.store(false, Ordering::Relaxed);
        }
        if self.full.load(Ordering::Relaxed) { Err(StoreError::Full) } else { Ok(()) }
    }

    /// Refuses a page whose entry has brought the store over its limit; the caller takes the
    /// entry out again.
    fn enforce_limit(&self) -> Result<(), StoreError> {
        if self.options.limit_bytes.is_none_or(|limit| self.held_bytes() <= limit) {
            return Ok(());
        }
        self.full.store(true, Ordering::Relaxed);
        Err(StoreError::Full)
    }

    /// Puts `entry` into a slot, frees what it held, and counts both; returns what it held.
    fn exchange(&self, key: u64, entry: Entry, share: &Share) -> Kind {
        let slot = match entry.kind {
            // Emptying an empty slot costs no write.
            Kind::Empty => self.slots.lock_present(key),
            _ => Some(self.slots.lock(key)),
        };
        slot.map_or(Kind::Empty, |slot| self.install(slot, entry, share))
    }

    /// Puts `entry` into a locked slot and unlocks it, frees what it held, and counts both;
    /// returns what it held.
    fn install(&self, slot: SlotGuard<'_>, entry: Entry, share: &Share) -> Kind {
        let old = slot.replace(entry);
        share.stored_pages.add((entry.kind != Kind::Empty).into());
        share.same_filled_pages.add((entry.kind == Kind::Same).into());
        share.stored_incompressible_pages.add((entry.kind == Kind::Raw).into());
        share.stored_pages.sub((old.kind != Kind::Empty).into());
        share.same_filled_pages.sub((old.kind == Kind::Same).into());
        share.stored_incompressible_pages.sub((old.kind == Kind::Raw).into());
        if matches!(old.kind, Kind::Compressed | Kind::Raw) {
            // K2: no reader is left, because the entry was taken under the slot's lock. A dead
            // pool frees nothing; its objects go with it.
            let freed = self.pool.free(handle_of(old.value));
            debug_assert!(matches!(freed, Ok(()) | Err(HandleError::Dead)), "{freed:?}");
        }
        old.kind
    }

    /// Pins the object of a slot that the caller has locked.
    fn object(&self, key: u64, value: u64) -> Result<ReadGuard<'_>, LoadError> {
        self.pool.read(handle_of(value)).map_err(|error| match error {
            HandleError::Dead => LoadError::Dead,
            _ => self.damaged(key),
        })
    }

    /// Returns what follows the key header, which must name `key`.
    fn payload<'a>(&self, object: &'a [u8], key: u64) -> Result<&'a [u8], LoadError> {
        if !self.options.key_header {
            return Ok(object);
        }
        object.strip_prefix(&key.to_le_bytes()).ok_or_else(|| self.damaged(key))
    }

    #[cold]
    fn damaged(&self, key: u64) -> LoadError {
        self.shares.get_or_default().decompress_fail_total.add(1);
        LoadError::Damaged { key }
    }
}

/// The handle that an entry's value stands for.
fn handle_of(value: u64) -> Handle {
    Handle::from_bits(NonZeroU64::new(value).expect("entries with objects hold a handle"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::CodecKind;
    use zfold_pool::{Allocator, PoolOptions};

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
        handle_of(store.slots.lock(key).entry().value)
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
        store.options.incompressible = Incompressible::Reject;
        store.options.same_filled = false;
        let mut page = vec![0; 4096];
        assert!(store.load(1, &mut page).unwrap() && page == noise);
        assert!(store.load(2, &mut page).unwrap() && page == [5; 4096]);
    }
}
