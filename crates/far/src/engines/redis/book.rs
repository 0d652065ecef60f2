//! Which objects there are, on which homes, and when their leases were renewed (R5).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::link::lock;
use crate::place::COPIES_MAX;

/// Stands for no home.
const NOBODY: u16 = u16::MAX;

/// Where an object is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    homes: [u16; COPIES_MAX],
    /// When; none if it has to be looked at as soon as can be.
    renewed: Option<Instant>,
}

impl Entry {
    /// Returns the entry of an object that was just put.
    pub(super) fn new(homes: &[usize]) -> Self {
        let mut entry = Self { homes: [NOBODY; COPIES_MAX], renewed: Some(Instant::now()) };
        for (slot, home) in entry.homes.iter_mut().zip(homes) {
            *slot = u16::try_from(*home).expect("a cluster has fewer masters than slots");
        }
        entry
    }

    /// Returns the homes that acknowledged the object.
    pub(super) fn homes(&self) -> Vec<usize> {
        self.homes.iter().filter(|home| **home != NOBODY).map(|home| usize::from(*home)).collect()
    }
}

/// All objects that were put and not deleted.
#[derive(Debug, Default)]
pub(super) struct Book(Mutex<BTreeMap<u64, Entry>>);

impl Book {
    pub(super) fn enter(&self, number: u64, entry: Entry) {
        self.entries().insert(number, entry);
    }

    pub(super) fn find(&self, number: u64) -> Option<Entry> {
        self.entries().get(&number).copied()
    }

    pub(super) fn strike(&self, numbers: &[u64]) {
        let mut entries = self.entries();
        for number in numbers {
            entries.remove(number);
        }
    }

    /// Remembers that a copy of an object is gone.
    pub(super) fn doubt(&self, number: u64) {
        if let Some(entry) = self.entries().get_mut(&number) {
            entry.renewed = None;
        }
    }

    /// Returns the objects whose leases are older than `age`, or of which a copy is gone.
    pub(super) fn due(&self, age: Duration) -> Vec<u64> {
        let now = Instant::now();
        let entries = self.entries();
        let is_old = |entry: &Entry| entry.renewed.is_none_or(|then| now - then >= age);
        let old = entries.iter().filter(|(_, entry)| is_old(entry));
        old.map(|(number, _)| *number).collect()
    }

    /// Remembers that the leases of `numbers` are new.
    pub(super) fn renewed(&self, numbers: &[u64]) {
        let now = Instant::now();
        let mut entries = self.entries();
        for number in numbers {
            if let Some(entry) = entries.get_mut(number) {
                entry.renewed = Some(now);
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        lock(&self.0)
    }
}
