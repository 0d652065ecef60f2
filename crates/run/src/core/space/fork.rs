//! The part of a space that a child gets, and closed ranges of it that may no longer be mapped.

use super::{Key, PageNo, Ranges, Space};
use crate::core::pages::Page;

impl Space {
    /// Nothing leaves until [`release`](Self::release).
    pub(crate) fn hold(&mut self) {
        self.held = true;
    }

    /// Returns the pages that came from the store since, whose keys are kept.
    pub(crate) fn arrivals(&self) -> &[(PageNo, Key)] {
        &self.arrivals
    }

    /// Ends the hold, and gives up the keys of pages that came meanwhile.
    pub(crate) fn release(&mut self) {
        self.held = false;
        self.arrivals.drain(..).for_each(|(_, key)| self.loading.give_up(key));
    }

    /// In a child: records that a page came to the parent during the fork, and not to the child.
    pub(crate) fn arrive_stored(&mut self, page: PageNo, key: Key) {
        self.table.set(page, Page::Stored(key));
    }

    /// Returns the space of a child that was copied from this one. Pages in the swap cache are not
    /// copied: store them first. Calls `refer` with each key that the child names, too.
    pub(crate) fn fork(&self, mut refer: impl FnMut(Key)) -> Self {
        let mut table = self.table.clone();
        // A discard announced in the parent was either done before the copy, or is not done in the
        // child.
        let mut changed = Vec::new();
        table.for_each(|page, state| match state {
            Page::Stored(key) => refer(key),
            // It could not be stored, not even beyond the limit: the tree is being ended.
            Page::Cached(_) => changed.push((page, Page::Absent)),
            Page::Doomed { .. } => changed.push((page, Page::Resident { age: 0 })),
            _ => {}
        });
        for (page, state) in changed {
            table.take_copy(page);
            table.set(page, state);
        }
        table.for_each_copy(|_, key| refer(key));
        let (closed, own, helpers) = (self.closed.clone(), self.own.clone(), self.helpers.clone());
        let inherited = table.counts().copied;
        Self { closed, table, own, helpers, unsure: true, inherited, ..Self::default() }
    }

    /// Returns whether [`retain`](Self::retain) is due.
    pub(crate) fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// Records that closed ranges may no longer be mapped.
    pub(crate) fn set_unsure(&mut self) {
        self.unsure = true;
    }

    /// Keeps the closed ranges that are in `registered`.
    pub(crate) fn retain(&mut self, registered: &Ranges) {
        self.unsure = false;
        let gone: Vec<_> =
            self.closed.iter().flat_map(|range| registered.without(&range)).collect();
        gone.iter().for_each(|range| self.forget(range));
    }
}
