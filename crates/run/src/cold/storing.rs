//! Stores pages of the swap cache: compressed, or as the copy that the store already has. Pages of
//! zeros are forgotten.
//!
//! A page that processes share since a fork leaves each of them, one after the other. What the
//! store has of it then, under the same address in another process, is looked at like a copy: if
//! both are equal, it becomes this page, too, and nothing is held twice.

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use zfold_store::{Digest, StoreError};

use crate::cold::Cold;
use crate::cold::swap_cache::Batch;
use crate::core::pages::{Key, Page};
use crate::core::ranges::PageNo;
use crate::core::space::Space;
use crate::link::SpaceId;
use crate::spaces::managed::{Held, Managed, lock};
use zfold_uffd::page::is_zero;

/// Copies that are dropped at once for room in the store.
const DROPPED: usize = 256;

/// The store is short of room when less than this share of its limit is left.
const SHORT: u64 = 16;

/// How often a full store is asked again when there are no copies left, and the pause between.
const TRIES: u32 = 10;
const MOMENT: Duration = Duration::from_millis(1);

/// A page that is in its slot of a batch, and its copy.
#[derive(Debug, Clone, Copy)]
struct Live {
    at: usize,
    copy: Option<Key>,
}

/// How the store has it.
#[derive(Debug, Clone, Copy)]
enum Put {
    /// Not at all: it is zeros.
    Zeros,
    /// As the copy, which is equal.
    Kept(Key),
    /// As the page of another process, which is equal; of the key, a reference was taken.
    Shared(Key),
    /// Under a new key.
    New(Key),
}

/// Returns the pages of a part of a batch that are in their slots.
fn live(batch: &Batch, part: &Range<usize>, space: &Space) -> Vec<Live> {
    let holds = |&at: &usize| space.holds(batch.owner(at), batch.slot(at));
    let live = part.clone().filter(holds);
    live.map(|at| Live { at, copy: space.copy(batch.owner(at)) }).collect()
}

impl Cold {
    /// Stores the pages of a part of a batch that are still in it, so that none is left there.
    ///
    /// # Errors
    /// The store takes no more pages, for this reason. They stay.
    pub(crate) fn store_part(
        &self,
        batch: &Batch,
        part: &Range<usize>,
        managed: &Managed,
    ) -> Result<(), String> {
        self.make_room();
        // Its bytes may still be on their way, and a wait under the lock would hold up faults.
        if batch.is_lost() {
            return Ok(());
        }
        loop {
            let live = live(batch, part, &managed.lock());
            if live.is_empty() {
                return Ok(());
            }
            let mut twins = self.twins(batch, &live, managed);
            let drop_copies = || self.drop_copies(DROPPED, true) > 0;
            let put = match self.put(batch, &live, &twins, false, drop_copies) {
                Ok(put) => put,
                Err(error) => {
                    self.stock.release(twins.into_values());
                    return Err(self.cannot_store(error));
                }
            };
            // The others were taken in vain.
            let shared = live.iter().zip(&put).filter(|(_, put)| matches!(put, Put::Shared(_)));
            shared.for_each(|(live, _)| _ = twins.remove(&live.at));
            let unused = self.settle(batch, &live, &put, &mut managed.lock());
            self.stock.release(unused.into_iter().chain(twins.into_values()));
        }
    }

    /// Returns the keys under which the store has pages of other processes at the addresses of
    /// these pages, if forks have shared them; by the places in the batch. A reference to each key
    /// is taken, under the lock of the space that has it.
    fn twins(&self, batch: &Batch, live: &[Live], managed: &Managed) -> BTreeMap<usize, Key> {
        let mut twins = BTreeMap::new();
        if !managed.shares() {
            return twins;
        }
        for other in self.books.sharing_with(managed.id, |_| true) {
            let space = other.lock();
            for &Live { at, .. } in live.iter().filter(|live| live.copy.is_none()) {
                if !twins.contains_key(&at)
                    && let Page::Stored(key) = space.page(batch.owner(at))
                {
                    self.stock.keys().share(key);
                    twins.insert(at, key);
                }
            }
        }
        twins
    }

    /// Stores the pages that the swap cache has of a space, under its lock; beyond the limit of the
    /// store, if need be: a child of fork cannot wait for them there.
    ///
    /// # Errors
    /// One of them cannot be stored, for this reason.
    pub(crate) fn flush(&self, id: SpaceId, space: &mut Held<'_>) -> Result<(), String> {
        if space.counts().cached == 0 {
            return Ok(());
        }
        let batches = lock(&self.swap_cache).of(id);
        for batch in batches.iter().filter(|batch| !batch.is_lost()) {
            loop {
                let live = live(batch, &(0..batch.len()), space);
                if live.is_empty() {
                    break;
                }
                let drop_copies = || {
                    self.drop_copies_of(space, DROPPED) > 0 || self.drop_copies(DROPPED, false) > 0
                };
                // A look at others would need their locks.
                let twins = BTreeMap::new();
                let put = self.put(batch, &live, &twins, true, drop_copies);
                let put = put.map_err(|error| self.cannot_store(error))?;
                let unused = self.settle(batch, &live, &put, space);
                self.stock.release(unused.into_iter().chain(space.take_free()));
            }
        }
        Ok(())
    }

    /// Records where the store has the pages of a batch; a page whose copy was to be kept and is
    /// gone stays live. Returns keys that are not used.
    fn settle(&self, batch: &Batch, live: &[Live], put: &[Put], space: &mut Space) -> Vec<Key> {
        let mut unused = Vec::new();
        let (mut stored, mut kept, mut zeros) = (0, 0, 0);
        for (&Live { at, .. }, &put) in live.iter().zip(put) {
            let (page, slot): (PageNo, _) = (batch.owner(at), batch.slot(at));
            match put {
                Put::Zeros if space.holds(page, slot) => {
                    space.emptied(page);
                    zeros += 1;
                }
                Put::Zeros => {}
                Put::Kept(key) => kept += u64::from(space.kept(page, slot, key)),
                Put::New(key) if space.stored(page, slot, key) => stored += 1,
                Put::Shared(key) if space.stored(page, slot, key) => kept += 1,
                Put::New(key) | Put::Shared(key) => unused.push(key),
            }
        }
        self.counters.stores_total.add(stored);
        self.counters.kept_copies_total.add(kept);
        self.counters.zero_pages_total.add(zeros);
        unused
    }

    /// Stores pages of a batch; `beyond`: even above the limit of the store. If the store is short
    /// of room, `drop_copies` returns whether there were copies to drop.
    ///
    /// # Errors
    /// One of them could not be stored; all stay where they are.
    fn put(
        &self,
        batch: &Batch,
        live: &[Live],
        twins: &BTreeMap<usize, Key>,
        beyond: bool,
        mut drop_copies: impl FnMut() -> bool,
    ) -> Result<Vec<Put>, StoreError> {
        // How the store has each page, or the digest of one that is to be compressed.
        let look = |of: &Live| {
            let page = &*batch.page(of.at);
            if is_zero(page) {
                return Ok(Put::Zeros);
            }
            let digest = self.digests.of(page);
            let twin = || twins.get(&of.at).copied().map(|key| (key, Put::Shared(key)));
            let known = of.copy.map(|key| (key, Put::Kept(key))).or_else(twin);
            let equal = known.filter(|(key, _)| self.digests.get(u64::from(*key)) == digest);
            equal.map(|(_, put)| put).ok_or(digest)
        };
        let looked: Vec<Result<Put, Digest>> = live.iter().map(look).collect();
        let looks = live.iter().filter(|live| live.copy.is_some()).count();
        let found = looked.iter().filter(|looked| matches!(looked, Ok(Put::Kept(_)))).count();
        self.copies.looked(looks, found);
        let wanted = looked.iter().filter(|looked| looked.is_err()).count();
        let mut keys: Vec<Key> = Vec::with_capacity(wanted);
        loop {
            let mut of = self.stock.keys();
            keys.extend((keys.len()..wanted).map_while(|_| of.take()));
            drop(of);
            if keys.len() == wanted || !drop_copies() {
                break;
            }
        }
        let mut free = keys.iter();
        let put = live.iter().zip(looked).map(|(live, looked)| {
            let digest = match looked {
                Ok(put) => return Ok(put),
                Err(digest) => digest,
            };
            let key = *free.next().ok_or(StoreError::Full)?;
            self.compress(key, &batch.page(live.at), beyond, &mut drop_copies)?;
            self.digests.set(u64::from(key), digest);
            Ok(Put::New(key))
        });
        put.collect::<Result<_, StoreError>>()
            .inspect_err(|_| drop(self.stock.release(keys.into_iter())))
    }

    /// Returns why a page cannot be stored, and the remedy.
    fn cannot_store(&self, error: StoreError) -> String {
        format!("cannot store memory that left the program: {error}; {}", self.remedy())
    }

    /// Stores a page under a key, dropping copies of other pages if there is no room.
    fn compress(
        &self,
        key: Key,
        page: &[u8],
        beyond: bool,
        drop_copies: &mut impl FnMut() -> bool,
    ) -> Result<(), StoreError> {
        let mut tries = 0;
        loop {
            match self.store.store(u64::from(key), page) {
                Ok(_) => return Ok(()),
                Err(StoreError::Full) if drop_copies() => {
                    self.store.compact_if_due();
                }
                Err(StoreError::Full) if beyond => {
                    return self.store.store_beyond(u64::from(key), page).map(drop);
                }
                // Other threads may have dropped the last copies, and not freed the memory yet: an
                // error here would end a process.
                Err(StoreError::Full) if tries < TRIES => {
                    self.copies.set_short(true);
                    if tries > 0 {
                        thread::sleep(MOMENT);
                    }
                    tries += 1;
                    self.store.compact();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Drops copies if the store is short of room.
    fn make_room(&self) {
        let Some(limit) = self.store.tunables().limit_bytes else { return };
        let short = self.store.held_bytes() > limit - limit / SHORT;
        self.copies.set_short(short);
        if short && self.drop_copies(DROPPED, true) > 0 {
            self.store.compact_if_due();
        }
    }

    /// Drops up to `most` copies, only of spaces whose lock is free unless `waits`; returns how
    /// many.
    pub(crate) fn drop_copies(&self, most: usize, waits: bool) -> usize {
        let mut left = most;
        for managed in self.books.all().iter() {
            if left == 0 || self.budget.copies() == 0 {
                break;
            }
            let space = if waits { Some(managed.lock()) } else { managed.try_lock() };
            let Some(mut space) = space else { continue };
            left -= space.take_copies(&(0..PageNo::MAX), left);
        }
        most - left
    }

    /// The same for one space.
    fn drop_copies_of(&self, space: &mut Space, most: usize) -> usize {
        let taken = space.take_copies(&(0..PageNo::MAX), most);
        // At once: there is to be room before the lock is free.
        self.stock.release(space.take_free());
        taken
    }
}
