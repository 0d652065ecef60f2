//! The core of one address space: which ranges are closed, where each of their pages is, and
//! what a fault or a change of the address space means for them. It decides; others act.
//!
//! A *closed* range is registered with userfaultfd, its missing pages are asked of us; all other
//! memory is *open*, and the kernel alone knows about it.
//!
//! - S1: only pages of closed ranges have a state other than absent, but for those of S3.
//! - S2: a page that is leaving or arriving belongs to the thread that made it so; nobody else
//!   changes its state, but that a fault may mark it as wanted. That thread wakes who waits.
//! - S3: between before and after of a change, what it gives up or moves is *in flux*: its states
//!   (and, unless contents only are given up, its ranges) are taken out of the tables and wait in
//!   the flux. So nothing of it leaves, is filled in or is prefetched; a mapping that another
//!   thread gets at the same addresses meanwhile has states of its own. A fault there is
//!   answered after the change: whoever ends it wakes the range.
//! - S4: a change is taken in flux only when none of its pages is busy (S2).
//! - S5: from `begin_fork` to `end_fork` nothing leaves, and pages that arrive are noted.
//! - S6: every key and slot is named by one state: in the tables, a flux or a snapshot. Who takes
//!   a state out releases what it names.

use std::collections::BTreeSet;

use super::memory::Change;
use super::pages::{AGE_MAX, Counts, Key, Page, PageTable, SlotNo, Visit};
use super::ranges::{PageNo, Pages, Ranges, common};
use super::streams::Streams;

/// Pages that a fault on a sequence fills with zeros, at most.
pub(crate) const ZEROS_MAX: usize = 64;
/// Pages that a fault on a sequence loads from the store, at most.
pub(crate) const LOADS_MAX: usize = 16;
/// Passes of the clock hand for which a page that cannot be moved is left alone.
const REST: u8 = 7;
/// Chunks of 2 MiB that one look for pages to evict passes over, at most.
const CHUNKS_PER_LOOK: usize = 32;

/// What a fault asks for. Pages of `Zero`, `Chance` and `Stored` are arriving now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The page is not of a closed range: wake, and let the kernel decide.
    Unknown,
    /// The page should be there: the message is old, or the kernel dropped the page by itself.
    There,
    /// Whoever is at work there will wake the thread.
    Later,
    /// There is no room for it under the limit.
    NoRoom,
    /// Zeros for these pages.
    Zero(Pages),
    /// The page from the second-chance buffer.
    Chance(SlotNo),
    /// Pages from the store, from the faulting one on, under these keys.
    Stored(Vec<Key>),
}

/// What a change took out of the tables, at one place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Taken {
    /// The range of the change.
    pub range: Pages,
    /// The closed parts of it; still closed if contents only are given up.
    pub closed: Vec<Pages>,
    /// The pages that are not absent.
    pub pages: Vec<(PageNo, Page)>,
}

/// A change that is being made.
#[derive(Debug, Clone)]
pub(crate) struct Flux {
    /// The change.
    pub change: Change,
    /// What it gives up or moves, then what it overwrites elsewhere.
    pub taken: Vec<Taken>,
}

/// An address space as it was at a fork.
#[derive(Clone, Default)]
pub(crate) struct Snapshot {
    /// Its closed ranges.
    pub closed: Ranges,
    /// Its pages.
    pub table: PageTable,
}

/// The core; see the module.
#[derive(Default)]
pub(crate) struct Space {
    closed: Ranges,
    table: PageTable,
    flux: Vec<Flux>,
    streams: Streams,
    /// One for each fork that is being made, the oldest first.
    forks: Vec<Snapshot>,
    /// Pages that arrived while forks are being made.
    arrivals: BTreeSet<PageNo>,
    /// No page may arrive: a fork waits until none is busy.
    shut: bool,
    /// Pages whose faults wait for that.
    shut_out: Vec<PageNo>,
}

impl Space {
    /// Returns how many pages are in what state, without those in flux.
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

    /// Closes a range that was open, of which `present` is there; `age` says how soon that
    /// leaves. Parts that are closed already stay as they are.
    pub(crate) fn close(&mut self, range: &Pages, present: &[Pages], age: u8) {
        self.closed.insert(range.clone());
        self.found(range, present, age);
    }

    /// Notes that of a closed range `present` is there, whatever was known.
    pub(crate) fn found(&mut self, range: &Pages, present: &[Pages], age: u8) {
        for page in present.iter().flat_map(|part| common(part, range)) {
            if self.table.get(page) == Page::Absent {
                self.table.set(page, Page::Resident { age });
            }
        }
    }

    /// Returns whether a thread is at work with a page of these ranges (S4).
    pub(crate) fn is_busy(&self, ranges: &[Pages]) -> bool {
        ranges.iter().any(|range| self.table.is_busy(range))
    }

    /// Returns whether a change that gives up any of this range is being made.
    pub(crate) fn is_in_flux(&self, range: &Pages) -> bool {
        let mut taken = self.flux.iter().flat_map(|flux| &flux.taken);
        taken.any(|taken| !common(&taken.range, range).is_empty())
    }

    /// Returns what a fault asks for, with room for so many pages.
    pub(crate) fn fault(&mut self, page: PageNo, room: usize) -> Answer {
        let around = self.closed.around(page);
        let Some(range) = around else {
            let gone = self.is_in_flux(&(page..page + 1));
            return if gone { Answer::Later } else { Answer::Unknown };
        };
        if self.discards(page) {
            return Answer::Later;
        }
        let state = self.table.get(page);
        match state {
            Page::Resident { .. } | Page::Fixed { .. } => Answer::There,
            Page::Arriving => Answer::Later,
            Page::Leaving { .. } => {
                self.table.set(page, Page::Leaving { wanted: true });
                Answer::Later
            }
            _ if self.shut => {
                self.shut_out.push(page);
                Answer::Later
            }
            Page::Chance(slot) => {
                self.arrive(page);
                Answer::Chance(slot)
            }
            _ if room == 0 => Answer::NoRoom,
            Page::Absent => self.zeros(page, &range, room),
            Page::Stored(_) => self.loads(page, &range, room),
        }
    }

    fn zeros(&mut self, page: PageNo, range: &Pages, room: usize) -> Answer {
        let window = self.streams.window(page, room.min(ZEROS_MAX));
        let candidates = page..range.end.min(page + window);
        let absent = candidates
            .take_while(|&page| self.table.get(page) == Page::Absent && !self.discards(page))
            .count();
        for page in page..page + absent {
            self.arrive(page);
        }
        self.streams.filled(page, absent);
        Answer::Zero(page..page + absent)
    }

    fn loads(&mut self, page: PageNo, range: &Pages, room: usize) -> Answer {
        let window = self.streams.window(page, room.min(LOADS_MAX));
        let mut keys = Vec::with_capacity(window);
        for page in page..range.end.min(page + window) {
            match self.table.get(page) {
                Page::Stored(key) => keys.push(key),
                _ => break,
            }
            self.arrive(page);
        }
        self.streams.filled(page, keys.len());
        Answer::Stored(keys)
    }

    fn arrive(&mut self, page: PageNo) {
        self.table.set(page, Page::Arriving);
        if !self.forks.is_empty() {
            self.arrivals.insert(page);
        }
    }

    /// Returns whether contents that include this page are being given up. The tables have
    /// nothing of them then, but a fault must not be answered (S3).
    fn discards(&self, page: PageNo) -> bool {
        let mut discards =
            self.flux.iter().filter(|flux| matches!(flux.change, Change::Discard { .. }));
        discards.any(|flux| flux.taken.iter().any(|taken| taken.range.contains(&page)))
    }

    /// Ends the arrival of a page, which is in this state now.
    pub(crate) fn arrived(&mut self, page: PageNo, state: Page) {
        let was = self.table.set(page, state);
        debug_assert_eq!(was, Page::Arriving, "page {page:#x} was not arriving");
    }

    /// Picks up to `max` pages to evict, from page `hand` on, and adds them to `victims` in order;
    /// they are leaving now. Returns where to go on, or `None` at the end of the space.
    pub(crate) fn pick(
        &mut self,
        hand: PageNo,
        max: usize,
        victims: &mut Vec<PageNo>,
    ) -> Option<PageNo> {
        if !self.forks.is_empty() || self.shut || max == 0 {
            return None;
        }
        let limit = victims.len() + max;
        self.table.visit_present(hand, CHUNKS_PER_LOOK, |page, state| match state {
            Page::Resident { age: 0 } => {
                victims.push(page);
                let to = Page::Leaving { wanted: false };
                if victims.len() == limit { Visit::SetAndStop(to) } else { Visit::Set(to) }
            }
            Page::Resident { age } => Visit::Set(Page::Resident { age: age - 1 }),
            Page::Fixed { rest: 0 } => Visit::Set(Page::Resident { age: 0 }),
            Page::Fixed { rest } => Visit::Set(Page::Fixed { rest: rest - 1 }),
            busy => Visit::Set(busy),
        })
    }

    /// Ends the leaving of a page, which is in this state now; returns whether a thread waits
    /// for it and must be woken.
    pub(crate) fn left(&mut self, page: PageNo, state: Page) -> bool {
        match self.table.set(page, state) {
            Page::Leaving { wanted } => wanted,
            was => unreachable!("page {page:#x} was {was:?}, not leaving"),
        }
    }

    /// The state of a page that could not be moved.
    pub(crate) const FIXED: Page = Page::Fixed { rest: REST };
    /// The state of a page that comes back from the second-chance buffer: it is in use.
    pub(crate) const BACK: Page = Page::Resident { age: AGE_MAX };
    /// The state of any other page that came.
    pub(crate) const NEW: Page = Page::Resident { age: 1 };

    /// Returns whether a page is in this slot of the second-chance buffer, also if it is in flux.
    pub(crate) fn holds(&self, page: PageNo, slot: SlotNo) -> bool {
        let held = Page::Chance(slot);
        let mut taken = self.flux.iter().flat_map(|flux| &flux.taken);
        self.table.get(page) == held
            || taken.any(|taken| {
                let found = taken.pages.binary_search_by_key(&page, |(page, _)| *page);
                found.is_ok_and(|at| taken.pages[at].1 == held)
            })
    }

    /// Moves a page of the second-chance buffer to the store; returns whether it was still in
    /// that slot. If not, the key is not in use.
    pub(crate) fn stored(&mut self, page: PageNo, slot: SlotNo, key: Key) -> bool {
        let here = self.table.get(page) == Page::Chance(slot);
        if here {
            self.table.set(page, Page::Stored(key));
            return true;
        }
        self.stored_in_flux(page, slot, key)
    }

    /// The same for a page in flux, which keeps its content if the change fails.
    fn stored_in_flux(&mut self, page: PageNo, slot: SlotNo, key: Key) -> bool {
        for taken in self.flux.iter_mut().flat_map(|flux| &mut flux.taken) {
            if let Ok(at) = taken.pages.binary_search_by_key(&page, |(page, _)| *page)
                && taken.pages[at].1 == Page::Chance(slot)
            {
                taken.pages[at].1 = Page::Stored(key);
                return true;
            }
        }
        false
    }

    /// Takes in flux what a change gives up: contents and ranges, or contents only. No page of
    /// the ranges is busy.
    pub(crate) fn begin(&mut self, change: &Change, ranges: &[Pages]) {
        debug_assert!(!self.is_busy(ranges), "S4");
        let keep = matches!(change, Change::Discard { .. });
        let take = |range: &Pages| Taken {
            closed: if keep { self.closed.within(range) } else { self.closed.remove(range) },
            pages: self.table.take(range),
            range: range.clone(),
        };
        let taken = ranges.iter().map(take).collect();
        self.flux.push(Flux { change: change.clone(), taken });
    }

    /// Takes a change out of flux, if it was in it. What it took is the caller's now: to put back
    /// or carry elsewhere, or to release (S6).
    pub(crate) fn end(&mut self, change: &Change) -> Option<Flux> {
        let at = self.flux.iter().position(|flux| flux.change == *change)?;
        Some(self.flux.remove(at))
    }

    /// Puts back what a change took that failed.
    pub(crate) fn put_back(&mut self, taken: Taken) {
        for range in taken.closed {
            self.closed.insert(range);
        }
        for (page, state) in taken.pages {
            self.table.set(page, state);
        }
    }

    /// Puts what was taken to where it was moved, `len` pages from `to` on; returns the ranges
    /// that are closed there and the pages that did not come along.
    pub(crate) fn carry(
        &mut self,
        taken: Taken,
        to: PageNo,
        len: usize,
    ) -> (Vec<Pages>, Vec<(PageNo, Page)>) {
        let (from, whole) = (taken.range.start, to..to + len);
        let parts = taken.closed.iter().map(|part| common(&moved(part, from, to), &whole));
        let mut closed: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
        let grown = to + taken.range.len()..whole.end;
        let reaches_end = taken.closed.last().is_some_and(|last| last.end == taken.range.end);
        if !grown.is_empty() && reaches_end {
            closed.push(grown);
        }
        for part in &closed {
            self.closed.insert(part.clone());
        }
        let (kept, left): (Vec<_>, Vec<_>) =
            taken.pages.into_iter().partition(|(page, _)| whole.contains(&(page - from + to)));
        for (page, state) in kept {
            self.table.set(page - from + to, state);
        }
        (closed, left)
    }

    /// Takes all that is known of a range out and forgets its ranges; the caller releases what
    /// the states name. No page of it is busy.
    pub(crate) fn forget(&mut self, range: &Pages) -> Vec<(PageNo, Page)> {
        self.closed.remove(range);
        self.table.take(range)
    }

    /// Takes out everything, also what is in flux and in snapshots: the space is gone.
    pub(crate) fn forget_all(&mut self) -> Vec<(PageNo, Page)> {
        let mut pages = self.table.take(&(0..usize::MAX));
        let flux = self.flux.drain(..).flat_map(|flux| flux.taken);
        pages.extend(flux.flat_map(|taken| taken.pages));
        for mut snapshot in self.forks.drain(..) {
            pages.extend(snapshot.table.take(&(0..usize::MAX)));
        }
        self.closed = Ranges::default();
        pages
    }

    /// Lets no page arrive or leave any more until [`begin_fork`](Self::begin_fork).
    pub(crate) fn shut(&mut self) {
        self.shut = true;
    }

    /// Begins a fork: nothing leaves until it ends. No page is busy or in the second-chance
    /// buffer. Calls `refer` with each key that the snapshot names; returns the pages whose
    /// faults waited.
    pub(crate) fn begin_fork(&mut self, mut refer: impl FnMut(Key)) -> Vec<PageNo> {
        debug_assert_eq!(self.table.counts().busy, 0, "S5");
        let mut snapshot = Snapshot { closed: self.closed.clone(), table: self.table.clone() };
        // What is in flux is still there for the child, unless its own mappings say otherwise.
        for flux in &self.flux {
            for taken in &flux.taken {
                self.overlay(&mut snapshot, taken, matches!(flux.change, Change::Discard { .. }));
            }
        }
        snapshot.table.for_each(|_, state| match state {
            Page::Stored(key) => refer(key),
            Page::Chance(_) => unreachable!("the buffer was flushed"),
            _ => {}
        });
        self.forks.push(snapshot);
        self.shut = false;
        std::mem::take(&mut self.shut_out)
    }

    /// Returns whether the fork that began last copies closed ranges.
    pub(crate) fn forks_closed(&self) -> bool {
        self.forks.last().is_some_and(|snapshot| !snapshot.closed.is_empty())
    }

    /// Adds what is in flux to a snapshot, unless something new is mapped there already.
    fn overlay(&self, snapshot: &mut Snapshot, taken: &Taken, is_discard: bool) {
        let missing = |part: &&Pages| is_discard || !self.closed.touches(part);
        let parts: Vec<_> = taken.closed.iter().filter(missing).collect();
        let pages = taken.pages.iter();
        for &(page, state) in pages.filter(|(page, _)| parts.iter().any(|p| p.contains(page))) {
            snapshot.table.set(page, state);
        }
        for part in parts {
            snapshot.closed.insert(part.clone());
        }
    }

    /// Opens what [`shut`](Self::shut) shut without a fork; returns the pages whose faults waited.
    pub(crate) fn open(&mut self) -> Vec<PageNo> {
        self.shut = false;
        std::mem::take(&mut self.shut_out)
    }

    /// Ends the oldest fork; returns the space as it was when it began, and the pages that
    /// arrived since then, which the child may have or not.
    pub(crate) fn end_fork(&mut self) -> Option<(Snapshot, BTreeSet<PageNo>)> {
        if self.forks.is_empty() {
            return None;
        }
        let snapshot = self.forks.remove(0);
        let arrivals = if self.forks.is_empty() {
            std::mem::take(&mut self.arrivals)
        } else {
            self.arrivals.clone()
        };
        Some((snapshot, arrivals))
    }

    /// Makes a child of a snapshot. `mapped` are the ranges that can be closed in the child,
    /// `is_present` says which of the pages that arrived during the fork it has. Returns the
    /// child and what did not come along, for the caller to release.
    pub(crate) fn child(
        snapshot: Snapshot,
        arrivals: &BTreeSet<PageNo>,
        mapped: &Ranges,
        is_present: impl Fn(PageNo) -> bool,
    ) -> (Self, Vec<(PageNo, Page)>) {
        let Snapshot { closed, mut table } = snapshot;
        let mut released = Vec::new();
        let mut child = Self::default();
        for range in closed.iter() {
            for part in mapped.within(&range) {
                child.closed.insert(part);
            }
            for gone in mapped.without(&range) {
                released.extend(table.take(&gone));
            }
        }
        for &page in arrivals.iter().filter(|&&page| child.closed.around(page).is_some()) {
            if is_present(page) && !table.get(page).is_present() {
                released.push((page, table.set(page, Self::NEW)));
            }
        }
        child.table = table;
        (child, released)
    }

    /// Asserts S1 and that counts agree.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut counts = Counts::default();
        self.table.for_each(|page, state| {
            assert!(self.closed.around(page).is_some(), "S1: {page:#x} is {state:?}");
            counts.present += usize::from(state.is_present());
            counts.busy += usize::from(state.is_busy());
            counts.chance += usize::from(matches!(state, Page::Chance(_)));
            counts.stored += usize::from(matches!(state, Page::Stored(_)));
        });
        assert_eq!(counts, self.table.counts());
    }
}

fn moved(part: &Pages, from: PageNo, to: PageNo) -> Pages {
    part.start - from + to..part.end - from + to
}
