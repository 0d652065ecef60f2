//! Recompression: pages that lie still get a stronger codec.

use std::sync::atomic::Ordering;

use zfold_pool::builders;

use super::choose::{Candidate, Scan};
use super::rounds::Processed;
use super::selection::Selection;
use crate::entry::{Flag, State};
use crate::error::ProcessError;
use crate::store::Store;

/// Which pages to recompress, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recompress {
    /// Which pages.
    pub selection: Selection,
    /// Only pages of at least this many stored bytes.
    pub threshold_bytes: Option<usize>,
    /// At most this many pages.
    pub max_pages: Option<u64>,
    /// Which codec of the list, 1 for the first one of
    /// [`StoreOptions::recompression`](crate::StoreOptions::recompression).
    pub priority: u8,
}

impl Recompress {
    /// Returns the recompression of all pages of `selection` with the codec of `priority`.
    #[must_use]
    pub fn new(selection: Selection, priority: u8) -> Self {
        Self { selection, threshold_bytes: None, max_pages: None, priority }
    }

    builders! {
        with_threshold_bytes => threshold_bytes: impl Into<Option<usize>>,
        with_max_pages => max_pages: impl Into<Option<u64>>,
    }
}

impl Store {
    /// Compresses pages again with another codec, and keeps what is shorter. Pages on which the
    /// last codec of the list fails are marked incompressible and not tried again.
    ///
    /// Pages that share their object with equal ones are left alone.
    ///
    /// # Errors
    /// [`ProcessError`]; pages done before stay done.
    ///
    /// # Cost
    /// A decompression and a compression for each page tried.
    pub fn recompress(&self, how: &Recompress) -> Result<Processed, ProcessError> {
        let max = self.pages.contexts.choices().len() as u8 - 1;
        if !(1..=max).contains(&how.priority) {
            return Err(ProcessError::Priority { priority: how.priority, max });
        }
        let work = &mut *self.begin_processing();
        let wanted = |state: State| {
            state.len() >= how.threshold_bytes.unwrap_or(0)
                && state.priority() < how.priority
                && !state.has(Flag::Incompressible)
        };
        let mut scan = Scan::new(&how.selection, self.slots(), work.hand);
        let mut done = Processed::default();
        let mut left = how.max_pages.unwrap_or(u64::MAX);
        while left > 0
            && let Some(key) = scan.next(self)
        {
            let state = self.slots.state_now(key);
            if !wanted(state) {
                continue;
            }
            work.buffer.clear();
            let Some(candidate) = self.choose(key, &how.selection, &mut work.buffer) else {
                continue;
            };
            if self.pages.is_shared(candidate.entry.state, &work.buffer) {
                self.unmark(&candidate, |state| state);
                continue;
            }
            left -= 1;
            if let Some(len) = self.recompress_one(&candidate, &work.buffer, how.priority, max)? {
                done.pages += 1;
                done.bytes_before += candidate.entry.state.len() as u64;
                done.bytes_after += len as u64;
            }
        }
        // Relaxed: a gauge.
        self.processing_bytes.store(work.bytes(), Ordering::Relaxed);
        Ok(done)
    }

    /// Gives a chosen page another form, if that is shorter and the page still lies still; returns
    /// its length.
    fn recompress_one(
        &self,
        candidate: &Candidate,
        kept: &[u8],
        priority: u8,
        max: u8,
    ) -> Result<Option<usize>, ProcessError> {
        let (key, old) = (candidate.key, candidate.entry.state);
        let form = match self.pages.place_again(key, old, kept, priority) {
            Ok(Some(form)) => form,
            Ok(None) => {
                let hopeless = priority == max;
                self.unmark(candidate, |state| state.set(Flag::Incompressible, hopeless));
                return Ok(None);
            }
            Err(error) => {
                self.unmark(candidate, |state| state);
                return Err(ProcessError::Pool(error));
            }
        };
        let Some(slot) = self.still_marked(candidate) else {
            self.pages.release(form);
            return Ok(None);
        };
        let len = form.state.len();
        let share = self.share();
        self.swap_form(slot, form, share);
        share.recompressed_total.add(1);
        share.recompressed_saved_bytes_total.add((old.len() - len) as u64);
        Ok(Some(len))
    }
}
