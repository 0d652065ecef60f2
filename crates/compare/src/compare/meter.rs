//! The progress of a comparison.

use std::cell::Cell;

/// The progress of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The input, allocator and codec at work.
    pub what: &'a str,
    /// Operations done, of all combinations.
    pub done: u64,
    /// Operations to do in all.
    pub total: u64,
}

/// Told now and then how far a comparison has come.
pub type Progress<'a> = &'a dyn Fn(Step<'_>);

/// Counts operations over all combinations.
pub(super) struct Meter<'a> {
    pub(super) progress: Progress<'a>,
    pub(super) total: u64,
    pub(super) done: Cell<u64>,
}

/// The part of a [`Meter`] that counts for one combination.
pub(super) struct Lap<'a> {
    pub(super) meter: &'a Meter<'a>,
    pub(super) what: &'a str,
}

impl Lap<'_> {
    /// Counts one operation, the `index`th of a row; tells of it once in a while.
    pub(super) fn tick(&self, index: usize) {
        const ONCE_IN: usize = 256;
        if index % ONCE_IN == ONCE_IN - 1 {
            let Meter { progress, total, done } = self.meter;
            done.set(done.get() + ONCE_IN as u64);
            progress(Step { what: self.what, done: done.get().min(*total), total: *total });
        }
    }
}
