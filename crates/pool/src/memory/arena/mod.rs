//! The arena: hands out runs of virtually contiguous page frames and counts every one of them.
//!
//! Address space is cheap and memory is not, so a run keeps its place and its length for ever:
//! a run that comes back waits on the stack of its length, is never split and never joined.
//! Each length therefore uses at most as much address space as it had runs at its peak. A run's
//! pages are committed from its front as they are needed; only these count.
//!
//! ```text
//!            take                      put                 begin_release
//!   fresh ----------> used  <=======================> warm ---------------> (in flight)
//!   cold  ----------> used          take                                       |
//!     ^------------------------------------------------------------------------+ end_release
//! ```
//!
//! - A1: a frame is in exactly one of fresh, used, warm, in flight, cold.
//! - A2: memory is resident at most for committed frames that are used or warm (or in flight
//!   until released); `warm_pages` stays at or below 1/64 of the used pages, but at least
//!   [`WARM_BYTES_MIN`] and at most [`WARM_BYTES_MAX`] ([`BURST_BYTES_MAX`] during a compaction),
//!   once a release has run.
//! - A3: releasing to the system happens in [`ReleaseBatch::release`], which needs no lock;
//!   frames in flight cannot be taken.
//!
//! The warm runs are what z3fold calls stale pages: emptied, waiting for a release in batches.

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::frames::Frames;
use crate::memory::source::{Reservation, SourceError};
use crate::units::{FrameIndex, PageCount, PageSize};

/// Idle memory that an arena keeps at most for its next allocation while it is small, in bytes.
const WARM_BYTES_MIN: usize = 256 << 10;

/// The same, while it is large: this much goes back to the system in a few calls, each of which
/// disturbs every CPU that runs the process.
const WARM_BYTES_MAX: usize = 4 << 20;

/// The same, during a compaction: a release disturbs everything that runs beside it, so there are
/// few.
const BURST_BYTES_MAX: usize = 16 << 20;

/// Idle memory is at most this share of the memory in use, between the two.
const WARM_SHARE: u64 = 64;

/// Longest run in pages that an arena hands out.
pub(crate) const MAX_RUN_PAGES: u32 = 16;

/// Times the idle memory at which a release is due, at which one is overdue.
const OVERDUE_FACTOR: u64 = 4;

/// Pages in use by all arenas of a pool that has several (the kernel's `pages_nr`).
#[derive(Debug, Default)]
pub(crate) struct UsedPages {
    now: AtomicU64,
    peak: AtomicU64,
}

impl UsedPages {
    /// Pages in use now.
    pub(crate) fn now(&self) -> PageCount {
        PageCount(self.now.load(Ordering::Relaxed))
    }

    /// Most pages that were ever in use at a time.
    pub(crate) fn peak(&self) -> PageCount {
        PageCount(self.peak.load(Ordering::Relaxed))
    }

    // Relaxed: counters; they order nothing.
    fn add(&self, pages: u64) {
        let now = self.now.fetch_add(pages, Ordering::Relaxed) + pages;
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
    }

    fn sub(&self, pages: u64) {
        self.now.fetch_sub(pages, Ordering::Relaxed);
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Arena {
    range: Arc<dyn Reservation>,
    page_size: PageSize,
    frames_total: u32,
    frames_fresh: u32,
    /// Released runs by length: `[pages - 1]` holds first frames of runs of `pages`.
    cold: [Vec<FrameIndex>; MAX_RUN_PAGES as usize],
    /// Idle runs by length.
    warm: [Vec<Run>; MAX_RUN_PAGES as usize],
    /// Bytes that the stacks have allocated.
    stack_bytes: usize,
    /// Frames of used runs, committed or not.
    used_frames: u64,
    warm_pages: u64,
    warm_pages_min: u64,
    warm_pages_max: u64,
    /// Compactions in progress, which free so much that few large releases are better than many.
    bursts: u32,
    in_flight_frames: u64,
    used_pages: u64,
    used_pages_peak: u64,
    /// Where the pool's other arenas count their used pages, too.
    pool_used: Option<Arc<UsedPages>>,
}

/// A run of frames of which the first `committed` are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: FrameIndex,
    pub(crate) committed: u32,
}

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
            cold: Default::default(),
            warm: Default::default(),
            stack_bytes: 0,
            used_frames: 0,
            warm_pages: 0,
            warm_pages_min: (WARM_BYTES_MIN / page_size.bytes()) as u64,
            warm_pages_max: (WARM_BYTES_MAX / page_size.bytes()) as u64,
            bursts: 0,
            in_flight_frames: 0,
            used_pages: 0,
            used_pages_peak: 0,
            pool_used: None,
        }
    }

    /// Counts used pages in `used`, too.
    pub(crate) fn counted_in(self, used: Arc<UsedPages>) -> Self {
        Self { pool_used: Some(used), ..self }
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

    /// Most pages that were ever in use at a time.
    pub(crate) fn used_peak(&self) -> PageCount {
        PageCount(self.used_pages_peak)
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
        self.stack_bytes as u64
    }

    /// Pushes a run, keeping count of the bytes that the stacks have allocated.
    fn push<T>(stack: &mut Vec<T>, run: T, bytes: &mut usize) {
        let before = stack.capacity();
        stack.push(run);
        *bytes += (stack.capacity() - before) * size_of::<T>();
    }

    /// Hands out a run of `pages` frames, with as many of them committed as happen to be. The
    /// contents are unspecified.
    ///
    /// # Errors
    /// When the range is used up; nothing changes then.
    pub(crate) fn take(&mut self, pages: u32) -> Result<Run, SourceError> {
        let Some(run) = self.warm[pages as usize - 1].pop() else { return self.take_cold(pages) };
        self.warm_pages -= u64::from(run.committed);
        self.count_used(run.committed);
        self.used_frames += u64::from(pages);
        Ok(run)
    }

    /// Hands out a run of `pages` frames of which none is committed.
    ///
    /// # Errors
    /// When the range is used up but for warm runs; nothing changes then.
    pub(crate) fn take_cold(&mut self, pages: u32) -> Result<Run, SourceError> {
        let run = if let Some(first) = self.cold[pages as usize - 1].pop() {
            Run { first, committed: 0 }
        } else if pages <= self.frames_total - self.frames_fresh {
            self.frames_fresh += pages;
            Run { first: FrameIndex(self.frames_fresh - pages), committed: 0 }
        } else {
            return Err(SourceError::Memory { bytes: pages as usize * self.page_size.bytes() });
        };
        self.used_frames += u64::from(pages);
        Ok(run)
    }

    /// Hands out a single committed page.
    ///
    /// # Errors
    /// When the source has no memory or the range is used up; nothing changes then.
    pub(crate) fn take_page(&mut self) -> Result<FrameIndex, SourceError> {
        let mut run = self.take(1)?;
        if let Err(error) = self.commit(&mut run, 1) {
            self.put(run, 1);
            return Err(error);
        }
        Ok(run.first)
    }

    /// Commits a used run's pages up to `pages` of them.
    ///
    /// # Errors
    /// When the source has no memory; nothing changes then.
    pub(crate) fn commit(&mut self, run: &mut Run, pages: u32) -> Result<(), SourceError> {
        let Some(more @ 1..) = pages.checked_sub(run.committed) else { return Ok(()) };
        let from = FrameIndex(run.first.0 + run.committed).offset(self.page_size);
        self.range.commit(from, more as usize * self.page_size.bytes())?;
        run.committed = pages;
        self.count_used(more);
        Ok(())
    }

    /// Gives up the pages of a used run but the first `pages`, which return to the system at once:
    /// only for a few of them, where no lock matters that is held meanwhile.
    pub(crate) fn uncommit(&mut self, run: &mut Run, pages: u32) {
        let Some(less @ 1..) = run.committed.checked_sub(pages) else { return };
        let from = FrameIndex(run.first.0 + pages).offset(self.page_size);
        // SAFETY: whole pages that were committed; the run belongs to the caller, which gives it
        // up, as with `put`.
        unsafe { self.range.release(from, less as usize * self.page_size.bytes()) };
        run.committed = pages;
        self.count_unused(less);
    }

    fn count_unused(&mut self, pages: u32) {
        self.used_pages -= u64::from(pages);
        if let Some(used) = &self.pool_used {
            used.sub(pages.into());
        }
    }

    fn count_used(&mut self, pages: u32) {
        self.used_pages += u64::from(pages);
        self.used_pages_peak = self.used_pages_peak.max(self.used_pages);
        if let Some(used) = &self.pool_used {
            used.add(pages.into());
        }
    }

    /// Takes back a run of `pages` frames.
    pub(crate) fn put(&mut self, run: Run, pages: u32) {
        debug_assert!(run.first.0 + pages <= self.frames_fresh && run.committed <= pages);
        self.used_frames -= u64::from(pages);
        self.count_unused(run.committed);
        self.warm_pages += u64::from(run.committed);
        let slot = pages as usize - 1;
        if run.committed > 0 {
            Self::push(&mut self.warm[slot], run, &mut self.stack_bytes);
        } else {
            Self::push(&mut self.cold[slot], run.first, &mut self.stack_bytes);
        }
    }

    /// Takes back a page of `take_page`.
    pub(crate) fn put_page(&mut self, page: FrameIndex) {
        self.put(Run { first: page, committed: 1 }, 1);
    }

    /// Returns how many warm pages may stay.
    #[inline]
    fn warm_limit(&self) -> u64 {
        match self.bursts {
            0 => (self.used_pages / WARM_SHARE).clamp(self.warm_pages_min, self.warm_pages_max),
            _ => self.burst_pages_max(),
        }
    }

    fn burst_pages_max(&self) -> u64 {
        (BURST_BYTES_MAX / self.page_size.bytes()) as u64
    }

    /// Returns whether it is time for those at work on a compaction to release; all others leave
    /// it to them until there is twice as much.
    pub(crate) fn burst_due(&self) -> bool {
        self.bursts > 0 && self.warm_pages > self.burst_pages_max() / 2
    }

    /// Number of warm pages that such a release leaves: threads that allocate meanwhile find their
    /// zspages filled by the compaction, and would have to wait for fresh pages.
    pub(crate) fn burst_keep(&self) -> PageCount {
        PageCount(self.burst_pages_max() / 8)
    }

    /// Lets the warm pages grow to [`BURST_BYTES_MAX`] until [`Arena::end_burst`].
    pub(crate) fn begin_burst(&mut self) {
        self.bursts += 1;
    }

    /// Ends what [`Arena::begin_burst`] began.
    pub(crate) fn end_burst(&mut self) {
        self.bursts -= 1;
    }

    /// Returns whether warm runs have piled up and [`Arena::begin_release`] is due.
    #[inline]
    pub(crate) fn release_due(&self) -> bool {
        self.warm_pages > self.warm_limit()
    }

    /// Returns whether so many have piled up that the releasing thread falls behind.
    pub(crate) fn release_overdue(&self) -> bool {
        self.warm_pages > OVERDUE_FACTOR * self.warm_limit()
    }

    /// Takes warm runs out until at most `keep_pages` are left; they are in flight until
    /// [`Arena::end_release`] gets them back.
    pub(crate) fn begin_release(&mut self, keep: PageCount) -> ReleaseBatch {
        let mut runs = Vec::new();
        for (slot, stack) in self.warm.iter_mut().enumerate() {
            while self.warm_pages > keep.0 {
                let Some(run) = stack.pop() else { break };
                self.warm_pages -= u64::from(run.committed);
                self.in_flight_frames += slot as u64 + 1;
                runs.push((run, slot));
            }
        }
        runs.sort_unstable_by_key(|(run, _)| run.first);
        ReleaseBatch { range: Arc::clone(&self.range), page_size: self.page_size, runs }
    }

    /// Number of warm pages that a release due now leaves behind.
    pub(crate) fn warm_keep(&self) -> PageCount {
        PageCount(self.warm_limit() / 2)
    }

    /// Takes back the runs of a batch that has been released.
    pub(crate) fn end_release(&mut self, batch: ReleaseBatch) {
        for (run, slot) in batch.runs {
            self.in_flight_frames -= slot as u64 + 1;
            Self::push(&mut self.cold[slot], run.first, &mut self.stack_bytes);
        }
    }

    /// Shrinks the run stacks to what they hold; called when a pool is compacted.
    pub(crate) fn trim(&mut self) {
        self.cold.iter_mut().for_each(Vec::shrink_to_fit);
        self.warm.iter_mut().for_each(Vec::shrink_to_fit);
        let cold: usize = self.cold.iter().map(Vec::capacity).sum();
        let warm: usize = self.warm.iter().map(Vec::capacity).sum();
        self.stack_bytes = cold * size_of::<FrameIndex>() + warm * size_of::<Run>();
    }

    /// Walks the run stacks and asserts A1 for them and the counts.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub(crate) fn check(&self) {
        let mut owner = vec![false; self.frames_fresh as usize];
        let mut idle = 0;
        for slot in 0..MAX_RUN_PAGES as usize {
            let warm = self.warm[slot].iter().map(|run| run.first);
            for first in self.cold[slot].iter().copied().chain(warm) {
                for frame in first.0..=first.0 + slot as u32 {
                    assert!(!owner[frame as usize], "A1: frame {frame} is idle twice");
                    owner[frame as usize] = true;
                    idle += 1;
                }
            }
        }
        let frames = idle + self.used_frames + self.in_flight_frames;
        assert_eq!(frames, u64::from(self.frames_fresh), "A1: every frame counted");
    }
}

/// Runs on their way back to the system; see [`Arena::begin_release`].
#[derive(Debug)]
pub(crate) struct ReleaseBatch {
    range: Arc<dyn Reservation>,
    page_size: PageSize,
    /// Each with the stack it belongs to.
    runs: Vec<(Run, usize)>,
}

impl ReleaseBatch {
    /// Returns the memory of all runs to the system, in as few calls as it takes. Needs no lock.
    pub(crate) fn release(&self) {
        let joined =
            |(a, _): &(Run, usize), (b, _): &(Run, usize)| a.first.0 + a.committed == b.first.0;
        let range = |runs: &[(Run, usize)]| {
            let pages: u32 = runs.iter().map(|(run, _)| run.committed).sum();
            (runs[0].0.first.offset(self.page_size), pages as usize * self.page_size.bytes())
        };
        let ranges: Vec<_> = self.runs.chunk_by(joined).map(range).collect();
        // SAFETY: these pages were committed, and A3: no other thread can reach frames in flight.
        unsafe { self.range.release_all(&ranges) };
    }
}
