//! Copies in the store of pages that came from it (S7), and how pages of the swap cache get to the
//! store: as their copies, or compressed.

use super::{Key, PageNo, Pages, Released, SlotNo, Space};
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

    /// Takes out the states of a range, copies included.
    pub(super) fn take(&mut self, range: &Pages) -> Released {
        let mut released = Released::new();
        self.take_copies(range, usize::MAX, &mut released);
        released.extend(self.table.take(range).into_iter().map(|(page, state, _)| (page, state)));
        self.park(&mut released);
        released
    }

    /// Takes the copies from pages of a range, up to `most`; returns how many there were.
    pub(crate) fn take_copies(
        &mut self,
        range: &Pages,
        most: usize,
        released: &mut Released,
    ) -> usize {
        let before = self.counts().copied;
        self.table.take_copies(range, most, |page, key| released.push((page, Page::Stored(key))));
        self.park(released);
        before - self.counts().copied
    }

    /// Records that a page is nowhere; adds its copy to `released`.
    pub(crate) fn emptied(&mut self, page: PageNo, released: &mut Released) {
        self.release_copy(page, released);
        self.table.set(page, Page::Absent);
    }

    fn release_copy(&mut self, page: PageNo, released: &mut Released) {
        let copy = self.table.take_copy(page);
        released.extend(copy.map(|key| (page, Page::Stored(key))));
        self.park(released);
    }

    /// Records that the store has under `key` what was in a slot of the swap cache. Returns whether
    /// the page was still in that slot, and so is in the store now: then its copy is released.
    /// Otherwise `key` is not in use.
    pub(crate) fn stored(
        &mut self,
        page: PageNo,
        slot: SlotNo,
        key: Key,
        released: &mut Released,
    ) -> bool {
        let here = self.holds(page, slot);
        if here {
            self.release_copy(page, released);
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
