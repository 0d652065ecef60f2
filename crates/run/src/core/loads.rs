//! Pages that are being loaded from the store, which takes long and happens without the space's
//! lock.

use std::collections::VecDeque;
use std::ops::Range;
use std::vec::Drain;

use super::pages::Key;
use super::ranges::PageNo;
use zfold_uffd::page::{PAGE_LEN_MIN, pages_in};

/// Bytes of the largest load.
pub(crate) const LOADS_BYTES: usize = 64 << 10;
/// Most pages of a load, whatever their size.
const LOADS_MAX: usize = LOADS_BYTES / PAGE_LEN_MIN;

/// Returns the most pages of a load.
pub(crate) fn loads_max() -> usize {
    pages_in(LOADS_BYTES)
}

/// Pages that are to be loaded, in order, and their keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loads {
    pages: [(PageNo, Key); LOADS_MAX],
    len: usize,
}

impl Loads {
    /// Adds a page after the others.
    pub(crate) fn push(&mut self, page: PageNo, key: Key) {
        self.pages[self.len] = (page, key);
        self.len += 1;
    }

    /// Returns whether there is no more room.
    pub(crate) fn is_full(&self) -> bool {
        self.len == loads_max()
    }

    /// Puts the last page first.
    pub(crate) fn reverse(&mut self) {
        self.pages[..self.len].reverse();
    }

    /// Returns the pages and their keys.
    pub(crate) fn pages(&self) -> &[(PageNo, Key)] {
        &self.pages[..self.len]
    }

    /// Returns the runs of neighbours among the pages that are `same`, by their positions.
    pub(crate) fn runs(&self, is_same: impl Fn(PageNo, Key) -> bool) -> Runs {
        let same = |at| self.pages().get(at).is_some_and(|&(page, key)| is_same(page, key));
        Runs { loads: *self, same: std::array::from_fn(same), from: 0 }
    }
}

/// See [`Loads::runs`].
#[derive(Debug)]
pub(crate) struct Runs {
    loads: Loads,
    same: [bool; LOADS_MAX],
    from: usize,
}

impl Iterator for Runs {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let pages = self.loads.pages();
        let start = (self.from..pages.len()).find(|&at| self.same[at])?;
        let goes_on = |at: usize| self.same[at] && pages[at].0 == pages[at - 1].0 + 1;
        let end = (start + 1..pages.len()).find(|&at| !goes_on(at));
        self.from = end.unwrap_or(pages.len());
        Some(start..self.from)
    }
}

/// Loads in progress, and keys that are no longer named: those that these loads may read
/// (space/S8), and the others.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    /// The number of the next load, and the numbers of loads in progress.
    next: u64,
    begun: Vec<u64>,
    /// Keys, each with the number of the load that was next when it was given up, which does not
    /// read it.
    parked: VecDeque<(u64, Key)>,
    free: Vec<Key>,
}

impl Loading {
    /// Begins a load of pages that are in the store now; returns its number.
    pub(crate) fn begin(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.begun.push(number);
        number
    }

    /// Ends a load.
    pub(crate) fn end(&mut self, number: u64) {
        self.begun.retain(|&other| other != number);
        let oldest = self.begun.iter().min().copied().unwrap_or(u64::MAX);
        let free = self.parked.iter().take_while(|(before, _)| *before <= oldest).count();
        self.free.extend(self.parked.drain(..free).map(|(_, key)| key));
    }

    /// Records that a key is no longer named.
    pub(crate) fn give_up(&mut self, key: Key) {
        if self.begun.is_empty() {
            self.free.push(key);
        } else {
            self.parked.push_back((self.next, key));
        }
    }

    /// Takes out the keys that were given up and that no load reads.
    pub(crate) fn take_free(&mut self) -> Drain<'_, Key> {
        self.free.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_free_when_all_loads_have_ended_that_may_read_it() {
        let mut loading = Loading::default();
        loading.give_up(10);
        assert!(loading.take_free().eq([10]), "nothing is being loaded");
        let (a, b) = (loading.begin(), loading.begin());
        loading.give_up(11);
        let c = loading.begin();
        loading.give_up(12);
        loading.end(b);
        assert_eq!(loading.take_free().count(), 0, "the first one goes on");
        loading.end(a);
        assert!(loading.take_free().eq([11]), "the third began later");
        loading.end(c);
        assert!(loading.take_free().eq([12]));
    }

    #[test]
    fn runs_are_neighbours_that_are_the_same() {
        let mut loads = Loads::default();
        [3, 4, 5, 7, 8, 20].into_iter().for_each(|page| loads.push(page, page as Key));
        let runs: Vec<_> = loads.runs(|page, key| page as Key == key && page != 4).collect();
        assert_eq!(runs, [0..1, 2..3, 3..5, 5..6]);
        loads.reverse();
        assert_eq!((loads.pages()[0], loads.pages().len()), ((20, 20), 6));
        let mut full = Loads::default();
        (0..loads_max()).for_each(|page| full.push(page, 0));
        assert!(full.is_full());
        assert!(full.runs(|_, _| false).next().is_none());
    }
}
