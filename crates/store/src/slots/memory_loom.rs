//! For models: slots and group words that loom watches.

use zfold_pool::source::SourceError;

use super::form::{Form, Place};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct Memory {
    form: Form,
    words: Vec<AtomicU64>,
    values: Vec<AtomicU64>,
    stamps: Vec<AtomicU32>,
    groups: Vec<AtomicU32>,
}

impl Memory {
    pub(super) fn new(slots: u64, form: Form) -> Result<Self, SourceError> {
        let word = |_| AtomicU64::new(0);
        let half = |_| AtomicU32::new(0);
        Ok(Self {
            form,
            words: (0..slots).map(word).collect(),
            values: (0..slots).map(word).collect(),
            stamps: (0..slots).filter(|_| form == Form::Narrow).map(half).collect(),
            groups: (0..=slots / form.group_slots()).map(half).collect(),
        })
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    pub(super) fn place(&self, index: u64) -> Place {
        self.form.place(index)
    }

    fn index(&self, Place { group, at }: Place) -> usize {
        (group * self.form.group_slots() + at) as usize
    }

    pub(super) fn word(&self, place: Place) -> &AtomicU64 {
        &self.words[self.index(place)]
    }

    pub(super) fn value(&self, place: Place) -> &AtomicU64 {
        &self.values[self.index(place)]
    }

    pub(super) fn stamp(&self, place: Place) -> &AtomicU32 {
        &self.stamps[self.index(place)]
    }

    pub(super) fn group(&self, group: u64) -> &AtomicU32 {
        &self.groups[group as usize]
    }

    /// As the system does it: the whole page becomes zeros, in no particular order; Release, as
    /// source/I4 says.
    pub(super) unsafe fn release(&self, group: u64) {
        self.clear(group, Ordering::Release);
    }

    pub(super) unsafe fn release_beside(&self, group: u64) {
        let first = (group * self.form.group_slots()) as usize;
        let values = &self.values[first..first + self.form.group_slots() as usize];
        values.iter().for_each(|value| value.store(0, Ordering::Release));
    }

    pub(super) fn clear(&self, group: u64, order: Ordering) {
        let first = (group * self.form.group_slots()) as usize;
        for index in first..first + self.form.group_slots() as usize {
            match self.form {
                Form::Wide => self.values[index].store(0, Ordering::Relaxed),
                Form::Narrow => self.stamps[index].store(0, Ordering::Relaxed),
            }
            self.words[index].store(0, order);
        }
    }
}
