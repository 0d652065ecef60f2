//! Discards that a program has announced (S2): their pages are doomed until the call has ended.

use super::{PageNo, Pages, Ranges, Space};
use crate::core::pages::Page;

impl Space {
    /// Records that the program has announced a discard of a range (S2).
    pub(crate) fn doomed(&mut self, range: &Pages) {
        for (page, state, _) in self.take(range) {
            if state.is_present() {
                self.table.set(page, Page::Doomed { epoch: self.epoch });
            }
        }
        for part in self.closed.without(range) {
            self.announce(part);
        }
    }

    /// Records that pages of an open range may be discarded until a wait that begins after this is
    /// over.
    fn announce(&mut self, part: Pages) {
        self.doomed_open.0.insert(part);
        self.doomed_open.1 = self.epoch;
    }

    /// Records that of a range's doomed pages, only those in `present` are still there.
    pub(crate) fn looked(&mut self, range: &Pages, present: &Ranges) {
        let doomed: Vec<_> = self.doomed_in(range).collect();
        for page in doomed.into_iter().filter(|page| present.around(*page).is_none()) {
            self.table.set(page, Page::Absent);
        }
    }

    fn doomed_in(&self, range: &Pages) -> impl Iterator<Item = PageNo> + '_ {
        self.table
            .known(range)
            .filter_map(|(page, state)| matches!(state, Page::Doomed { .. }).then_some(page))
    }

    /// Returns the doomed pages, joined.
    pub(crate) fn doomed_ranges(&self) -> Ranges {
        let mut ranges = Ranges::default();
        if self.counts().doomed > 0 {
            self.doomed_in(&(0..PageNo::MAX)).for_each(|page| ranges.insert(page..page + 1));
        }
        ranges
    }

    /// Begins a wait for the calls that were announced until now; returns its number.
    pub(crate) fn begin_wait(&mut self) -> u32 {
        self.epoch += 1;
        self.epoch - 1
    }

    /// Records that all calls announced up to this wait have ended: pages that are still there
    /// stay.
    pub(crate) fn outlived(&mut self, wait: u32) {
        let stays: Vec<_> = self
            .table
            .known(&(0..PageNo::MAX))
            .filter(|(_, state)| matches!(state, Page::Doomed { epoch } if *epoch <= wait))
            .collect();
        for (page, _) in stays {
            self.table.set(page, Page::Resident { age: 0 });
        }
        if self.doomed_open.1 <= wait {
            self.doomed_open.0 = Ranges::default();
        }
    }

    /// Same as [`forget`](Self::forget), for a range that stays mapped: doomed pages stay doomed.
    pub(crate) fn open(&mut self, range: &Pages) {
        let doomed: Vec<_> = self.doomed_in(range).collect();
        doomed.into_iter().for_each(|page| self.announce(page..page + 1));
        self.forget(range);
    }
}
