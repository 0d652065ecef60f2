//! Recompression: pages that lie still get a stronger codec.

use super::{Candidate, Processed, Scan, Selection};
use crate::entry::{Entry, Flag, Kind, State};
use crate::error::ProcessError;
use crate::store::Store;

/// Bytes by which a page must become shorter to be worth a new object: about the distance of two
/// size classes.
const GAIN_MIN: usize = 16;

/// Lengths are told apart by so many bytes when the longest pages are to go first.
const BUCKET: usize = 64;

/// What to recompress, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recompress {
    /// Which pages.
    pub selection: Selection,
    /// Only pages of which at least so many bytes are kept.
    pub threshold_bytes: Option<usize>,
    /// At most so many pages, the longest first.
    pub max_pages: Option<u64>,
    /// Which codec of the list, 1 for the first one of
    /// [`StoreOptions::recompression`](crate::StoreOptions::recompression).
    pub priority: u8,
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
        let max = self.contexts.choices().len() as u8 - 1;
        if !(1..=max).contains(&how.priority) {
            return Err(ProcessError::Priority { priority: how.priority, max });
        }
        let work = &mut *self.begin_processing();
        let wanted = |state: State| {
            state.len() >= how.threshold_bytes.unwrap_or(0)
                && state.priority() < how.priority
                && !state.has(Flag::Incompressible)
        };
        let len_min = self.longest(how, work.hand, wanted);
        let mut scan = Scan::new(&how.selection, self.slots(), work.hand);
        let mut done = Processed::default();
        let mut left = how.max_pages.unwrap_or(u64::MAX);
        while left > 0
            && let Some(key) = scan.next(self)
        {
            let state = self.slots.state_now(key);
            if !wanted(state) || state.len() < len_min {
                continue;
            }
            work.buffer.clear();
            let Some(candidate) = self.choose(key, &how.selection, &mut work.buffer) else {
                continue;
            };
            if self.is_shared(candidate.entry.state, &work.buffer) {
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
        Ok(done)
    }

    /// Returns the length from which on there are at most `max_pages` pages, about, so that the
    /// longest are taken.
    fn longest(&self, how: &Recompress, hand: u64, wanted: impl Fn(State) -> bool) -> usize {
        let Some(max_pages) = how.max_pages else { return 0 };
        // Looking must not take second chances away, nor go round twice.
        let selection = match &how.selection {
            Selection::Lru => &Selection::All,
            other => other,
        };
        let mut buckets = vec![0_u64; self.page_len / BUCKET + 1];
        let mut scan = Scan::new(selection, self.slots(), hand);
        while let Some(key) = scan.next(self) {
            let state = self.slots.state_now(key);
            if state.in_pool() && wanted(state) {
                buckets[state.len() / BUCKET] += 1;
            }
        }
        let mut pages = 0;
        for (bucket, count) in buckets.iter().enumerate().rev() {
            pages += count;
            if pages >= max_pages {
                return bucket * BUCKET;
            }
        }
        0
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
        let mut page = self.contexts.take_page();
        let mut made = None;
        if self.decode(key, old, kept, &mut page).is_ok() {
            let header = self.header;
            let len_max = old.len().saturating_sub(GAIN_MIN);
            let len_max = len_max.min(self.pool.huge_len().saturating_sub(header + 1));
            let context = &mut *self.contexts.mine();
            made = self.contexts.compress(context, priority, &page, header, len_max);
            made = made.inspect(|_| {
                context.object[..header].copy_from_slice(&key.to_le_bytes()[..header]);
            });
            made = made.filter(|&len| len > 0);
        }
        self.contexts.put_page(page);
        let Some(len) = made else {
            let hopeless = priority == max;
            self.unmark(candidate, |state| state.set(Flag::Incompressible, hopeless));
            return Ok(None);
        };
        let inserted = self.pool.insert(&self.contexts.mine().object[..self.header + len]);
        let handle = inserted.map_err(|error| {
            self.unmark(candidate, |state| state);
            ProcessError::Pool(error)
        })?;
        let state = State::new(Kind::Compressed, len, priority);
        let form = Entry { state, value: handle.to_bits().get() };
        let Some(slot) = self.still_marked(candidate) else {
            self.release(form);
            return Ok(None);
        };
        let share = self.share();
        self.swap_form(slot, form, share);
        share.recompressed_total.add(1);
        share.recompressed_saved_bytes_total.add((old.len() - len) as u64);
        Ok(Some(len))
    }
}
