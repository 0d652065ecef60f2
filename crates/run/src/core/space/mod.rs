//! The core of one address space: which ranges are closed, where each of their pages is, and what a
//! fault or a message of the kernel means for them. It decides; other modules act.
//!
//! A *closed* range is registered with userfaultfd, so zfold fills its missing pages; all other
//! memory is *open*, and managed by the kernel alone.
//!
//! Everything here happens under the space's lock, and so do all reads of its userfaultfd, and all
//! calls that fill in pages or move them out. The kernel refuses such calls while a change is
//! unread; so after each call that succeeds:
//!
//! - S1: the table agrees with the kernel: a page that is missing there is absent, in the swap
//!   cache or in the store here, and a page in any other state is present, unless the kernel
//!   dropped it as it was allowed to (`MADV_FREE`): then it reads as zeros, there and here.
//! - S2: a page for which the program has announced a discard is *doomed* until it is missing or
//!   the announced call is known to have ended. A doomed page never leaves, so old contents cannot
//!   come back. Nor does a page of a range that was open when the announcement was read (it was
//!   registered for a moment, by a failed attempt to close it) and is closed before the call has
//!   ended.
//! - S3: every key and slot is named by one state or copy. The key of one that is taken out is
//!   released when the lock is, by the thread that has it ([`Space::take_free`]).
//! - S4: only pages of closed ranges have a state other than absent.
//! - S5: messages of one call come in the order of its actions; messages of two calls may come in
//!   the other order only if one unmaps a range and the other moves a mapping there. Then states at
//!   the new place belong to the old mapping: they are dropped, and the message that is still to
//!   come, the *debt*, drops nothing.
//!   A range that becomes shorter while it moves is reported with its old length by Linux 6.12, not
//!   by 6.18. So no more of it moves than the thread asked for ([`Space::set_moving`]); what is
//!   reported as unmapped later has stayed until then.
//! - S6: the helper's pages are never in a closed range, even if a fault fills them in: the program
//!   can touch them, and `mlockall` does.
//! - S7: a page is in one place, which its state names. In addition, the store may have a copy with
//!   old contents of a page that is present or in the swap cache; the two may differ. So nothing is
//!   filled in from a copy. A copy becomes the page only if its digest is that of the page's slot,
//!   and both still belong together ([`Space::kept`]).
//! - S8: a key that a load may be reading is not released before that load has ended; so the bytes
//!   read are the page's if the page still has the same key.

mod copies;
mod discards;
mod fork;
mod leaving;
mod loads;
#[cfg(test)]
mod seeing;
#[cfg(test)]
mod tests;

use zfold_uffd::page::pages_in;
use zfold_uffd::policy::Era;

use super::loads::{Loading, Loads, loads_max};
use super::pages::{Counts, Key, Page, PageTable, SlotNo};
use super::ranges::{PageNo, Pages, Ranges, common, run_around};
use super::streams::{Streams, window_max};

/// Bytes that a fault of a sequence fills with zeros at most.
pub(crate) const ZEROS_BYTES: usize = 256 << 10;

/// The answer to a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The page is thought to be present, or is not in a closed range: zeros if it is missing.
    Check,
    /// There is no room for it under the limit.
    NoRoom,
    /// Zeros for these pages, the faulting one among them.
    Zero(Pages),
    /// These pages from the swap cache, the faulting one among them, which is in this slot; the
    /// others are in adjacent slots.
    Cached(Pages, SlotNo),
    /// These neighbouring pages from the store, the faulting one among them.
    Stored(Loads),
}

/// The pages of the helper that works in an address space.
#[derive(Debug, Clone, Default)]
pub(crate) struct Helpers {
    /// All of them. The helper must not wait for a page, so they are never closed; but the program,
    /// which sees them, can have them filled in.
    pub all: Pages,
    /// A page that is registered and otherwise unused.
    pub spare: PageNo,
}

/// The core; see the module.
#[derive(Default)]
pub(crate) struct Space {
    closed: Ranges,
    table: PageTable,
    streams: Streams,
    /// Loads that have not ended, and keys that were given up (S3, S8).
    loading: Loading,
    /// Ranges whose unmapping is still to be reported (S5).
    debts: Ranges,
    /// Ranges that the program keeps for itself: they stay open.
    own: Ranges,
    /// Pages that are not the program's.
    helpers: Helpers,
    /// Increases with each wait for announced calls to end (S2).
    epoch: u32,
    /// Announced discards of open ranges, and the epoch of the last one (S2).
    doomed_open: (Ranges, u32),
    /// A thread moves or resizes a mapping, to so many pages (S5): nothing is closed, so that it
    /// stays one mapping for the kernel.
    moving: Option<usize>,
    /// A fork without a message is in progress: nothing leaves until the child is known.
    held: bool,
    /// Pages that came from the store meanwhile: the child may have them or not.
    arrivals: Vec<(PageNo, Key)>,
    /// The closed ranges may name mappings that this space does not have, or no longer has.
    unsure: bool,
    /// Most copies that the parent has as well.
    inherited: usize,
    /// The current era, which is remembered for pages that leave and come.
    now: Era,
}

impl Space {
    /// Returns how many pages are in what state.
    pub(crate) fn counts(&self) -> Counts {
        self.table.counts()
    }

    /// Returns the closed ranges.
    pub(crate) fn closed(&self) -> &Ranges {
        &self.closed
    }

    /// Returns the state of a page.
    pub(crate) fn page(&self, page: PageNo) -> Page {
        self.table.get(page)
    }

    /// Shows all pages that are not absent.
    pub(crate) fn for_each(&self, visit: impl FnMut(PageNo, Page)) {
        self.table.for_each(visit);
    }

    /// Returns the ranges that stay open because the program keeps them for itself.
    pub(crate) fn own(&self) -> &Ranges {
        &self.own
    }

    /// Returns which pages are the helper's.
    pub(crate) fn helpers(&self) -> &Helpers {
        &self.helpers
    }

    /// Sets the helper's pages.
    pub(crate) fn set_helpers(&mut self, helpers: Helpers) {
        self.helpers = helpers;
    }

    /// Returns the table, to read it.
    pub(crate) fn table(&self) -> &PageTable {
        &self.table
    }

    /// Sets whether a thread moves or resizes a mapping, and to how many pages (S5).
    pub(crate) fn set_moving(&mut self, moving: Option<usize>) {
        self.moving = moving;
    }

    /// Returns whether a range may be closed: no part of it is the helper's or kept by the program
    /// for itself, and no mapping is being moved.
    pub(crate) fn may_close(&self, range: &Pages) -> bool {
        self.moving.is_none()
            && common(range, &self.helpers.all).is_empty()
            && !self.own.touches(range)
    }

    /// Returns whether a page that was picked may still leave.
    pub(crate) fn may_leave(&self, page: PageNo) -> bool {
        let is_there = matches!(self.table.get(page), Page::Resident { .. });
        is_there && !self.held && self.own.around(page).is_none()
    }

    /// Closes the open parts of a range, of which the pages `present` are there; `age` says how
    /// soon these leave. All of the range is registered, and no change is unread. Returns how many
    /// of the pages that were open are present.
    pub(crate) fn close(&mut self, range: &Pages, present: &Ranges, age: u8) -> usize {
        self.settled();
        let mut found = 0;
        for part in self.closed.without(range) {
            for page in present.within(&part).into_iter().flatten() {
                let is_doomed = self.doomed_open.0.around(page).is_some();
                let doomed = Page::Doomed { epoch: self.epoch };
                self.table.set(page, if is_doomed { doomed } else { Page::Resident { age } });
                found += 1;
            }
        }
        self.closed.insert(range.clone());
        found
    }

    /// Returns the answer to a fault that may take `room` pages.
    pub(crate) fn fault(&self, page: PageNo, room: usize) -> Answer {
        let Some(range) = self.closed.around(page) else {
            // A closed stack has grown, or the page was open again when the fault was read. The
            // helper's pages need no room.
            let waits = room == 0 && !self.helpers.all.contains(&page);
            return if waits { Answer::NoRoom } else { Answer::Check };
        };
        let window = |most| common(&self.streams.window(page, room.min(most)), &range);
        match self.table.get(page) {
            Page::Resident { .. } | Page::Fixed { .. } | Page::Doomed { .. } => Answer::Check,
            _ if room == 0 => Answer::NoRoom,
            Page::Cached(slot) => {
                let beside = |at: PageNo| slot.wrapping_add(at.wrapping_sub(page) as SlotNo);
                let is_beside = |at| self.table.get(at) == Page::Cached(beside(at));
                // The swap cache holds them until all pages of their batch are done.
                let most = loads_max().max(window_max().min(room / 16));
                Answer::Cached(run_around(page, &window(most), is_beside), slot)
            }
            Page::Absent => {
                let is_absent = |at| self.table.get(at) == Page::Absent;
                Answer::Zero(run_around(page, &window(pages_in(ZEROS_BYTES)), is_absent))
            }
            Page::Stored(_) => {
                let key = |at| match self.table.get(at) {
                    Page::Stored(key) => Some(key),
                    _ => None,
                };
                let run = run_around(page, &window(loads_max()), |at| key(at).is_some());
                // At once, not as it grows: a thread waits.
                let mut loads = Loads::with_capacity(run.len());
                loads.extend(run.filter_map(|at| Some((at, key(at)?))));
                Answer::Stored(loads)
            }
        }
    }

    /// Returns how many pages the sequence has covered that a fault at `page` belongs to.
    pub(crate) fn reach(&self, page: PageNo) -> usize {
        self.streams.reach(page)
    }

    /// Records that a fault on `page` has filled in these pages; `keeps`: the store keeps their
    /// contents as copies, except for pages that usually change.
    pub(crate) fn filled(&mut self, page: PageNo, pages: &Pages, keeps: bool) {
        if self.helpers.all.contains(&pages.start) {
            return;
        }
        if self.closed.around(pages.start).is_none() {
            // Part of a closed mapping that has grown: the kernel registers the added part.
            self.closed.insert(pages.clone());
        }
        self.streams.filled(page, pages);
        self.arrived(Some(page), pages, keeps);
    }

    /// Records that a page that was to be filled in is present.
    pub(crate) fn found(&mut self, page: PageNo) {
        match self.table.get(page) {
            Page::Doomed { .. } | Page::Resident { .. } | Page::Fixed { .. } => {}
            _ if self.closed.around(page).is_none() => {}
            // The copy of a page in the swap cache stays.
            _ => self.arrived(Some(page), &(page..page + 1), false),
        }
    }

    /// A range is no longer mapped.
    pub(crate) fn unmapped(&mut self, range: &Pages) {
        let paid = self.debts.remove(range);
        let mut unpaid = Ranges::default();
        unpaid.insert(range.clone());
        paid.iter().for_each(|paid| drop(unpaid.remove(paid)));
        unpaid.iter().for_each(|part| self.forget(&part));
    }

    /// A range has moved, as far as a thread asked for that (S5). The old place is reported as
    /// unmapped next, unless it stays mapped. What was at the new place is given up. Calls `moved`
    /// for each page of the swap cache.
    pub(crate) fn moved(
        &mut self,
        from: &Pages,
        to: PageNo,
        mut moved: impl FnMut(SlotNo, PageNo),
    ) {
        let len = self.moving.map_or(from.len(), |len| len.min(from.len()));
        let from = &(from.start..from.start + len);
        let target = to..to + len;
        for part in self.closed.within(&target) {
            self.debts.insert(part);
        }
        self.forget(&target);
        let closed = self.closed.within(from);
        let mut copies = Vec::new();
        self.table.take_copies(from, usize::MAX, |page, key| copies.push((page, key)));
        let states = self.table.take(from);
        for part in closed {
            self.closed.insert(part.start - from.start + to..part.end - from.start + to);
        }
        for (page, state, past) in states {
            let page = page - from.start + to;
            if let Page::Cached(slot) = state {
                moved(slot, page);
            }
            self.table.put(page, state, past);
        }
        copies.into_iter().for_each(|(page, key)| self.table.keep(page - from.start + to, key));
    }

    /// No message of the kernel is still to come (S1).
    pub(crate) fn settled(&mut self) {
        if !self.debts.is_empty() {
            self.debts = Ranges::default();
        }
    }

    /// Returns whether a page is in this slot of the swap cache.
    pub(crate) fn holds(&self, page: PageNo, slot: SlotNo) -> bool {
        self.table.get(page) == Page::Cached(slot)
    }

    /// Takes out the states of a range and opens it.
    pub(crate) fn forget(&mut self, range: &Pages) {
        self.closed.remove(range);
        self.take(range);
    }

    /// Leaves a range to the program for itself.
    pub(crate) fn leave_open(&mut self, range: &Pages) {
        self.own.insert(range.clone());
    }

    /// Sets the ranges that are left to the program for itself.
    pub(crate) fn set_own(&mut self, own: Ranges) {
        self.own = own;
    }

    /// Takes such a range back.
    pub(crate) fn take_back(&mut self, range: &Pages) {
        self.own.remove(range);
    }

    /// Takes out everything: the space is gone.
    pub(crate) fn forget_all(&mut self) {
        self.closed = Ranges::default();
        self.release();
        self.take(&(0..PageNo::MAX));
    }
}
