//! Which pages leave, and the outcome for pages that were picked.

use zfold_uffd::policy::watched::{Passed, Watched};
use zfold_uffd::policy::{Era, Haste};

use super::{PageNo, Pages, Space};
use crate::core::pages::told::{Bits, CHUNK, has};
use crate::core::pages::{Page, Visit};

/// Passes of the clock hand that skip a page which could not be moved because of its mapping, and a
/// page that is in use elsewhere.
const REST: [u8; 2] = [180, 12];
/// Most chunks of 2 MiB that one search for pages to evict covers.
const CHUNKS_PER_LOOK: usize = 32;
/// The same where it asks the kernel about each: 20 microseconds.
const CHUNKS_PER_SCAN: usize = 8;

impl Space {
    /// Sets the current era.
    pub(crate) fn set_now(&mut self, now: Era) {
        self.now = now;
    }

    /// See [`PageTable::take_returned`](crate::core::pages::PageTable::take_returned).
    pub(crate) fn take_returned(&mut self) -> std::vec::Drain<'_, Era> {
        self.table.take_returned()
    }

    /// From now on, accesses of pages are seen.
    pub(crate) fn watch(&mut self) {
        self.table.watch();
    }

    /// See [`PageTable::take_unmarked`](crate::core::pages::PageTable::take_unmarked).
    pub(crate) fn take_unmarked(&mut self) -> Vec<Pages> {
        self.table.take_unmarked()
    }

    /// See [`PageTable::unwatch`](crate::core::pages::PageTable::unwatch).
    pub(crate) fn unwatch(&mut self, of: &Pages) {
        self.table.unwatch(of);
    }

    /// See [`PageTable::sampled`](crate::core::pages::PageTable::sampled).
    pub(crate) fn sampled(&mut self, first: PageNo, accessed: u32) -> u32 {
        self.table.sampled(first, accessed)
    }

    /// Picks up to `max` pages to evict, from page `hand` on, in order; `kept` are pages that never
    /// leave, and `haste` says for how long no page has been found. `look` says which pages of a
    /// range within 2 MiB were accessed, if that is seen. Returns where to continue, or `None` at
    /// the end of the space.
    pub(crate) fn pick(
        &mut self,
        hand: PageNo,
        max: usize,
        haste: Haste,
        kept: impl Fn(PageNo) -> bool,
        look: impl Fn(&Pages) -> Option<Bits>,
        victims: &mut Vec<PageNo>,
    ) -> Option<PageNo> {
        if self.held || max == 0 {
            return None;
        }
        let (own, now) = (&self.own, self.now);
        let (mut telling, mut marks) = (self.table.telling(), Vec::new());
        let mut seen: (PageNo, Option<Bits>) = (0, None);
        let chunks = if self.table.is_watching() { CHUNKS_PER_SCAN } else { CHUNKS_PER_LOOK };
        let next = self.table.visit_present(hand, chunks, |page, state, past, told| match state {
            Page::Resident { age } => {
                let passed = match Watched::from_rounds(age) {
                    None => haste.pass(age, past, now).map_or(Passed::Leaves, Passed::Stays),
                    Some(watched) => {
                        if page >= seen.0 {
                            let end = (page / CHUNK + 1) * CHUNK;
                            seen = (end, look(&(page..end)));
                        }
                        let is_clear = seen.1.map(|bits| has(&bits, page));
                        let accessed = is_clear.map(|is_clear| is_clear || told.hand(page));
                        let at = (page as u64, past, now);
                        let passed = telling.pass(haste, watched, at, accessed);
                        if let Passed::Marked(_) = passed {
                            told.marked(page, is_clear != Some(false));
                            marks.push(page);
                        }
                        passed
                    }
                };
                match passed {
                    Passed::Stays(age) | Passed::Marked(age) => Visit::Set(Page::Resident { age }),
                    Passed::Leaves if kept(page) || own.around(page).is_some() => Visit::Set(state),
                    Passed::Leaves => {
                        victims.push(page);
                        let is_last = victims.len() == max;
                        if is_last { Visit::SetAndStop(state) } else { Visit::Set(state) }
                    }
                }
            }
            Page::Fixed { rest: 0 } => Visit::Set(Page::Resident { age: 0 }),
            Page::Fixed { rest } => Visit::Set(Page::Fixed { rest: rest - 1 }),
            other => Visit::Set(other),
        });
        self.table.watched(telling, &marks);
        next
    }

    /// Picks up to `max` pages of a range, whatever their age, including those that could not be
    /// moved; otherwise like [`pick`](Self::pick).
    pub(crate) fn pick_in(
        &mut self,
        range: &Pages,
        max: usize,
        kept: impl Fn(PageNo) -> bool,
        victims: &mut Vec<PageNo>,
    ) -> Option<PageNo> {
        if self.held || max == 0 {
            return None;
        }
        let own = &self.own;
        let next = self.table.visit_present(range.start, CHUNKS_PER_LOOK, |page, state, _, _| {
            if page >= range.end {
                return Visit::SetAndStop(state);
            }
            let stays = kept(page) || own.around(page).is_some();
            if matches!(state, Page::Doomed { .. }) || stays {
                return Visit::Set(state);
            }
            victims.push(page);
            let picked = Page::Resident { age: 0 };
            if victims.len() == max { Visit::SetAndStop(picked) } else { Visit::Set(picked) }
        });
        next.filter(|next| *next < range.end)
    }

    /// Returns the pages from `from` on that could not be moved, joined, and where to continue;
    /// `None` at the end of the space.
    ///
    /// # Cost
    /// At most about 20 microseconds.
    pub(crate) fn fixed_from(&mut self, from: PageNo) -> (Vec<Pages>, Option<PageNo>) {
        let mut found: Vec<Pages> = Vec::new();
        let next = self.table.visit_present(from, CHUNKS_PER_LOOK, |page, state, _, _| {
            if matches!(state, Page::Fixed { .. }) {
                match found.last_mut() {
                    Some(run) if run.end == page => run.end += 1,
                    _ => found.push(page..page + 1),
                }
            }
            Visit::Set(state)
        });
        (found, next)
    }

    /// Sets the state of a page that was picked and is still somewhere.
    pub(crate) fn set(&mut self, page: PageNo, state: Page) {
        let was = match state {
            Page::Cached(slot) => self.table.leave(page, slot, self.now),
            _ => self.table.set(page, state),
        };
        debug_assert!(was.is_present(), "page {page:#x} was {was:?}, not there");
    }

    /// The state of a page that cannot be moved because of its mapping.
    pub(crate) const FIXED: Page = Page::Fixed { rest: REST[0] };
    /// The state of a page that could not be moved because it is in use elsewhere.
    pub(crate) const BUSY: Page = Page::Fixed { rest: REST[1] };
}
