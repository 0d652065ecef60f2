//! Loads from the store, of pages for which a thread waits, of pages ahead of these, and of pages
//! that the program says it will need (S8).

use std::vec::Drain;

use zfold_uffd::policy::Past;

use super::{PageNo, Pages, SlotNo, Space};
use crate::core::loads::{Away, Loads, Runs};
use crate::core::pages::{Key, Page};

/// Most pages that one search for needed pages looks at.
const LOOKED_MAX: usize = 512;

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
    pub(crate) fn still(&self, loads: &Loads) -> Runs {
        loads.runs(|page, wanted| {
            let state = self.table.get(page);
            matches!(state, Page::Stored(key) if key == wanted)
        })
    }

    /// Returns the next pages of the sequence whose last fault was at `page`, up to `max`, that are
    /// in the store; none if the sequence should not read further ahead.
    pub(crate) fn ahead(&mut self, page: PageNo, max: usize) -> Loads {
        let mut loads = Loads::default();
        let Some((next, step, left)) = self.streams.ahead(page) else { return loads };
        let mut steps = 0;
        while steps < left && loads.pages().len() < max && !loads.is_full() {
            let offset = step.checked_mul(steps.cast_signed());
            let at = offset.and_then(|offset| next.checked_add_signed(offset));
            let Some(at) = at else { break };
            if let Page::Stored(key) = self.table.get(at) {
                loads.push(at, key);
            }
            steps += 1;
        }
        self.streams.went(page, steps, loads.pages().len());
        if step < 0 {
            loads.reverse();
        }
        loads
    }

    /// Looks at pages that the program says it will need until it has found some that are away, at
    /// most `max`; spares those that are there. Takes those that it has looked at off `pages`, and
    /// their number off `left`; nothing is left if either is empty then.
    ///
    /// # Cost
    /// At most about 100 microseconds.
    pub(crate) fn needed(&mut self, pages: &mut Pages, left: &mut usize, max: usize) -> Away {
        let mut loads = Loads::default();
        let mut cached: Option<(Pages, SlotNo)> = None;
        for _ in 0..LOOKED_MAX.min(*left) {
            let Some((page, state)) = self.table.known(pages).next() else {
                pages.start = pages.end;
                break;
            };
            match (state, &mut cached) {
                (Page::Stored(key), None) if loads.pages().len() < max && !loads.is_full() => {
                    loads.push(page, key);
                }
                (Page::Cached(slot), None) if loads.pages().is_empty() => {
                    cached = Some((page..page + 1, slot));
                }
                (Page::Cached(slot), Some((run, first)))
                    if run.len() < max
                        && run.end == page
                        && slot == first.wrapping_add(run.len() as SlotNo) =>
                {
                    run.end += 1;
                }
                (Page::Stored(_) | Page::Cached(_), _) | (_, Some(_)) => break,
                (_, None) => self.spare(&(page..page + 1)),
            }
            pages.start = page + 1;
            *left -= 1;
        }
        match cached {
            Some((run, slot)) => Away::Cached(run, slot),
            None if loads.pages().is_empty() => Away::None,
            None => Away::Stored(loads),
        }
    }

    /// Has the hand spare those of these pages that are there.
    pub(crate) fn spare(&mut self, pages: &Pages) {
        for page in pages.clone() {
            if matches!(self.table.get(page), Page::Resident { .. }) {
                self.table.set(page, Page::Resident { age: Past::NEEDED });
            }
        }
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
