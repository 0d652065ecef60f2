//! What the limit counts, in pages: open memory in full, of closed ranges the pages that are
//! there, and the second-chance buffer; less what is counted twice because a fork shares it.
//!
//! ```text
//!   0 ......... low ......... high ......... limit
//!                ^              ^              ^
//!   the evictor stops     it starts;      faults wait for it
//!                         memory is opened
//!                         up to here
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::ranges::PAGE;

/// Pages that a fault may take above the limit while nothing can be freed.
const BEYOND: usize = 64;

/// The limit and what is charged. Relaxed throughout: numbers of which each is right by itself;
/// a fault may overshoot by what faults at the same moment take.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    high: usize,
    low: usize,
    gross: AtomicUsize,
    /// Of these, pages that are counted more than once.
    credit: AtomicUsize,
    peak: AtomicUsize,
    /// Nothing could be freed when the evictor looked last: do not wait for it.
    exhausted: AtomicBool,
    over_limit_total: AtomicU64,
}

impl Budget {
    /// Returns a budget of so many bytes, of which nothing is used.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        let limit = usize::try_from(limit_bytes / PAGE as u64).unwrap_or(usize::MAX >> 1);
        let margin = (limit / 32).clamp(16.min(limit / 4), 2048);
        Self {
            limit,
            high: limit - margin,
            low: limit - 2 * margin,
            gross: AtomicUsize::new(0),
            credit: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            exhausted: AtomicBool::new(false),
            over_limit_total: AtomicU64::new(0),
        }
    }

    /// Returns the limit.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns what is charged, shared pages counted as often as they are mapped.
    pub(crate) fn gross(&self) -> usize {
        self.gross.load(Ordering::Relaxed)
    }

    /// Returns what is charged.
    pub(crate) fn charge(&self) -> usize {
        self.gross().saturating_sub(self.credit.load(Ordering::Relaxed))
    }

    /// Returns the most that was charged.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Returns how often memory was given although it was above the limit.
    pub(crate) fn over_limit_total(&self) -> u64 {
        self.over_limit_total.load(Ordering::Relaxed)
    }

    /// Notes that what was charged with `from` pages is `to` pages now.
    pub(crate) fn change(&self, from: usize, to: usize) {
        if from == to {
            return;
        }
        self.gross.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
        if to > from {
            self.note_peak();
        }
    }

    /// Notes that of what is charged, pages are counted more than once: `to` instead of `from`.
    pub(crate) fn change_credit(&self, from: usize, to: usize) {
        self.credit.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
        self.note_peak();
    }

    fn note_peak(&self) {
        self.peak.fetch_max(self.charge(), Ordering::Relaxed);
    }

    /// Returns whether this many pages can be opened.
    pub(crate) fn fits(&self, pages: usize) -> bool {
        self.charge().saturating_add(pages) <= self.high
    }

    /// Returns how many pages a fault may take; 0: it waits for the evictor.
    pub(crate) fn room(&self) -> usize {
        let room = self.limit.saturating_sub(self.charge());
        if room == 0 && self.exhausted.load(Ordering::Relaxed) {
            self.count_over_limit();
            return BEYOND;
        }
        room
    }

    /// Counts memory that was given above the limit.
    pub(crate) fn count_over_limit(&self) {
        self.over_limit_total.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether the evictor should begin.
    pub(crate) fn is_high(&self) -> bool {
        self.charge() > self.high
    }

    /// Returns how many pages the evictor should free, once it has begun.
    pub(crate) fn excess(&self) -> usize {
        self.charge().saturating_sub(self.low)
    }

    /// Returns whether sharing matters: whether less would be charged than is counted.
    pub(crate) fn is_high_without_credit(&self) -> bool {
        self.gross() > self.high
    }

    /// Notes whether the evictor could free anything.
    pub(crate) fn set_exhausted(&self, exhausted: bool) {
        self.exhausted.store(exhausted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_ends_at_the_limit_and_opening_before_it() {
        let budget = Budget::new(1 << 20);
        assert_eq!((budget.limit(), budget.room()), (256, 256));
        assert!(budget.fits(240) && !budget.fits(241));
        budget.change(0, 250);
        assert_eq!((budget.charge(), budget.room()), (250, 6));
        assert!(budget.is_high() && budget.excess() == 26);
        budget.change(250, 300);
        assert_eq!(budget.room(), 0);
        budget.set_exhausted(true);
        assert_eq!(budget.room(), BEYOND, "nothing to wait for");
        assert_eq!(budget.over_limit_total(), 1);
        budget.change_credit(0, 100);
        assert_eq!((budget.charge(), budget.gross(), budget.peak()), (200, 300, 300));
        assert!(!budget.is_high() && budget.is_high_without_credit());
    }
}
