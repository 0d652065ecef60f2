//! The evictor: a thread that keeps what is charged under the limit.
//!
//! While the charge is too high, it alternately moves out pages that the hand of a clock does not
//! spare, and compresses the oldest batches of the swap cache. Closing and attaching is the
//! watcher's task. If nothing can leave, faults continue above the limit; but not at once if a
//! space has just lost its helper, which happens also between two calls of one thread
//! (`trace::aside`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::ranges::PageNo;
use crate::faults::answer::answer_faults;
use crate::limit::close::{closable, close_slices};
use crate::link::SpaceId;
use crate::reclaim::again::Again;
use crate::reclaim::discards::Waits;
use crate::reclaim::let_go::{self, retire, wait_for_others};
use crate::reclaim::lost::LostSpaces;
use crate::reclaim::mover::batch_max;
use crate::shared::Shared;
use crate::spaces::asked::{PageOut, Pending};
use crate::spaces::managed::{Managed, lock};
use crate::spaces::maps::mappings_in;

/// Pause after nothing could be freed.
const PAUSE: Duration = Duration::from_millis(5);
/// The pause after a search that found nothing, as a multiple of the time that it took, and its
/// bounds.
const SEARCH_REST: u32 = 4;
const SEARCH_RESTS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];
/// How often to check whether anything is due without a call.
const IDLE: Duration = Duration::from_millis(500);
/// How long faults wait for spaces to get other helpers when nothing else can leave, and how often
/// to look for these.
const HELPER_MAX: Duration = Duration::from_millis(50);
const HELPER_LOOK: Duration = Duration::from_micros(500);
/// The number of doomed pages in a space from which on they are worth checking.
const DOOMED_MIN: usize = 64;

/// The evictor's own state.
pub(crate) struct Evictor {
    pub(crate) shared: Arc<Shared>,
    /// The hand of the clock: the page to check next.
    pub(super) hand: (SpaceId, PageNo),
    /// The round of the search in which pages were found last.
    pub(super) round: usize,
    pub(crate) victims: Vec<PageNo>,
    /// Pages that left last and were shared since a fork.
    pub(super) shared_out: Vec<PageNo>,
    /// Pages that the swap cache may hold above its size while other threads help to compress.
    pub(crate) ahead: usize,
    waits: Waits,
    /// Spaces that have lost pages.
    pub(super) lost: LostSpaces,
    /// The space whose sharing was measured last, and when the next round may begin.
    pub(super) measured: SpaceId,
    pub(super) next_measure: Instant,
    /// When to retry pages that could not leave.
    pub(crate) again: Again,
}

impl Evictor {
    /// Returns an evictor whose hand is at the beginning.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            ahead: let_go::ahead(&shared),
            shared,
            hand: (SpaceId(0), 0),
            round: 0,
            victims: Vec::new(),
            shared_out: Vec::new(),
            waits: Waits::default(),
            lost: LostSpaces::default(),
            measured: SpaceId(0),
            next_measure: Instant::now(),
            again: Again::default(),
        }
    }

    /// Works until it is told to stop.
    pub(crate) fn run(mut self) {
        let mut pause = IDLE;
        while !self.shared.evictor.wait(pause) {
            while self.page_out() {
                self.reclaim();
            }
            let began = Instant::now();
            let exhausted = self.reclaim();
            let took = began.elapsed();
            self.try_again();
            self.waits.look(&self.shared);
            let busy = self.measure_sharing() | !self.waits.is_empty();
            self.lost.check(&self.shared);
            if exhausted {
                // Each fault wakes the evictor now, and would find the same as just now. A search
                // of many spaces takes long, and the program needs the processors.
                std::thread::sleep((took * SEARCH_REST).clamp(SEARCH_RESTS[0], SEARCH_RESTS[1]));
            }
            pause =
                if exhausted || busy { PAUSE } else { self.until_try().unwrap_or(IDLE).min(IDLE) };
        }
    }

    /// Frees pages until it is enough; returns whether nothing more could be freed.
    fn reclaim(&mut self) -> bool {
        let budget = Arc::clone(&self.shared.budget);
        self.round = 0;
        if !budget.is_high() && lock(&self.shared.pending).is_empty() {
            budget.set_exhausted(false);
            return false;
        }
        while budget.excess() > 0 {
            let freed = self.step() | self.try_again();
            // Below the mark there is room, and the next fault that finds none waits.
            let exhausted = !freed && budget.is_high();
            budget.set_exhausted(exhausted);
            self.serve_pending(exhausted);
            self.page_out();
            self.measure_sharing();
            if !freed {
                return budget.is_high();
            }
        }
        budget.set_exhausted(false);
        self.serve_pending(false);
        false
    }

    /// Pages out and compresses some of the pages that should leave now; returns whether there are
    /// more.
    fn page_out(&mut self) -> bool {
        let Some(mut asked) = lock(&self.shared.page_outs).pop_front() else { return false };
        let managed = Arc::clone(&asked.managed);
        if !asked.closed {
            asked.closed = true;
            let is_open = !managed.lock().closed().without(&asked.pages).is_empty();
            let found = is_open.then(|| mappings_in(managed.pid(), &asked.pages));
            for mapping in found.and_then(Result::ok).unwrap_or_default() {
                for part in closable(&self.shared, &managed, &mapping.pages) {
                    close_slices(&self.shared, &managed, &part);
                }
            }
            self.reconcile(&managed);
        }
        let PageOut { pages, .. } = &asked;
        let next = if managed.is_attached() {
            let range = pages.clone();
            self.move_out(&managed, None, |space, kept, victims| {
                space.pick_in(&range, batch_max(), kept, victims)
            })
            .1
        } else {
            None
        };
        while !self.may_evict(self.ahead) && retire(&self.shared) {}
        if let Some(next) = next {
            asked.pages.start = next;
            lock(&self.shared.page_outs).push_front(asked);
            return true;
        }
        while retire(&self.shared) || wait_for_others(&self.shared) {}
        self.shared.tracing.go_on(asked.ticket);
        true
    }

    /// Answers faults that wait for room, as long as there is some; all of them if there is nothing
    /// to wait for.
    pub(crate) fn serve_pending(&self, all: bool) {
        while all || self.shared.budget.room() > 0 {
            let Some(pending) = lock(&self.shared.pending).next() else { return };
            self.answer(pending, all);
        }
    }

    /// Answers those of one space, whether or not there is room.
    pub(crate) fn serve_pending_of(&self, managed: &Managed) {
        let own = lock(&self.shared.pending).take_of(managed.id);
        own.into_iter().for_each(|pending| self.answer(pending, true));
    }

    fn answer(&self, Pending { managed, mut fault }: Pending, free: bool) {
        fault.free |= free;
        managed.faults.put_back(fault);
        answer_faults(&self.shared, &managed);
    }

    /// Frees something; returns false if there is nothing.
    fn step(&mut self) -> bool {
        if self.starves() {
            return true;
        }
        // The evictor alone does not make room as fast as it is used.
        let pressed = self.shared.budget.room_ahead() == 0;
        if !self.may_evict(if pressed { self.ahead } else { 0 }) && retire(&self.shared) {
            return true;
        }
        let spaces = self.shared.books.all();
        let attached = attached(&spaces);
        self.look_at_doomed(&spaces, DOOMED_MIN)
            || self.evict(&spaces)
            || retire(&self.shared)
            || self.look_at_doomed(&spaces, 1)
            || wait_for_others(&self.shared)
            || self.shared.cold.drop_copies(batch_max(), true) > 0
            || (self.shared.budget.is_high()
                && (self.waits.rest() || self.rest_without(&spaces, attached)))
    }

    /// Waits a moment for the spaces that have lost their helpers to get others, and asks for them;
    /// returns false if that takes long, or if there are no such spaces, and no more have helpers
    /// than `before`.
    fn rest_without(&self, spaces: &[Arc<Managed>], before: usize) -> bool {
        let lost = |managed: &&Arc<Managed>| {
            managed.without_helper_for().is_some_and(|time| time < HELPER_MAX)
        };
        let lost: Vec<_> = spaces.iter().filter(lost).collect();
        for managed in &lost {
            self.shared.tracing.attach(managed.id);
        }
        if lost.is_empty() {
            // One that has just got its helper is not among the lost any more.
            return attached(spaces) > before;
        }
        std::thread::sleep(HELPER_LOOK);
        true
    }

    /// Returns whether the swap cache has room; it may hold `ahead` pages more than without
    /// pressure, which helper threads are called to compress.
    pub(crate) fn may_evict(&self, ahead: usize) -> bool {
        let cache = lock(&self.shared.cold.swap_cache).pages();
        if ahead > 0 && cache > self.shared.cold.swap_cache_max() {
            self.shared.compressors.call();
        }
        cache <= self.shared.cold.swap_cache_max() + ahead
    }

    /// Checks which doomed pages have gone, in spaces with at least `min` of them; returns whether
    /// any has, or is known to stay.
    fn look_at_doomed(&mut self, spaces: &[Arc<Managed>], min: usize) -> bool {
        let mut freed = false;
        for managed in spaces.iter().filter(|s| s.doomed() >= min && s.is_attached()) {
            let Some(access) = managed.access() else { continue };
            let mut space = managed.lock();
            let before = space.counts().doomed;
            for range in space.doomed_ranges().iter() {
                // Pages that cannot be checked may be present.
                let Ok(present) = access.present(managed.pid(), &range) else { continue };
                space.looked(&range, &present.into_iter().collect());
            }
            let left = space.counts().doomed;
            freed |= left < before;
            if left > 0 && !self.waits.has(managed.id) {
                let number = space.begin_wait();
                drop(space);
                self.waits.begin(managed, number);
            }
        }
        freed | self.waits.look(&self.shared)
    }
}

/// Returns how many spaces have helpers.
fn attached(spaces: &[Arc<Managed>]) -> usize {
    spaces.iter().filter(|managed| managed.is_attached()).count()
}
