//! What the memory side does before and after a program changes its address space.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::engine::{Engine, SETTLE};
use super::managed::{Held, Managed, lock, pages_at};
use super::memory::{Change, Follow};
use super::pages::Page;
use super::ranges::{PAGE, PageNo, Pages, pages_of};
use super::reclaim::{close, is_stale, survey};
use super::space::Taken;

/// Memory that is only reserved is opened up to this share of the limit.
const RESERVE_SHARE: usize = 16;

/// What is left to do when the lock of a space is released after a change.
#[derive(Default)]
struct Aftermath {
    /// States that were given up.
    released: Vec<(PageNo, Page)>,
    /// Where faults may wait.
    woken: Vec<Pages>,
    /// A mapping cannot be managed any more.
    is_lost: bool,
}

impl Aftermath {
    /// A range and what was in it is given up.
    fn give_up(&mut self, managed: &Managed, taken: Taken) {
        let closed: usize = taken.closed.iter().map(|part| part.len()).sum();
        managed.stale.fetch_add(taken.range.len() - closed, Ordering::Relaxed);
        if closed > 0 {
            self.woken.push(taken.range);
        }
        self.released.extend(taken.pages);
    }

    /// A change failed: what it took is as it was. What is not mapped any more in spite of that is
    /// forgotten: it cannot be registered.
    fn put_back(&mut self, managed: &Managed, space: &mut Held<'_>, taken: Taken) {
        let Some(access) = managed.access() else {
            return;
        };
        let closed = taken.closed.clone();
        self.woken.push(taken.range.clone());
        space.put_back(taken);
        for part in closed {
            if access.register(&part).is_err() {
                self.released.extend(space.forget(&part));
            }
        }
    }

    /// Contents of closed memory were given up.
    fn discard(&mut self, managed: &Managed, space: &mut Held<'_>, taken: Taken) {
        if let Some(access) = managed.access() {
            for part in &taken.closed {
                // What was only marked as free is still there, and what others touched since.
                if let Ok(present) = access.present(part) {
                    space.found(part, &present, 0);
                }
            }
        }
        self.woken.push(taken.range);
        self.released.extend(taken.pages);
    }
}

impl Engine {
    /// Returns whether pages can be opened, after another look if that may help.
    fn fits(&self, managed: &Managed, pages: usize) -> bool {
        let budget = &self.shared.budget;
        if !budget.fits(pages) && is_stale(&self.shared, managed) {
            survey(&self.shared, managed);
        }
        budget.fits(pages)
    }

    /// Returns whether a range should be closed although it fits: it is large, and perhaps little
    /// of it will ever be used.
    fn is_mostly_reserved(&self, managed: &Managed, pages: usize, reserve_only: bool) -> bool {
        let large = pages > self.shared.budget.limit() / RESERVE_SHARE;
        reserve_only && large && managed.access().is_some()
    }

    /// Charges a new range as open, or closes it if it does not fit.
    fn open_or_close(&self, managed: &Managed, range: &Pages, reserve_only: bool) {
        let reserved = self.is_mostly_reserved(managed, range.len(), reserve_only);
        if !reserved && self.fits(managed, range.len()) {
            managed.add_open(range.len());
            return;
        }
        let attached = managed.access().is_some() && !managed.is_dead();
        if attached && close(&self.shared, managed, range, false).is_ok() {
            return;
        }
        self.want(managed);
        self.shared.budget.count_over_limit();
        managed.add_open(range.len());
    }

    pub(super) fn want(&self, managed: &Managed) {
        if managed.access().is_none() && !managed.refused.load(Ordering::Relaxed) {
            managed.wanted.store(true, Ordering::Relaxed);
        }
    }

    /// A change is about to be made.
    pub(super) fn begins(&self, managed: &Arc<Managed>, change: &Change) -> Follow {
        match change {
            Change::Map { at, len, fixed: true, .. } => {
                self.want_unless_fits(managed, *len);
                self.take(managed, change, &[pages_at(*at, *len)])
            }
            Change::Map { len, reserve_only, .. } => {
                let pages = len.div_ceil(PAGE);
                let reserved = self.is_mostly_reserved(managed, pages, *reserve_only);
                if !reserved && self.fits(managed, pages) {
                    managed.add_open(pages);
                    return Follow::Go;
                }
                self.want(managed);
                Follow::Return
            }
            Change::Replace { range } | Change::Unmap { range } => {
                self.take(managed, change, &[pages_of(range)])
            }
            Change::Discard { range } => {
                let pages = pages_of(range);
                if !managed.lock().closed().touches(&pages) {
                    return Follow::Go;
                }
                self.take(managed, change, &[pages])
            }
            Change::PageOut { range } => {
                self.page_out(managed, pages_of(range));
                Follow::Go
            }
            Change::Yield { range } => {
                self.give_back(managed, &pages_of(range));
                Follow::Go
            }
            Change::Remap { from, len, fixed, .. } => {
                let mut ranges = vec![pages_of(from)];
                ranges.extend(fixed.map(|to| pages_at(to, *len)));
                self.want_unless_fits(managed, len.saturating_sub(from.len()));
                self.take(managed, change, &ranges)
            }
            Change::Brk { to } => self.begins_brk(managed, change, *to),
        }
    }

    fn want_unless_fits(&self, managed: &Managed, bytes: usize) {
        if !self.fits(managed, bytes.div_ceil(PAGE)) {
            self.want(managed);
        }
    }

    fn begins_brk(&self, managed: &Managed, change: &Change, to: usize) -> Follow {
        let end = managed.heap_end.load(Ordering::Relaxed).div_ceil(PAGE);
        let to = to.div_ceil(PAGE);
        if end == 0 {
            return Follow::Return;
        }
        if to == 0 {
            return Follow::Go;
        }
        if to < end {
            return self.take(managed, change, std::slice::from_ref(&(to..end)));
        }
        if self.fits(managed, to - end) {
            managed.heap_end.store(to * PAGE, Ordering::Relaxed);
            managed.add_open(to - end);
            return Follow::Go;
        }
        self.want(managed);
        Follow::Return
    }

    /// Takes ranges in flux, when no page of them is busy (S4).
    fn take(&self, managed: &Managed, change: &Change, ranges: &[Pages]) -> Follow {
        if !matches!(change, Change::Discard { .. }) {
            ranges.iter().for_each(|range| drop(lock(&managed.own).remove(range)));
        }
        let mut space = managed.lock();
        if space.wait(SETTLE, |space| !space.is_busy(ranges)) {
            space.begin(change, ranges);
        } else {
            self.shared.tracing.end("pages of the program do not settle".to_owned());
        }
        Follow::Return
    }

    /// A change was made.
    pub(super) fn ended(&self, managed: &Managed, change: &Change, result: i64) {
        let ok = usize::try_from(result).ok();
        let mut aftermath = Aftermath::default();
        let mut space = managed.lock();
        // Under one lock: pages that are neither in the tables nor in flux are nobody's.
        let flux = space.end(change);
        let mut taken = flux.map(|flux| flux.taken).unwrap_or_default();
        match (change, ok) {
            (Change::Brk { to }, Some(end)) if end.div_ceil(PAGE) == to.div_ceil(PAGE) => {
                taken.into_iter().for_each(|taken| aftermath.give_up(managed, taken));
            }
            (_, None) | (Change::Brk { .. }, _) => {
                for taken in taken {
                    aftermath.put_back(managed, &mut space, taken);
                }
            }
            (Change::Discard { .. }, _) => {
                for taken in taken {
                    aftermath.discard(managed, &mut space, taken);
                }
            }
            (Change::Remap { len, keep, .. }, Some(to)) => {
                let from = (!taken.is_empty()).then(|| taken.remove(0));
                taken.into_iter().for_each(|taken| aftermath.give_up(managed, taken));
                if let Some(from) = from {
                    self.carry(managed, space, from, &pages_at(to, *len), *keep, &mut aftermath);
                    return self.finish(managed, aftermath);
                }
            }
            _ => taken.into_iter().for_each(|taken| aftermath.give_up(managed, taken)),
        }
        drop(space);
        self.finish(managed, aftermath);
        match (change, ok) {
            (Change::Map { len, reserve_only, .. }, Some(at)) => {
                self.open_or_close(managed, &pages_at(at, *len), *reserve_only);
            }
            (Change::Brk { .. }, Some(end)) => self.ended_brk(managed, end),
            _ => {}
        }
    }

    fn finish(&self, managed: &Managed, aftermath: Aftermath) {
        self.shared.release(&aftermath.released);
        if let Some(access) = managed.access() {
            aftermath.woken.iter().for_each(|range| access.wake(range));
        }
        if aftermath.is_lost {
            self.shared.tracing.end("moved memory of the program cannot be managed".to_owned());
        }
    }

    fn ended_brk(&self, managed: &Managed, result: usize) {
        let was = managed.heap_end.swap(result, Ordering::Relaxed).div_ceil(PAGE);
        let end = result.div_ceil(PAGE);
        if was != 0 && end > was {
            self.open_or_close(managed, &(was..end), false);
        }
    }

    /// What was taken from one place is at another now.
    fn carry(
        &self,
        managed: &Managed,
        mut space: Held<'_>,
        from: Taken,
        to: &Pages,
        keep: bool,
        aftermath: &mut Aftermath,
    ) {
        let (old, old_closed) = (from.range.clone(), from.closed.clone());
        let was_closed: usize = old_closed.iter().map(|part| part.len()).sum();
        let (closed, left) = space.carry(from, to.start, to.len());
        aftermath.released.extend(left);
        if let Some(access) = managed.access() {
            // Without the event of it, the kernel forgets that a moved mapping was registered.
            aftermath.is_lost = closed.iter().any(|part| access.register(part).is_err());
            for part in old_closed.iter().filter(|_| keep) {
                let present = access.present(part).unwrap_or_default();
                space.close(part, &present, 1);
            }
        }
        let chances = lock(&self.shared.chances);
        for page in closed.iter().cloned().flatten() {
            if let Page::Chance(slot) = space.page(page) {
                chances.moved(slot, page);
            }
        }
        drop(chances);
        drop(space);
        if was_closed > 0 {
            aftermath.woken.extend([old.clone(), to.clone()]);
        }
        let is_closed: usize = closed.iter().map(|part| part.len()).sum();
        let open_before = old.len() - was_closed;
        let open_now = to.len() - is_closed + if keep { open_before } else { 0 };
        if open_now > open_before {
            managed.add_open(open_now - open_before);
        } else {
            managed.remove_open(open_before - open_now);
        }
    }
}
