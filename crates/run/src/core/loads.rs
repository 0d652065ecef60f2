//! Pages that are being loaded from the store, which takes long and happens without the space's
//! lock.

use std::collections::VecDeque;
use std::ops::Range;
use std::vec::Drain;

use super::pages::Key;
use super::ranges::PageNo;
use zfold_uffd::page::pages_in;

/// Bytes of the largest load.
pub(crate) const LOADS_BYTES: usize = 64 << 10;

/// Returns the most pages of a load.
pub(crate) fn loads_max() -> usize {
    pages_in(LOADS_BYTES)
}

/// Pages that are to be loaded, in order, and their keys; at most [`loads_max`].
pub(crate) type Loads = Vec<(PageNo, Key)>;

/// Returns the runs of neighbours among the loads that are `same`, by their positions.
pub(crate) fn runs(
    loads: &Loads,
    is_same: impl Fn(PageNo, Key) -> bool,
) -> impl Iterator<Item = Range<usize>> {
    let is_same = move |at: usize| is_same(loads[at].0, loads[at].1);
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = (from..loads.len()).find(|&at| is_same(at))?;
        let goes_on = |at: usize| loads[at].0 == loads[at - 1].0 + 1 && is_same(at);
        from = (start + 1..loads.len()).find(|&at| !goes_on(at)).unwrap_or(loads.len());
        Some(start..from)
    })
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
        let loads: Loads = [3, 4, 5, 7, 8, 20].map(|page| (page, page as Key)).to_vec();
        let same = runs(&loads, |page, key| page as Key == key && page != 4);
        assert_eq!(same.collect::<Vec<_>>(), [0..1, 2..3, 3..5, 5..6]);
        assert!(runs(&loads, |_, _| false).next().is_none());
    }
}
