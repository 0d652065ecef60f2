//! What counts against the limit, in pages: open memory as last seen, present pages of closed
//! ranges, and the swap cache; less pages that are counted twice because a fork shares them. In
//! addition, the memory of the store's copies of such pages, which exist only for speed.
//!
//! ```text
//!   0 ...... attach ...... near ...... low ...... high ...... limit
//!              ^             ^          ^           ^            ^
//!       helpers are     memory is     the evictor  it starts   faults wait for it
//!       made            closed        stops
//! ```
//!
//! Open memory is not charged when it is touched, but when the watcher looks. So it is closed far
//! enough below the limit to leave room for what a program touches between two looks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use zfold_figures::Peak;
use zfold_uffd::curve::{Curve, Distances};
use zfold_uffd::page::{page_len, pages_in};
use zfold_uffd::policy::{Clock, Era};

use crate::figures::LIMIT_MIN;
use crate::link::Growth;

/// Bytes that a fault may take above the limit while nothing can be freed.
const BEYOND: usize = 256 << 10;

/// The share of the limit that a fault may bring along.
const AHEAD_SHARE: usize = 64;

/// Of the pages that forks share, the part for which there must be room if the memory that the
/// store takes has the same limit: the kernel kills when there is none.
const COPIED_SOON: usize = 4;

/// Bytes that a program touches until the watcher has looked and the tracer has stopped a thread,
/// on a busy machine: in two to six milliseconds if the scheduler prefers these two, and in the
/// longer time that it takes otherwise.
const SMALL: [usize; 2] = [16 << 20, 64 << 20];

/// Bytes of a limit beside which what zfold itself takes is much.
const TIGHT: usize = 128 << 20;

/// A mapping of at least this share of the limit is checked when it is made; never one with fewer
/// bytes than the first of [`GROWTH`], and always one with as many as the second; in a group with a
/// limit, a writable one of that many.
const GROWTH_SHARE: usize = 32;
const GROWTH: [usize; 2] = [64 << 10, 2 << 20];
const GROWTH_TOGETHER: u32 = 16 << 10;

/// The limit and the charges. Relaxed throughout: each number is used on its own; a fault may
/// exceed the limit by what faults at the same moment take.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The limit of what is resident.
    limit: AtomicUsize,
    /// The limit of that and of what the store holds, together. The lower of the two is the limit
    /// from which the other marks follow.
    together: AtomicUsize,
    /// Pages of memory that the store holds.
    held: AtomicUsize,
    /// Pages that a program touches while it is being asked to stop.
    small: usize,
    /// By how much all these marks are raised at present, because memory that cannot leave would
    /// leave too little for the rest.
    raised: AtomicUsize,
    gross: AtomicUsize,
    /// Of the charged pages, those that are counted more than once.
    credit: AtomicUsize,
    /// Pages that programs will share that are about to fork.
    forking: AtomicUsize,
    /// Pages that are charged and of which the store has a copy.
    copies: AtomicUsize,
    /// Average bytes of a copy.
    copy_bytes: AtomicUsize,
    peak: Peak,
    /// Spaces that share pages since a fork.
    sharers: Arc<()>,
    /// The evictor could free nothing last time: do not wait for it.
    exhausted: AtomicBool,
    /// Counts what leaves.
    clock: Clock,
    /// After how long it comes back.
    distances: Distances,
}

impl Budget {
    /// Returns an unused budget of `limit_bytes`; `urgent`: the scheduler prefers the threads that
    /// enforce it.
    pub(crate) fn new(limit_bytes: u64, urgent: bool) -> Self {
        Self {
            limit: AtomicUsize::new(pages(limit_bytes)),
            together: AtomicUsize::new(usize::MAX),
            held: AtomicUsize::new(0),
            small: pages_in(SMALL[usize::from(!urgent)]),
            raised: AtomicUsize::new(0),
            gross: AtomicUsize::new(0),
            credit: AtomicUsize::new(0),
            forking: AtomicUsize::new(0),
            copies: AtomicUsize::new(0),
            copy_bytes: AtomicUsize::new(page_len()),
            peak: Peak::default(),
            sharers: Arc::default(),
            exhausted: AtomicBool::new(false),
            clock: Clock::default(),
            distances: Distances::default(),
        }
    }

    /// Returns the limit.
    pub(crate) fn limit(&self) -> usize {
        self.limit_alone().min(self.beside_store())
    }

    /// Returns what the limit of both leaves for what is resident: the least limit at least.
    fn beside_store(&self) -> usize {
        let together = self.together.load(Ordering::Relaxed);
        // Copies are charged, and the store holds them.
        let held = self.held.load(Ordering::Relaxed).saturating_sub(self.copies());
        together.saturating_sub(held).max(together.min(pages_in(LIMIT_MIN as usize)))
    }

    /// Returns the limit of what is resident, whatever the other one is.
    pub(crate) fn limit_alone(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit of what is resident. Threads that act on it look again soon, or the caller
    /// wakes them.
    pub(crate) fn set_limit(&self, limit_bytes: u64) {
        self.limit.store(pages(limit_bytes), Ordering::Relaxed);
    }

    /// Changes the limit of what is resident and what the store holds: what may be resident falls
    /// by what the store takes, as it takes it.
    pub(crate) fn set_limit_together(&self, limit_bytes: u64) {
        self.together.store(pages(limit_bytes), Ordering::Relaxed);
    }

    /// Returns whether it is the limit of both that counts.
    pub(crate) fn is_together(&self) -> bool {
        self.beside_store() <= self.limit_alone()
    }

    /// Records how much the store holds.
    pub(crate) fn set_held(&self, bytes: u64) {
        self.held.store(pages(bytes), Ordering::Relaxed);
    }

    /// Returns how much is resident, without copies.
    pub(crate) fn resident(&self) -> usize {
        self.gross().saturating_sub(self.credit.load(Ordering::Relaxed))
    }

    /// Returns how many pages forks may copy before anybody looks: writes to them wait for nothing.
    fn copied_soon(&self) -> usize {
        if !self.is_together() {
            return 0;
        }
        let (credit, forking) = (&self.credit, &self.forking);
        (credit.load(Ordering::Relaxed) + forking.load(Ordering::Relaxed)) / COPIED_SOON
    }

    /// Changes the number of pages that programs are about to share: `to` instead of `from`.
    pub(crate) fn change_forking(&self, from: usize, to: usize) {
        self.forking.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
    }

    fn attach(&self) -> usize {
        let limit = self.limit();
        limit.saturating_sub((limit * 2 / 5).clamp(self.small, pages_in(96 << 20)))
    }

    fn near(&self) -> usize {
        let limit = self.limit();
        limit.saturating_sub((limit / 4).clamp(pages_in(1 << 20), pages_in(32 << 20)))
    }

    fn high(&self) -> usize {
        let limit = self.limit();
        limit - margin(limit)
    }

    fn low(&self) -> usize {
        let limit = self.limit();
        limit - 2 * margin(limit)
    }

    /// Returns the charge, with shared pages counted as often as they are mapped.
    pub(crate) fn gross(&self) -> usize {
        self.gross.load(Ordering::Relaxed)
    }

    /// Returns the charge.
    pub(crate) fn charge(&self) -> usize {
        self.resident().saturating_add(self.copies()).saturating_add(self.copied_soon())
    }

    /// Returns how many charged pages have a copy in the store.
    pub(crate) fn copied(&self) -> usize {
        self.copies.load(Ordering::Relaxed)
    }

    /// Returns how many pages of memory their copies take.
    pub(crate) fn copies(&self) -> usize {
        (self.copied() * self.copy_bytes.load(Ordering::Relaxed)).div_ceil(page_len())
    }

    /// Changes the number of pages with copies: `to` instead of `from`.
    pub(crate) fn change_copies(&self, from: usize, to: usize) {
        if from == to {
            return;
        }
        self.copies.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
        if to > from {
            self.note_peak();
        }
    }

    /// Sets the average bytes of a page in the store.
    pub(crate) fn set_copy_bytes(&self, bytes: usize) {
        self.copy_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Records that so many pages leave.
    pub(crate) fn left(&self, pages: usize) {
        self.distances.left(pages, self.now());
        self.clock.advance(pages, self.limit());
    }

    /// Records that pages came back that had been away since these eras.
    pub(crate) fn returned(&self, since: &[Era]) {
        self.distances.returned(since, self.now(), self.limit());
    }

    /// Returns what other limits would have done.
    pub(crate) fn curve(&self) -> Curve {
        self.distances.curve()
    }

    /// Returns the current era.
    pub(crate) fn now(&self) -> Era {
        self.clock.now()
    }

    /// Returns the most that was charged.
    pub(crate) fn peak(&self) -> usize {
        self.peak.get() as usize
    }

    /// Changes a charge from `from` pages to `to` pages.
    pub(crate) fn change(&self, from: usize, to: usize) {
        if from == to {
            return;
        }
        self.gross.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
        if to > from {
            self.note_peak();
        }
    }

    /// Changes the number of charged pages that are counted more than once: `to` instead of `from`.
    pub(crate) fn change_credit(&self, from: usize, to: usize) {
        self.credit.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
        self.note_peak();
    }

    /// Counts one more space that shares pages since a fork, as long as what it returns is kept.
    pub(crate) fn sharer(&self) -> Arc<()> {
        Arc::clone(&self.sharers)
    }

    /// Returns how many there are.
    pub(crate) fn sharers(&self) -> usize {
        Arc::strong_count(&self.sharers) - 1
    }

    fn note_peak(&self) {
        self.peak.raise(self.charge() as u64);
    }

    /// Returns whether this many pages can be opened.
    pub(crate) fn fits(&self, pages: usize) -> bool {
        self.charge().saturating_add(pages) <= self.near()
    }

    /// Returns whether memory should be closed.
    pub(crate) fn is_near(&self) -> bool {
        self.charge() > self.near()
    }

    /// Returns whether memory may have to be closed soon.
    pub(crate) fn is_growing(&self) -> bool {
        self.charge() > self.attach()
    }

    /// Returns whether a program could exceed the limit while it is being asked to stop.
    pub(crate) fn is_small(&self) -> bool {
        self.limit() <= self.small
    }

    /// Returns whether a page more or less of what zfold itself takes matters to the program:
    /// under a small limit, and where compressed pages take their room from the same limit.
    pub(crate) fn is_tight(&self) -> bool {
        self.is_together() || self.limit() <= pages_in(TIGHT)
    }

    /// Returns the growth that is checked when it happens; at a group's limit the kernel kills.
    pub(crate) fn growth(&self) -> Growth {
        let bytes = (self.limit() / GROWTH_SHARE).saturating_mul(page_len());
        let mapping_bytes = bytes.clamp(GROWTH[0], GROWTH[1]) as u32;
        let writable_bytes = if self.is_together() { GROWTH_TOGETHER } else { mapping_bytes };
        Growth { writable_bytes, mapping_bytes, all: self.is_small() || self.is_together() }
    }

    /// Returns from how many pages on open memory is worth closing.
    pub(crate) fn much(&self) -> usize {
        self.limit() / 32
    }

    /// Returns how many pages may be touched before memory should be closed.
    pub(crate) fn headroom(&self) -> usize {
        self.near().saturating_sub(self.charge())
    }

    /// Returns how many pages a fault may take; 0: it waits for the evictor.
    pub(crate) fn room(&self) -> usize {
        let room = (self.limit() + self.raised()).saturating_sub(self.charge());
        if room == 0 && self.exhausted.load(Ordering::Relaxed) {
            return pages_in(BEYOND);
        }
        room
    }

    /// Returns how many pages may be read ahead at once: a share of the limit, and none of the room
    /// that is left for faults while the evictor works.
    pub(crate) fn room_ahead(&self) -> usize {
        let limit = self.limit();
        let most = (limit - margin(limit) / 2 + self.raised()).saturating_sub(self.charge());
        most.min(limit / AHEAD_SHARE)
    }

    /// Returns whether the evictor should begin.
    pub(crate) fn is_high(&self) -> bool {
        self.charge() > self.high() + self.raised()
    }

    /// Returns how many pages the evictor should free, once it has begun.
    pub(crate) fn excess(&self) -> usize {
        self.charge().saturating_sub(self.low() + self.raised())
    }

    /// Returns whether the evictor would begin if all pages could leave.
    pub(crate) fn is_above(&self) -> bool {
        self.charge() > self.high()
    }

    /// Returns whether it would continue then.
    pub(crate) fn is_above_low(&self) -> bool {
        self.charge() > self.low()
    }

    /// Returns whether sharing matters: whether the evictor would begin without the credit. Memory
    /// that cannot leave is ignored here, because its size depends on what is shared.
    pub(crate) fn is_high_without_credit(&self) -> bool {
        self.gross() > self.high()
    }

    fn raised(&self) -> usize {
        self.raised.load(Ordering::Relaxed)
    }

    /// Records how many pages cannot leave. Pages that can leave get at least an eighth of the
    /// limit: with less, each would leave before it is used, and the program would make no
    /// progress.
    pub(crate) fn set_immovable(&self, pages: usize) {
        let needed = pages + self.limit() / 8;
        self.raised.store(needed.saturating_sub(self.low()), Ordering::Relaxed);
    }

    /// Records whether the evictor could free anything.
    pub(crate) fn set_exhausted(&self, exhausted: bool) {
        self.exhausted.store(exhausted, Ordering::Relaxed);
    }
}

fn pages(bytes: u64) -> usize {
    usize::try_from(bytes / page_len() as u64).unwrap_or(usize::MAX >> 1)
}

/// Pages from the limit down to the mark where the evictor starts, and from there to where it
/// stops.
fn margin(limit: usize) -> usize {
    (limit / 32).clamp(16.min(limit / 4), pages_in(8 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of a mebibyte.
    fn mib() -> usize {
        pages_in(1 << 20)
    }

    #[test]
    fn room_ends_at_the_limit_and_opening_before_it() {
        let budget = Budget::new(64 << 20, true);
        let limit = mib() * 64;
        assert_eq!((budget.limit(), budget.room()), (limit, limit));
        assert!(budget.fits(limit / 4 * 3) && !budget.fits(limit / 4 * 3 + 1));
        budget.change(0, limit - 6);
        assert_eq!((budget.charge(), budget.room()), (limit - 6, 6));
        assert!(budget.is_growing() && budget.is_near() && budget.is_high());
        assert!(budget.excess() > limit / 32 && budget.headroom() == 0);
        budget.change(limit - 6, limit + 44);
        assert_eq!(budget.room(), 0);
        budget.set_exhausted(true);
        assert_eq!(budget.room(), pages_in(BEYOND), "nothing to wait for");
        budget.change_credit(0, limit / 2);
        assert_eq!((budget.charge(), budget.gross()), (limit / 2 + 44, limit + 44));
        assert_eq!(budget.peak(), limit + 44);
        assert!(!budget.is_high() && budget.is_high_without_credit());
    }

    #[test]
    fn what_the_store_takes_is_off_the_limit_at_once() {
        let budget = Budget::new(u64::MAX, true);
        budget.set_limit_together(64 << 20);
        budget.change(0, mib() * 40);
        assert_eq!((budget.limit(), budget.room()), (mib() * 64, mib() * 24));
        budget.set_held(16 << 20);
        assert_eq!((budget.limit(), budget.room()), (mib() * 48, mib() * 8));
        // Copies of resident pages are a part of that, and count once.
        budget.set_copy_bytes(page_len() / 4);
        budget.change_copies(0, mib() * 16);
        assert_eq!((budget.limit(), budget.room()), (mib() * 52, mib() * 8));
        assert_eq!((budget.resident(), budget.charge()), (mib() * 40, mib() * 44));
        budget.set_held(40 << 20);
        assert!(budget.room() == 0 && budget.is_high());
        budget.set_held(80 << 20);
        let least = pages_in(LIMIT_MIN as usize);
        assert_eq!(budget.limit(), least, "with none, the program would make no progress");
        // What forks share needs room to be copied.
        budget.change_copies(mib() * 16, 0);
        budget.change_credit(0, mib() * 32);
        assert_eq!((budget.resident(), budget.charge()), (mib() * 8, mib() * 16));
        budget.change_forking(0, mib() * 8);
        assert_eq!((budget.resident(), budget.charge()), (mib() * 8, mib() * 18));
        budget.change_forking(mib() * 8, 0);
    }

    #[test]
    fn the_lower_of_two_limits_counts() {
        let budget = Budget::new(40 << 20, true);
        budget.set_limit_together(120 << 20);
        assert_eq!((budget.limit(), budget.is_together()), (mib() * 40, false));
        budget.set_held(79 << 20);
        assert_eq!((budget.limit(), budget.is_together()), (mib() * 40, false));
        budget.set_held(96 << 20);
        assert_eq!((budget.limit(), budget.is_together()), (mib() * 24, true));
        budget.set_limit(16 << 20);
        assert_eq!((budget.limit(), budget.is_together()), (mib() * 16, false));
        budget.set_limit_together(u64::MAX);
        assert_eq!(budget.limit(), mib() * 16);
    }

    #[test]
    fn the_marks_follow_the_limit() {
        let budget = Budget::new(256 << 20, true);
        budget.change(0, (128 << 20) / page_len());
        assert!(!budget.is_high() && budget.room() > 0);
        budget.set_limit(64 << 20);
        assert!(budget.is_high() && budget.is_near() && budget.excess() > (64 << 20) / page_len());
        assert_eq!(budget.room(), 0);
        budget.set_limit(256 << 20);
        assert!(!budget.is_near() && budget.room() > 0);
    }

    #[test]
    fn small_limits_are_attached_at_once() {
        let budget = Budget::new(16 << 20, true);
        budget.change(0, 1);
        assert!(budget.is_growing() && !budget.is_near() && budget.is_small());
        let is_small = |mib: u64, urgent| Budget::new(mib << 20, urgent).is_small();
        assert!(is_small(64, false) && !is_small(65, false) && !is_small(17, true));
        let growth = |bytes, all| Growth { writable_bytes: bytes, mapping_bytes: bytes, all };
        assert_eq!(budget.growth(), growth(512 << 10, true));
        assert_eq!(Budget::new(1 << 20, true).growth().mapping_bytes, 64 << 10);
        let large = growth(2 << 20, false);
        assert_eq!([64 << 20, 1 << 30].map(|bytes| Budget::new(bytes, true).growth()), [large; 2]);
        budget.set_limit(1 << 30);
        budget.set_limit_together(64 << 20);
        assert_eq!(budget.growth(), Growth { writable_bytes: GROWTH_TOGETHER, all: true, ..large });
    }
}
