//! Loads from the store, of pages for which a thread waits, and of pages ahead of these (S8).

use std::ops::Range;
use std::vec::Drain;

use super::{PageNo, Pages, Space};
use crate::core::loads::{Loads, loads_max, runs};
use crate::core::pages::{Key, Page};

impl Space {
    /// Begins a load of pages that are in the store now; returns its number.
    pub(crate) fn begin_load(&mut self) -> u64 {
        self.loading.begin()
    }

    /// Ends a load.
    pub(crate) fn end_load(&mut self, number: u64) {
        self.loading.end(number);
    }

    /// Records that nothing here names a key any longer (S3).
    pub(crate) fn give_up(&mut self, key: Key) {
        self.loading.give_up(key);
    }

    /// Takes out the keys that were given up and that no load reads: the caller releases them (S3).
    pub(crate) fn take_free(&mut self) -> Drain<'_, Key> {
        self.loading.take_free()
    }

    /// Returns the runs of neighbours among the loaded pages that are still in the store under
    /// these keys, by their positions.
    pub(crate) fn still(&self, loads: &Loads) -> impl Iterator<Item = Range<usize>> {
        runs(loads, |page, key| self.table.get(page) == Page::Stored(key))
    }

    /// Returns the next pages of the sequence whose last fault was at `page`, up to `max`, that are
    /// in the store; none if the sequence should not read further ahead.
    pub(crate) fn ahead(&mut self, page: PageNo, max: usize) -> Loads {
        let Some((next, step, left)) = self.streams.ahead(page) else { return Loads::new() };
        let most = max.min(loads_max());
        let (mut loads, mut steps) = (Loads::with_capacity(most), 0);
        while steps < left && loads.len() < most {
            let offset = step.checked_mul(steps.cast_signed());
            let at = offset.and_then(|offset| next.checked_add_signed(offset));
            let Some(at) = at else { break };
            if let Page::Stored(key) = self.table.get(at) {
                loads.push((at, key));
            }
            steps += 1;
        }
        self.streams.went(page, steps, loads.len());
        if step < 0 {
            loads.reverse();
        }
        loads
    }

    /// Records that pages which were loaded ahead are filled in; otherwise like [`Space::filled`].
    pub(crate) fn brought(&mut self, pages: &Pages, keeps: bool) {
        self.arrived(None, pages, keeps);
    }

    /// Records that these pages are present, for one of which a thread waited. The others are not
    /// watched: their first use would look like a second one.
    pub(super) fn arrived(&mut self, waited: Option<PageNo>, pages: &Pages, keeps: bool) {
        for page in pages.clone() {
            match self.table.arrive(page, waited == Some(page), self.now) {
                Page::Stored(key) if self.held => self.arrivals.push((page, key)),
                Page::Stored(key) if keeps => self.table.keep(page, key),
                Page::Stored(key) => self.give_up(key),
                _ => {}
            }
        }
    }
}
