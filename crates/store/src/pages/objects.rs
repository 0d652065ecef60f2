//! The objects of pages: what an entry's value names in the pool.
//!
//! This is the only place that knows that there are two ways to name an object. A pool that can
//! ([`Fit`]) keeps an object for its slot: the value is its [`Address`], the slot's lock is the
//! object's. Otherwise, and where slots share an object, the value is a handle.
//!
//! - J1: an entry with an address is of an object that was inserted for its key, is as long as the
//!   entry says, and was not freed. So while this module works with an entry, its slot is locked,
//!   or no slot has the entry: it is not in its slot yet, or was taken out under the lock.
//! - J2: an entry is freed once, after it was taken out of its slot; so no slot names its address
//!   any more. Until then its object may move (slots/T5) only while its slot has it.
//! - J3: no other code has the pool; it was empty when the store was made.

use std::ops::Deref;
use std::sync::atomic::AtomicBool;

use zfold_pool::{Address, AllocError, Fit, HandleError, KEYS_MAX, Owners, Pool, ReadGuard};

use super::duplicates::{Duplicates, Inserted};
use crate::entry::{Entry, Flag, State};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Objects {
    pool: Box<dyn Pool>,
    duplicates: Option<Duplicates>,
    /// Whether all keys can own objects.
    keys_fit: bool,
}

/// The bytes of an object, as long as J1 has it.
#[derive(Debug)]
pub(crate) enum Object<'a> {
    Pinned(ReadGuard<'a>),
    Owned(&'a [u8]),
}

impl Deref for Object<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Pinned(guard) => guard,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl Objects {
    /// Returns the objects of `slots` keys in an empty pool; equal ones are shared if wanted.
    pub(super) fn new(pool: Box<dyn Pool>, slots: u64, deduplicate: bool) -> Self {
        let duplicates = deduplicate.then(Duplicates::new);
        Self { pool, duplicates, keys_fit: slots <= KEYS_MAX }
    }

    /// Returns the pool, for figures and checks.
    pub(crate) fn pool(&self) -> &dyn Pool {
        &*self.pool
    }

    pub(super) fn duplicates(&self) -> Option<&Duplicates> {
        self.duplicates.as_ref()
    }

    /// Returns whether every object belongs to a slot alone.
    pub(super) fn are_owned(&self) -> bool {
        self.owned().is_some() && self.duplicates.is_none()
    }

    /// Returns the pool if slots own objects.
    #[inline]
    fn owned(&self) -> Option<&Fit> {
        Fit::of(&*self.pool).filter(|_| self.keys_fit)
    }

    /// Returns the pool and the address of an entry that has one.
    #[inline]
    fn owned_by(&self, entry: Entry) -> Option<(&Fit, Address)> {
        let at = entry.address()?;
        Some((Fit::of(&*self.pool).expect("J1: it came from there"), at))
    }

    /// Brings bytes into the pool, or finds them there; returns the entry of the page, of which
    /// `state` says the rest.
    #[inline]
    pub(super) fn insert(&self, key: u64, state: State, bytes: &[u8]) -> Result<Entry, AllocError> {
        let Some(duplicates) = &self.duplicates else { return self.insert_own(key, state, bytes) };
        let Inserted { handle, shared } = duplicates.insert(self.pool(), bytes)?;
        Ok(Entry::of_handle(state.set(Flag::Shared, shared), handle))
    }

    /// Brings bytes into the pool as an object that no other page has.
    #[inline]
    pub(super) fn insert_own(
        &self,
        key: u64,
        state: State,
        bytes: &[u8],
    ) -> Result<Entry, AllocError> {
        match self.owned() {
            Some(pool) => Ok(Entry::of_address(state, pool.insert_owned(key as u32, bytes)?)),
            None => Ok(Entry::of_handle(state, self.pool.insert(bytes)?)),
        }
    }

    /// Returns the `len` bytes of the object of an entry (J1), which are as good as the lock.
    ///
    /// # Errors
    /// [`HandleError`] if it is not there, so that something is damaged.
    #[inline]
    pub(super) fn read(
        &self,
        key: u64,
        entry: Entry,
        len: usize,
    ) -> Result<Object<'_>, HandleError> {
        match self.owned_by(entry) {
            // SAFETY: J1: it is a live object of so many bytes, and the caller has the lock of the
            // slot that names it, or no slot does and the caller alone may free it.
            Some((pool, at)) => unsafe { pool.read_owned(key as u32, at, len) }.map(Object::Owned),
            None => self.pool.read(entry.handle()).map(Object::Pinned),
        }
    }

    /// Frees the object, of `len` bytes, of an entry that is in no slot any more (J2), or takes the
    /// page from those that share it.
    ///
    /// # Errors
    /// [`HandleError::Dead`]: a dead pool frees nothing.
    #[inline]
    pub(super) fn free(&self, entry: Entry, len: usize) -> Result<(), HandleError> {
        if let Some((pool, at)) = self.owned_by(entry) {
            // SAFETY: J2: it is a live object of so many bytes, and no slot names it.
            return unsafe { pool.free_owned(at, len) };
        }
        match &self.duplicates {
            Some(duplicates) if entry.state.has(Flag::Shared) => {
                duplicates.remove(self.pool(), entry.handle()).map(|_| ())
            }
            _ => self.pool.free(entry.handle()),
        }
    }

    /// Compacts the pool, in which `slots` own objects; returns the pages freed.
    pub(crate) fn compact(&self, slots: &dyn Owners, pages: u64, stop: &AtomicBool) -> u64 {
        match Fit::of(&*self.pool) {
            Some(pool) => pool.compact_owned(slots, pages, stop),
            None => self.pool.compact_until(pages, stop),
        }
    }

    /// Asserts J1 of an entry in its slot, whose object has `len` bytes.
    ///
    /// # Panics
    /// If it is broken.
    pub(super) fn check(&self, key: u64, entry: Entry, len: usize) {
        if let Some((pool, at)) = self.owned_by(entry) {
            assert!(pool.is_owned_at(key as u32, at, len), "J1: page {key} is not at {at:?}");
        }
    }
}
