//! An image: the memory of a guest at the time of its snapshot, in a store.
//!
//! - C1: the count of an image's claims grows under the lock of the catalog that has it. A thread
//!   that removes an image reads the count under that lock, and then uses only the image's keys: so
//!   no page is read by keys that belong to another image.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use zfold_store::{Content, LoadError, Store, StoreError};

use super::gate::Gate;
use super::keys::{BITS, keys_of};
use super::machine::Lengths;
use super::page_set::PageSet;
use crate::core::space;

/// Most images of a chain of bases, so that a look-up ends soon.
pub(crate) const CHAIN_MAX: usize = 16;

/// An image. It does not change (I1), except for its working set.
#[derive(Debug)]
pub struct Image {
    name: String,
    pub(super) store: Arc<Store>,
    pub(crate) gate: Arc<Gate>,
    /// Its first key.
    pub(super) first: u64,
    pages: u64,
    /// Pages of its own in the store.
    pub(super) own_pages: u64,
    base: Option<Arc<Image>>,
    /// The lengths of its documents, if it has any.
    pub(super) machine: Option<Lengths>,
    /// The hash of the state file that is kept with it.
    pub(super) state_hash: Option<u64>,
    set: PageSet,
    recorded: AtomicBool,
    /// A guest was recorded by itself.
    was_begun: AtomicBool,
    /// Counts claims. It grows under the catalog's lock alone.
    users: AtomicUsize,
}

/// An image that is used: it cannot be removed.
#[derive(Debug)]
pub struct Claim(Arc<Image>);

impl Claim {
    /// Claims an image of a catalog that is locked.
    pub(super) fn new(image: &Arc<Image>) -> Self {
        // Relaxed: a thread that removes images reads it under the same lock. If it sees a claim
        // that has just ended, it refuses, which does no harm.
        image.users.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(image))
    }

    /// Returns the image, for an image whose base it is.
    pub(crate) fn image(&self) -> &Arc<Image> {
        &self.0
    }
}

impl Deref for Claim {
    type Target = Image;

    fn deref(&self) -> &Image {
        &self.0
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Release: its holder's reads come before the keys belong to another image; pairs with
        // `is_claimed`.
        self.0.users.fetch_sub(1, Ordering::Release);
    }
}

impl Image {
    /// Returns the image of `pages` pages whose keys begin at `first`.
    pub(super) fn new(
        name: String,
        (store, gate): (Arc<Store>, Arc<Gate>),
        first: u64,
        pages: u64,
        base: Option<Arc<Image>>,
    ) -> Self {
        Self {
            name,
            store,
            gate,
            first,
            pages,
            own_pages: 0,
            base,
            machine: None,
            state_hash: None,
            set: PageSet::new(pages),
            recorded: AtomicBool::new(false),
            was_begun: AtomicBool::new(false),
            users: AtomicUsize::new(0),
        }
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of its pages of 4 KiB.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns the image over which it is a difference.
    #[must_use]
    pub fn base(&self) -> Option<&Arc<Image>> {
        self.base.as_ref()
    }

    /// Returns how many pages its working set has.
    #[must_use]
    pub fn working_set_pages(&self) -> u64 {
        self.set.len()
    }

    /// Returns whether the pages that guests ask for are added to its working set.
    pub(crate) fn is_recorded(&self) -> bool {
        // Relaxed: a hint, like the set.
        self.recorded.load(Ordering::Relaxed)
    }

    /// Starts or stops recording the pages that guests ask for.
    pub fn record(&self, on: bool) {
        self.recorded.store(on, Ordering::Relaxed);
    }

    /// Returns, once, whether it has no working set yet.
    pub(crate) fn begins(&self) -> bool {
        // Relaxed: a hint, like the set.
        self.set.len() == 0 && !self.was_begun.swap(true, Ordering::Relaxed)
    }

    /// Forgets the working set.
    pub fn forget(&self) {
        self.set.clear();
        self.was_begun.store(false, Ordering::Relaxed);
    }

    /// Reads a page of 4 KiB.
    ///
    /// # Errors
    /// [`LoadError`]; `into` may have been written to.
    ///
    /// # Panics
    /// `into` has another length.
    pub fn load(&self, page: u64, into: &mut [u8]) -> Result<(), LoadError> {
        if page < self.pages {
            for image in self.chain() {
                if self.store.load(image.first + page, into)? {
                    return Ok(());
                }
            }
        }
        into.fill(0);
        Ok(())
    }

    /// Returns whether the store's slots say that a page is zeros.
    #[must_use]
    pub fn is_zero(&self, page: u64) -> bool {
        let mut held = self.chain().map(|image| self.store.peek(image.first + page));
        match held.find(|held| *held != Content::Absent) {
            Some(Content::SameFilled(word)) if page < self.pages => word == 0,
            Some(_) if page < self.pages => false,
            _ => true,
        }
    }

    /// Returns the image and its bases, nearest first.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &Image> {
        std::iter::successors(Some(self), |image| image.base.as_deref())
    }

    /// Forgets its claims, in a copy of this memory that has no other threads.
    pub(super) fn forget_claims(&self) {
        self.users.store(0, Ordering::Relaxed);
    }

    /// Returns whether it is in use. Under the catalog's lock no claim begins.
    pub(super) fn is_claimed(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    pub(crate) fn keys(&self) -> std::ops::Range<u64> {
        let more = self.machine.map_or(0, Lengths::pages);
        self.first..self.first + keys_of(self.pages, more)
    }

    /// Returns the key of the first piece of the working set.
    fn set_key(&self) -> u64 {
        self.first + self.pages
    }

    /// Returns the key of the first page of the machine's documents.
    pub(super) fn machine_key(&self) -> u64 {
        self.set_key() + self.pages.div_ceil(BITS)
    }

    /// Stores the working set with the pages. If the store has no room for it, the pieces stored
    /// before stay: a set is a hint, and no image is lost for it.
    pub(crate) fn save_set(&self) -> Result<(), StoreError> {
        for (key, page) in (self.set_key()..).zip(self.set.to_pages()) {
            match page.iter().all(|&byte| byte == 0) {
                true => drop(self.store.invalidate(key)),
                false => match self.store.overwrite(key, &page) {
                    Ok(_) | Err(StoreError::Full) => {}
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Reads the stored working set; empty if it cannot be read.
    pub(crate) fn load_set(&self) {
        let mut page = vec![0; 4096];
        for number in 0..self.pages.div_ceil(BITS) {
            if matches!(self.store.load(self.set_key() + number, &mut page), Ok(true)) {
                self.set.add_page(number as usize, &page);
            }
        }
    }
}

/// An image whose store is used within the gate, call by call (gate/F1): what its user does between
/// two calls is outside.
#[derive(Debug)]
pub(crate) struct Gated<'a> {
    pub(crate) image: &'a Image,
    /// Until when this guest is recorded by itself.
    pub(crate) until: Option<Instant>,
}

impl space::Image for Gated<'_> {
    fn is_zero(&self, page: u64) -> bool {
        self.image.gate.within(|| self.image.is_zero(page))
    }

    fn load(&self, page: u64, into: &mut [u8]) -> Result<(), LoadError> {
        self.image.gate.within(|| self.image.load(page, into))
    }

    fn is_recorded(&self) -> bool {
        self.image.is_recorded() || self.until.is_some_and(|until| Instant::now() < until)
    }

    fn touched(&self, page: u64) {
        self.image.set.add(page);
    }

    fn next_wanted(&self, page: u64) -> Option<u64> {
        self.image.set.next(page)
    }
}
