//! The arena: hands out runs of virtually contiguous page frames and counts every one of them.
//!
//! Address space is cheap and memory is not, so a run keeps its place and its length for ever:
//! a run that comes back waits on the stack of its length, is never split and never joined.
//! Each length therefore uses at most as much address space as it had runs at its peak.
//!
//! ```text
//!            take                      put                 begin_release
//!   fresh ----------> used  <=======================> warm ---------------> (in flight)
//!   cold  ----------> used          take                                       |
//!     ^------------------------------------------------------------------------+ end_release
//! ```
//!
//! - A1: a frame is in exactly one of fresh, used, warm, in flight, cold.
//! - A2: memory is resident at most for frames that are used or warm (or in flight until
//!   released); `warm_pages` stays at or below [`WARM_BYTES`] once a release has run.
//! - A3: releasing to the system happens in [`ReleaseBatch::release`], which needs no lock;
//!   frames in flight cannot be taken.
//!
//! The warm runs are what z3fold calls stale pages: emptied, waiting for a release in batches.

use std::sync::Arc;

use super::memory::Frames;
use super::source::{Reservation, SourceError};
use crate::contract::PoolStats;
use crate::units::{FrameIndex, PageCount, PageSize};

/// Idle memory that a pool keeps at most for its next allocation, in bytes.
pub(crate) const WARM_BYTES: usize = 256 << 10;

/// Longest run in pages that an arena hands out.
pub(crate) const MAX_RUN_PAGES: u32 = 16;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Arena {
    range: Arc<dyn Reservation>,
    page_size: PageSize,
    frames_total: u32,
    frames_fresh: u32,
    cold: RunStacks,
    warm: RunStacks,
    /// Runs that the stacks have room for.
    stack_capacity: usize,
    warm_pages: u64,
    warm_pages_max: u64,
    in_flight_pages: u64,
    used_pages: u64,
    used_pages_peak: u64,
}

/// Stacks of runs by length: `[pages - 1]` holds first frames of runs of `pages`.
type RunStacks = [Vec<FrameIndex>; MAX_RUN_PAGES as usize];

impl Arena {
    /// Returns an arena over all of `range`.
    pub(crate) fn new(range: Arc<dyn Reservation>, page_size: PageSize) -> Self {
        let frames = range.len() / page_size.bytes();
        Self {
            range,
            page_size,
            // A frame index never reaches u32::MAX, which lists use for "none".
            frames_total: u32::try_from(frames).unwrap_or(u32::MAX).min(u32::MAX - 1),
            frames_fresh: 0,
            cold: RunStacks::default(),
            warm: RunStacks::default(),
            stack_capacity: 0,
            warm_pages: 0,
            warm_pages_max: (WARM_BYTES / page_size.bytes()) as u64,
            in_flight_pages: 0,
            used_pages: 0,
            used_pages_peak: 0,
        }
    }

    pub(crate) fn frames(&self) -> Frames {
        Frames::new(&*self.range)
    }

    pub(crate) fn page_size(&self) -> PageSize {
        self.page_size
    }

    pub(crate) fn used(&self) -> PageCount {
        PageCount(self.used_pages)
    }

    /// Bytes of used and warm pages and of the run stacks.
    #[inline]
    pub(crate) fn held_bytes(&self) -> u64 {
        PageCount(self.used_pages + self.warm_pages).bytes(self.page_size) + self.metadata_bytes()
    }

    /// Returns counters with the pages filled in.
    pub(crate) fn stats(&self) -> PoolStats {
        PoolStats {
            page_size: self.page_size,
            pages: self.used(),
            pages_peak: PageCount(self.used_pages_peak),
            idle_pages: self.warm(),
            ..PoolStats::default()
        }
    }

    pub(crate) fn warm(&self) -> PageCount {
        PageCount(self.warm_pages)
    }

    /// Frames ever handed out: every frame index in use is below it.
    pub(crate) fn frames_fresh(&self) -> u32 {
        self.frames_fresh
    }

    /// Bytes of the run stacks.
    #[inline]
    pub(crate) fn metadata_bytes(&self) -> u64 {
        (self.stack_capacity * size_of::<FrameIndex>()) as u64
    }

    /// Pushes a run, keeping count of what the stacks hold.
    fn push(stack: &mut Vec<FrameIndex>, first: FrameIndex, capacity: &mut usize) {
        let before = stack.capacity();
        stack.push(first);
        *capacity += stack.capacity() - before;
    }

    /// Hands out a run of `pages` frames; their contents are unspecified.
    ///
    /// # Errors
    /// When the source has no memory or the range is used up; nothing changes then.
    pub(crate) fn take(&mut self, pages: u32) -> Result<FrameIndex, SourceError> {
        let slot = pages as usize - 1;
        let first = if let Some(first) = self.warm[slot].pop() {
            self.warm_pages -= u64::from(pages);
            first
        } else if let Some(&first) = self.cold[slot].last() {
            self.commit(first, pages)?;
            self.cold[slot].pop();
            first
        } else {
            let first = FrameIndex(self.frames_fresh);
            if pages > self.frames_total - self.frames_fresh {
                return Err(SourceError::Memory { bytes: pages as usize * self.page_size.bytes() });
            }
            self.commit(first, pages)?;
            self.frames_fresh += pages;
            first
        };
        self.used_pages += u64::from(pages);
        self.used_pages_peak = self.used_pages_peak.max(self.used_pages);
        Ok(first)
    }

    fn commit(&self, first: FrameIndex, pages: u32) -> Result<(), SourceError> {
        self.range.commit(first.offset(self.page_size), pages as usize * self.page_size.bytes())
    }

    /// Takes back the run of `pages` frames that `take` returned as `first`.
    pub(crate) fn put(&mut self, first: FrameIndex, pages: u32) {
        debug_assert!(first.0 + pages <= self.frames_fresh);
        Self::push(&mut self.warm[pages as usize - 1], first, &mut self.stack_capacity);
        self.warm_pages += u64::from(pages);
        self.used_pages -= u64::from(pages);
    }

    /// Returns whether warm runs have piled up and [`Arena::begin_release`] is due.
    #[inline]
    pub(crate) fn release_due(&self) -> bool {
        self.warm_pages > self.warm_pages_max
    }

    /// Takes warm runs out until at most `keep_pages` are left; they are in flight until
    /// [`Arena::end_release`] gets them back.
    pub(crate) fn begin_release(&mut self, keep: PageCount) -> ReleaseBatch {
        let mut runs = Vec::new();
        for (slot, stack) in self.warm.iter_mut().enumerate() {
            let pages = slot as u32 + 1;
            while self.warm_pages > keep.0 {
                let Some(first) = stack.pop() else { break };
                self.warm_pages -= u64::from(pages);
                self.in_flight_pages += u64::from(pages);
                runs.push(Run { first, pages });
            }
        }
        runs.sort_unstable_by_key(|run| run.first);
        ReleaseBatch { range: Arc::clone(&self.range), page_size: self.page_size, runs }
    }

    /// Number of warm pages that a release due now leaves behind.
    pub(crate) fn warm_keep(&self) -> PageCount {
        PageCount(self.warm_pages_max / 2)
    }

    /// Takes back the runs of a batch that has been released.
    pub(crate) fn end_release(&mut self, batch: ReleaseBatch) {
        for run in batch.runs {
            self.in_flight_pages -= u64::from(run.pages);
            let stack = &mut self.cold[run.pages as usize - 1];
            Self::push(stack, run.first, &mut self.stack_capacity);
        }
    }

    /// Shrinks the run stacks to what they hold; called when a pool is compacted.
    pub(crate) fn trim(&mut self) {
        self.cold.iter_mut().chain(&mut self.warm).for_each(Vec::shrink_to_fit);
        self.stack_capacity = self.cold.iter().chain(&self.warm).map(Vec::capacity).sum();
    }

    /// Walks the run stacks and asserts A1 for them and the counts.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub(crate) fn check(&self) {
        let mut owner = vec![false; self.frames_fresh as usize];
        let mut idle = 0;
        for (slot, stack) in self.cold.iter().enumerate().chain(self.warm.iter().enumerate()) {
            for first in stack {
                for frame in first.0..=first.0 + slot as u32 {
                    assert!(!owner[frame as usize], "A1: frame {frame} is idle twice");
                    owner[frame as usize] = true;
                    idle += 1;
                }
            }
        }
        let frames = idle + self.used_pages + self.in_flight_pages;
        assert_eq!(frames, u64::from(self.frames_fresh), "A1: every frame counted");
    }
}

#[derive(Clone, Copy, Debug)]
struct Run {
    first: FrameIndex,
    pages: u32,
}

/// Runs on their way back to the system; see [`Arena::begin_release`].
#[derive(Debug)]
pub(crate) struct ReleaseBatch {
    range: Arc<dyn Reservation>,
    page_size: PageSize,
    runs: Vec<Run>,
}

impl ReleaseBatch {
    /// Returns the memory of all runs to the system, neighbours in one call. Needs no lock.
    pub(crate) fn release(&self) {
        for run in self.runs.chunk_by(|a, b| a.first.0 + a.pages == b.first.0) {
            let pages: u32 = run.iter().map(|run| run.pages).sum();
            let offset = run[0].first.offset(self.page_size);
            // SAFETY: the runs were committed when taken, and A3: nobody else can reach frames
            // in flight.
            unsafe { self.range.release(offset, pages as usize * self.page_size.bytes()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::{FailingPages, HeapPages, PageSource};
    use super::*;

    fn arena(pages: usize) -> Arena {
        let range = HeapPages.reserve(pages * 4096).unwrap();
        Arena::new(range, PageSize::KIB4)
    }

    #[test]
    fn runs_are_reused_by_length() {
        let mut arena = arena(64);
        let (a, b) = (arena.take(3).unwrap(), arena.take(2).unwrap());
        arena.put(a, 3);
        arena.put(b, 2);
        assert_eq!(arena.take(2).unwrap(), b);
        assert_eq!(arena.take(3).unwrap(), a);
        assert_eq!((arena.used(), arena.warm()), (PageCount(5), PageCount(0)));
        arena.check();
    }

    #[test]
    fn an_arena_that_is_used_up_says_so_and_goes_on() {
        let mut arena = arena(5);
        let run = arena.take(4).unwrap();
        assert_eq!(arena.take(2), Err(SourceError::Memory { bytes: 8192 }));
        arena.put(run, 4);
        assert!(arena.take(4).is_ok());
        arena.check();
    }

    #[test]
    fn a_failed_commit_leaves_the_counts_alone() {
        let source = FailingPages::new(Arc::new(HeapPages), 1);
        let mut arena = Arena::new(source.reserve(16 * 4096).unwrap(), PageSize::KIB4);
        let run = arena.take(2).unwrap();
        assert!(arena.take(2).is_err());
        assert_eq!(arena.used(), PageCount(2));
        arena.put(run, 2);
        let batch = arena.begin_release(PageCount::ZERO);
        batch.release();
        arena.end_release(batch);
        assert!(arena.take(2).is_err(), "a cold run needs a commit");
        arena.check();
    }

    #[test]
    fn releases_are_due_past_the_warm_limit_and_come_in_batches() {
        let mut arena = arena(256);
        let runs: Vec<_> = (0..200).map(|_| arena.take(1).unwrap()).collect();
        for run in runs {
            arena.put(run, 1);
            if arena.release_due() {
                let batch = arena.begin_release(arena.warm_keep());
                assert!(batch.runs.len() > 32);
                batch.release();
                arena.end_release(batch);
            }
        }
        assert!(arena.warm().0 <= 64);
        assert_eq!((arena.used(), arena.stats().pages_peak), (PageCount(0), PageCount(200)));
        arena.check();
    }
}
