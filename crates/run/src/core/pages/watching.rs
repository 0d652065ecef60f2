//! Pages whose accesses the hand wants to see (`zfold_uffd::policy::watched`), and those that are
//! to be marked for that.

use zfold_uffd::policy::watched::{Telling, Watched};

use super::told::CHUNK;
use super::{Page, PageTable};
use crate::core::ranges::{PageNo, Pages};

/// Most runs of pages that wait for their marks; without one, a page seems to be touched.
const UNMARKED_MAX: usize = 4096;

impl PageTable {
    /// Records that a page is to be marked.
    pub(super) fn will_mark(&mut self, page: PageNo) {
        let is_full = self.unmarked.len() >= UNMARKED_MAX;
        match self.unmarked.last_mut() {
            Some(run) if run.end == page => run.end += 1,
            _ if is_full => {}
            _ => self.unmarked.push(page..page + 1),
        }
    }

    /// A watched page has come. It is to be marked once another one has: the thread that waited
    /// for it may not have used it yet, which would look like a second use.
    pub(super) fn has_come(&mut self, page: PageNo) {
        if let Some(before) = self.latest.replace(page) {
            self.will_mark(before);
        }
    }

    /// From now on, accesses are seen.
    pub(crate) fn watch(&mut self) {
        self.watching = true;
    }

    /// Returns whether accesses are seen.
    pub(crate) fn is_watching(&self) -> bool {
        self.watching
    }

    /// Returns what marks tell.
    pub(crate) fn telling(&self) -> Telling {
        self.telling
    }

    /// The hand has passed pages: sets what marks tell after that, and which pages are to be
    /// marked.
    pub(crate) fn watched(&mut self, telling: Telling, marks: &[PageNo]) {
        self.telling = telling;
        marks.iter().for_each(|&page| self.will_mark(page));
    }

    /// The sample has marked the pages of a part from `first` on, of which these were accessed;
    /// returns those of which the hand has said so since the last time.
    pub(crate) fn sampled(&mut self, first: PageNo, accessed: u32) -> u32 {
        let Some(chunk) = self.chunks.get_mut(&(first / CHUNK)) else { return 0 };
        chunk.told.sampled(first, accessed)
    }

    /// Takes out the pages that are to be marked, in order, joined.
    pub(crate) fn take_unmarked(&mut self) -> Vec<Pages> {
        self.unmarked.sort_unstable_by_key(|run| run.start);
        let mut marks: Vec<Pages> = Vec::new();
        for page in std::mem::take(&mut self.unmarked).into_iter().flatten() {
            let Some(chunk) = self.chunks.get_mut(&(page / CHUNK)) else { continue };
            let Page::Resident { age } = Page::from_word(chunk.words[page % CHUNK]) else {
                continue;
            };
            if !Watched::from_rounds(age).is_some_and(Watched::is_marked) {
                continue;
            }
            chunk.told.begins(page);
            match marks.last_mut() {
                Some(run) if run.end > page => {}
                Some(run) if run.end == page => run.end += 1,
                _ => marks.push(page..page + 1),
            }
        }
        marks
    }

    /// Pages of a range cannot be marked: those that are watched have the rounds of their heat.
    pub(crate) fn unwatch(&mut self, of: &Pages) {
        for page in of.clone() {
            let Some(chunk) = self.chunks.get_mut(&(page / CHUNK)) else { continue };
            let at = page % CHUNK;
            if let Page::Resident { age } = Page::from_word(chunk.words[at])
                && Watched::from_rounds(age).is_some()
            {
                chunk.words[at] = Page::Resident { age: chunk.past[at].rounds() }.word();
            }
        }
    }
}
