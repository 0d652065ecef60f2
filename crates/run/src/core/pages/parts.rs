//! Parts of chunks, for looks at which pages are accessed.

use zfold_uffd::policy::Era;

use super::told::{CHUNK, PART};
use super::{Page, PageTable};
use crate::core::ranges::PageNo;

/// What is known of the pages of a part, a bit for each, that of the first page the lowest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Not absent.
    pub known: u32,
    /// Present.
    pub present: u32,
    /// Away, and left after a certain era.
    pub left: u32,
}

impl PageTable {
    /// Returns the first page of each 2 MiB that have pages that are not absent, in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = PageNo> {
        self.chunks.keys().map(|number| number * CHUNK)
    }

    /// Returns what is known of the [`PART`] pages from `first` on, a multiple of that.
    pub(crate) fn part(&self, first: PageNo, since: Era) -> Part {
        let mut part = Part::default();
        let Some(chunk) = self.chunks.get(&(first / CHUNK)) else { return part };
        for bit in 0..PART {
            let at = first % CHUNK + bit;
            let state = Page::from_word(chunk.words[at]);
            let has_left = state.is_away() && chunk.past[at].at().is_after(since);
            part.known |= u32::from(state != Page::Absent) << bit;
            part.present |= u32::from(state.is_present()) << bit;
            part.left |= u32::from(has_left) << bit;
        }
        part
    }
}
