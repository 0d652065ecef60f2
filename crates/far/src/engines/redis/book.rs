//! Which objects there are, on which homes, when their leases were renewed, and which copies are
//! gone (R5, R8).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use zfold_store::pool::Lock;

use crate::place::COPIES_MAX;

/// Stands for no home.
const NOBODY: u16 = u16::MAX;

/// Where an object is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    homes: [u16; COPIES_MAX],
    /// Copies that were gone at the last renewal and were not made again.
    gone: u8,
    /// When; none if it has to be looked at as soon as can be.
    renewed: Option<Instant>,
}

impl Entry {
    /// Returns the entry of an object that was just put.
    pub(super) fn new(homes: &[usize]) -> Self {
        let renewed = Some(Instant::now());
        let mut entry = Self { homes: [NOBODY; COPIES_MAX], gone: 0, renewed };
        for (slot, home) in entry.homes.iter_mut().zip(homes) {
            *slot = index(*home);
        }
        entry
    }

    /// Returns the homes that acknowledged the object.
    pub(super) fn homes(&self) -> Vec<usize> {
        self.homes.iter().filter(|home| **home != NOBODY).map(|home| usize::from(*home)).collect()
    }
}

fn index(home: usize) -> u16 {
    u16::try_from(home).expect("a cluster has fewer masters than slots")
}

/// All objects that were put and not deleted.
#[derive(Debug, Default)]
pub(super) struct Book(Lock<Pages>);

#[derive(Debug, Default)]
struct Pages {
    entries: BTreeMap<u64, Entry>,
    /// Homes that may have lost what they had.
    doubted: BTreeSet<u16>,
    /// Sum of what is gone in all entries.
    gone: u64,
}

impl Book {
    pub(super) fn enter(&self, number: u64, entry: Entry) {
        self.0.lock().entries.insert(number, entry);
    }

    pub(super) fn find(&self, number: u64) -> Option<Entry> {
        self.0.lock().entries.get(&number).copied()
    }

    pub(super) fn strike(&self, numbers: &[u64]) {
        let mut pages = self.0.lock();
        for number in numbers {
            let entry = pages.entries.remove(number);
            pages.gone -= entry.map_or(0, |entry| u64::from(entry.gone));
        }
    }

    /// Has all objects of a home looked at by the next renewal: it may have lost some (R8).
    pub(super) fn doubt(&self, home: usize) {
        self.0.lock().doubted.insert(index(home));
    }

    /// Returns the objects whose leases are older than `age`, and those on a doubted home.
    pub(super) fn due(&self, age: Duration) -> Vec<u64> {
        let now = Instant::now();
        let mut pages = self.0.lock();
        let doubted = std::mem::take(&mut pages.doubted);
        let mut due = Vec::new();
        for (number, entry) in &mut pages.entries {
            if !doubted.is_empty() && entry.homes.iter().any(|home| doubted.contains(home)) {
                // Stays so until it was looked at, by this renewal or a later one.
                entry.renewed = None;
            }
            if entry.renewed.is_none_or(|then| now - then >= age) {
                due.push(*number);
            }
        }
        due
    }

    /// Remembers that the leases of `numbers` are new, and of which how many copies are gone and
    /// could not be made again.
    pub(super) fn renewed(&self, numbers: &BTreeSet<u64>, gone: &BTreeMap<u64, u8>) {
        let now = Instant::now();
        let mut pages = self.0.lock();
        let Pages { entries, gone: sum, .. } = &mut *pages;
        for number in numbers {
            if let Some(entry) = entries.get_mut(number) {
                entry.renewed = Some(now);
                let gone = gone.get(number).copied().unwrap_or(0);
                let before = std::mem::replace(&mut entry.gone, gone);
                *sum = *sum + u64::from(gone) - u64::from(before);
            }
        }
    }

    /// Returns how many copies are gone, as far as renewals have found.
    pub(super) fn gone(&self) -> u64 {
        self.0.lock().gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_a_doubted_home_is_due_until_it_was_looked_at() {
        let (book, hour) = (Book::default(), Duration::from_secs(3600));
        for number in 0..3 {
            book.enter(number, Entry::new(&[number as usize, 3]));
        }
        assert!(book.due(hour).is_empty());
        book.doubt(1);
        assert_eq!(book.due(hour), [1]);
        assert_eq!(book.due(hour), [1], "nobody looked");
        book.renewed(&BTreeSet::from([1]), &BTreeMap::from([(1, 2)]));
        assert!(book.due(hour).is_empty());
        assert_eq!(book.gone(), 2);
        book.doubt(3);
        assert_eq!(book.due(hour), [0, 1, 2]);
        book.renewed(&BTreeSet::from([0, 1]), &BTreeMap::from([(0, 1)]));
        assert_eq!((book.gone(), book.due(hour)), (1, vec![2]));
        book.strike(&[0, 7]);
        assert_eq!(book.gone(), 0);
    }
}
