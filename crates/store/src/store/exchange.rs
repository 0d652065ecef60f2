//! What happens to a slot: its entry is exchanged for another one, or for another form of the same
//! page, under the slot's lock.

use super::Store;
use crate::entry::{Entry, Flag, State};
use crate::error::{LoadError, StoreError};
use crate::slots::SlotGuard;
use crate::stats::Share;

impl Store {
    /// Puts a restored entry into its slot.
    pub(crate) fn put(&self, key: u64, entry: Entry) {
        self.exchange(key, entry, self.share());
    }

    /// Puts a restored page into its slot, of which `kept` is what was kept.
    pub(crate) fn put_kept(&self, key: u64, state: State, kept: &[u8]) -> Result<(), StoreError> {
        let place = || {
            self.check_limit()?;
            self.pages.place_kept(key, state, kept)
        };
        self.put(key, self.retry_with_room(&StoreError::Full, place)?);
        Ok(())
    }

    /// Puts `entry` into a slot, frees what it held, and counts both; returns what it held.
    pub(super) fn exchange(&self, key: u64, entry: Entry, share: &Share) -> Option<State> {
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
    pub(super) fn install(
        &self,
        key: u64,
        mut slot: SlotGuard<'_>,
        mut entry: Entry,
        share: &Share,
    ) -> Option<State> {
        if !entry.state.is_empty() {
            // snapshot/S2: from here on a sweep does not pass this slot over as empty.
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
            self.pages.release(old);
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
        self.pages.release(old);
    }

    /// Locks a slot with its page, zeros if it is empty, read into `page`.
    pub(super) fn lock_with_page(
        &self,
        key: u64,
        page: &mut [u8],
    ) -> Result<SlotGuard<'_>, LoadError> {
        loop {
            let slot = self.slots.lock(key);
            let entry = slot.entry();
            if !entry.state.has(Flag::Backed) {
                self.pages.read(None, key, entry, page)?;
                return Ok(slot);
            }
            drop(slot);
            if self.read_backed(key, entry, page)?
                && let slot = self.slots.lock(key)
                && slot.entry().is_form_of(entry)
            {
                return Ok(slot);
            }
        }
    }

    /// Reads the page of an entry on the backing file into `page`; no slot is locked. Returns
    /// false if the slot holds something else by now.
    pub(crate) fn read_backed(
        &self,
        key: u64,
        entry: Entry,
        page: &mut [u8],
    ) -> Result<bool, LoadError> {
        match self.pages.read_backed(key, entry, page) {
            Ok(decoded) => decoded.map(|()| true),
            Err(_) if !self.slots.lock(key).entry().is_form_of(entry) => Ok(false),
            Err(unread) => Err(self.pages.count_unread(key, unread)),
        }
    }
}
