//! Copies in the store of pages that came from it (S7), and how pages of the swap cache get to the
//! store: as their copies, or compressed.

use super::{Key, PageNo, Pages, SlotNo, Space};
use zfold_uffd::policy::Past;

use crate::core::pages::Page;

impl Space {
    /// Returns the key of a page's copy.
    pub(crate) fn copy(&self, page: PageNo) -> Option<Key> {
        self.table.copy(page)
    }

    /// Returns how many pages have copies that no other space is charged for.
    pub(crate) fn own_copies(&mut self) -> usize {
        let copied = self.counts().copied;
        self.inherited = self.inherited.min(copied);
        copied - self.inherited
    }

    /// Takes out the states of a range, copies included; returns them.
    pub(super) fn take(&mut self, range: &Pages) -> Vec<(PageNo, Page, Past)> {
        self.take_copies(range, usize::MAX);
        let taken = self.table.take(range);
        for (_, state, _) in &taken {
            if let Page::Stored(key) = state {
                self.give_up(*key);
            }
        }
        taken
    }

    /// Takes the copies from pages of a range, up to `most`; returns how many there were.
    pub(crate) fn take_copies(&mut self, range: &Pages, most: usize) -> usize {
        let before = self.counts().copied;
        self.table.take_copies(range, most, |_, key| self.loading.give_up(key));
        before - self.counts().copied
    }

    /// Records that a page is nowhere.
    pub(crate) fn emptied(&mut self, page: PageNo) {
        self.give_up_copy(page);
        self.table.set(page, Page::Absent);
    }

    fn give_up_copy(&mut self, page: PageNo) {
        if let Some(key) = self.table.take_copy(page) {
            self.give_up(key);
        }
    }

    /// Records that the store has under `key` what was in a slot of the swap cache. Returns whether
    /// the page was still in that slot, and so is in the store now: then its copy is given up.
    /// Otherwise `key` is not in use.
    pub(crate) fn stored(&mut self, page: PageNo, slot: SlotNo, key: Key) -> bool {
        let here = self.holds(page, slot);
        if here {
            self.give_up_copy(page);
            self.table.set(page, Page::Stored(key));
        }
        here
    }

    /// Records that a page's copy equals the contents of its slot in the swap cache. If both still
    /// belong to the page, the copy becomes the page. Returns false if the page is in the slot and
    /// no longer has that copy: it must be compressed.
    ///
    /// If it has, the key belonged to the page all the time, however often keys are reused: no page
    /// gets a copy while it is in the swap cache.
    pub(crate) fn kept(&mut self, page: PageNo, slot: SlotNo, key: Key) -> bool {
        if !self.holds(page, slot) {
            return true;
        }
        let same = self.table.copy(page) == Some(key);
        if same {
            self.table.take_copy(page);
            self.table.set(page, Page::Stored(key));
        }
        same
    }
}
