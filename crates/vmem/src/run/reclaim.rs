//! The evictor: a thread that keeps what is charged under the limit.
//!
//! In turn, as long as there is too much: it closes open memory (which is charged by what is there
//! from then on), moves out the pages that the hand of a clock finds old, and compresses the
//! oldest batches of the second-chance buffer. If nothing is left to do, it asks for spaces to be
//! attached; and if that does not help either, faults go on above the limit, which is counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::access::Access;
use super::faults::{Buffer, buffer, serve};
use super::managed::{Managed, lock};
use super::maps::{Mapping, mappings, shared_pages};
use super::memory::SpaceId;
use super::mover::{Moved, Stays};
use super::pages::Page;
use super::ranges::{PAGE, PageNo, Pages, Ranges, common};
use super::shared::{PageOut, Shared};
use super::space::Space;

/// Pages that are closed under one hold of the lock.
const SLICE: usize = 8192;
/// A mapping with fewer pages stays open: it would cost more than it gives. Programs that mark
/// single pages as wiped or not inherited by fork keep them, too.
const CLOSE_MIN: usize = 16;
/// Passes over all spaces after which nothing is found any more: pages have grown old by then and
/// those that could not be moved have been tried again.
const PASSES: usize = 12;
/// This share of the limit may count as open although it was unmapped.
const STALE_SHARE: usize = 64;
/// Mappings that cannot be closed count up to this share of the limit each.
const OTHER_SHARE: usize = 16;
/// How long a space may take to be attached before memory is given out above the limit. It takes
/// one millisecond, or some more on a busy machine.
const ATTACH_TIME: Duration = Duration::from_millis(100);
/// Pause after nothing could be freed.
const PAUSE: Duration = Duration::from_millis(10);
/// Pause between two tries to end readers.
const BURY: Duration = Duration::from_millis(1);
/// How often is looked whether anything is due, when nobody calls.
const IDLE: Duration = Duration::from_millis(500);
/// Shortest and longest time between two measurements of what forks share.
const SHARING: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(320)];

/// The evictor's own state.
pub(crate) struct Evictor {
    shared: Arc<Shared>,
    /// The hand of the clock: what it looks at next.
    hand: (SpaceId, PageNo),
    buffer: Buffer,
    victims: Vec<PageNo>,
}

impl Evictor {
    /// Returns an evictor whose hand is at the beginning.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, hand: (SpaceId(0), 0), buffer: buffer(), victims: Vec::new() }
    }

    /// Works until it is told to stop.
    pub(crate) fn run(mut self) {
        let mut pause = IDLE;
        while !self.shared.wait_for_call(pause) {
            self.page_out();
            let exhausted = self.reclaim();
            self.clean();
            let busy = self.bury() | self.measure_sharing();
            self.shared.check_lost();
            if exhausted {
                // Each fault calls now, and would find what was found just now.
                std::thread::sleep(PAUSE);
            }
            pause = if exhausted || busy { PAUSE } else { IDLE };
        }
        while self.bury() {
            // A thread that is interrupted without a pause does nothing else.
            std::thread::sleep(BURY);
        }
    }

    /// Frees until it is enough; returns whether nothing more could be freed.
    fn reclaim(&mut self) -> bool {
        let budget = Arc::clone(&self.shared.budget);
        if !budget.is_high() && !self.has_pending() {
            return false;
        }
        while budget.excess() > 0 {
            let freed = self.step();
            budget.set_exhausted(!freed);
            self.serve_pending(!freed);
            if !freed {
                return budget.is_high();
            }
        }
        self.serve_pending(false);
        false
    }

    /// Pages out what was asked for, and compresses it.
    fn page_out(&mut self) {
        loop {
            let Some(asked) = lock(&self.shared.page_outs).pop_front() else {
                return;
            };
            let PageOut { managed, pages, done } = &asked;
            let Some(access) = managed.access() else {
                continue;
            };
            for mapping in survey(&self.shared, managed) {
                for part in lock(&managed.own).without(&common(&mapping.pages, pages)) {
                    close_mapping(&self.shared, managed, &part);
                }
            }
            let max = lock(&access.mover).batch_max();
            let mut next = Some(pages.start);
            while let Some(from) = next.filter(|_| !managed.is_dead()) {
                self.victims.clear();
                let range = from..pages.end;
                next = managed.lock().pick_in(&range, max, &mut self.victims);
                if !self.victims.is_empty() {
                    self.move_out(managed);
                }
                while lock(&self.shared.chances).pages() > self.shared.chance_max && self.retire() {
                }
            }
            while self.retire() {}
            // It waits, unless its thread is being ended.
            let _ = done.send(());
        }
    }

    fn has_pending(&self) -> bool {
        !lock(&self.shared.pending).is_empty()
    }

    /// Answers faults that wait for room; all of them if there is nothing to wait for.
    fn serve_pending(&mut self, all: bool) {
        loop {
            let Some(fault) = lock(&self.shared.pending).pop_front() else {
                return;
            };
            if all {
                self.shared.budget.count_over_limit();
            }
            if !serve(&self.shared, &fault.managed, fault.page, all, &mut self.buffer) {
                lock(&self.shared.pending).push_front(fault);
                return;
            }
        }
    }

    /// Frees something; returns false if there is nothing.
    fn step(&mut self) -> bool {
        let spaces = self.shared.all();
        let chances = lock(&self.shared.chances).pages();
        if chances > self.shared.chance_max {
            return self.retire();
        }
        let open: usize = spaces.iter().filter(|s| s.access().is_some()).map(|s| s.open()).sum();
        let much_open = open > self.shared.budget.limit() / 2;
        self.survey_stale(&spaces)
            || (much_open && self.close_some(&spaces))
            || self.evict(&spaces)
            || self.close_some(&spaces)
            || self.retire()
            || self.ask_to_attach(&spaces)
    }

    /// Compresses the oldest batch of the second-chance buffer.
    fn retire(&mut self) -> bool {
        let shared = &self.shared;
        let Some(batch) = lock(&shared.chances).oldest() else {
            return false;
        };
        if let Some(managed) = shared.find(batch.space)
            && shared.store_batch(&batch, &managed).is_err()
        {
            return false;
        }
        let pages = lock(&shared.chances).retire(batch);
        shared.budget.change(pages, 0);
        let (stored, bytes) = (lock(&shared.keys).used() as u64, shared.store.held_bytes());
        shared.counters.stored_pages_peak.fetch_max(stored, Ordering::Relaxed);
        shared.counters.stored_bytes_peak.fetch_max(bytes, Ordering::Relaxed);
        true
    }

    /// Moves the hand on until it has found pages that go; returns whether any went.
    fn evict(&mut self, spaces: &[Arc<Managed>]) -> bool {
        let attached: Vec<_> =
            spaces.iter().filter(|s| s.access().is_some() && !s.is_dead()).collect();
        if attached.is_empty() {
            return false;
        }
        let mut at = attached.iter().position(|s| s.id >= self.hand.0).unwrap_or(0);
        if attached[at].id != self.hand.0 {
            self.hand = (attached[at].id, 0);
        }
        for _ in 0..attached.len() * PASSES {
            let managed = attached[at];
            self.pick(managed);
            if !self.victims.is_empty() && self.move_out(managed) {
                return true;
            }
            at = (at + 1) % attached.len();
            self.hand = (attached[at].id, 0);
        }
        false
    }

    /// Picks victims in a space from the hand on, as many as are needed.
    fn pick(&mut self, managed: &Managed) {
        self.victims.clear();
        let access = managed.access().expect("attached");
        // What leaves is in the buffer first, and is not free before it is compressed.
        let wanted = self.shared.budget.excess().clamp(32, self.shared.chance_max.max(32));
        let max = lock(&access.mover).batch_max().min(wanted);
        let mut next = Some(self.hand.1);
        while let Some(hand) = next.filter(|_| self.victims.len() < max) {
            let rest = max - self.victims.len();
            next = managed.lock().pick(hand, rest, &mut self.victims);
            self.hand.1 = next.unwrap_or(PageNo::MAX);
        }
    }

    /// Moves the victims out; returns whether any is out.
    fn move_out(&mut self, managed: &Managed) -> bool {
        let access = managed.access().expect("attached");
        let bytes = lock(&self.shared.chances).buffer();
        let mut moved = Moved { bytes, ..Moved::default() };
        let taken = lock(&access.mover).take(&self.victims, &mut moved);
        if taken.is_err() {
            let stay = self.victims.iter().map(|&page| (page, Stays::Absent)).collect();
            self.settle(managed, Moved { stay, ..Moved::default() }, &[]);
            self.shared.lost(managed);
            return false;
        }
        let zeros = take_zeros(&mut moved);
        self.shared.counters.zeros_found.add(zeros.len());
        self.shared.counters.evicted.add(moved.pages.len());
        let out = zeros.len() + moved.pages.len();
        let wanted = self.settle(managed, moved, &zeros);
        for page in wanted {
            access.wake(&(page..page + 1));
        }
        out > 0
    }

    /// Says where the victims are now; returns those that somebody waits for.
    fn settle(&self, managed: &Managed, moved: Moved, zeros: &[PageNo]) -> Vec<PageNo> {
        let mut states: Vec<(PageNo, Page)> =
            zeros.iter().map(|&page| (page, Page::Absent)).collect();
        states.extend(moved.stay.iter().map(|&(page, stays)| match stays {
            Stays::Again => (page, Page::Resident { age: 0 }),
            Stays::Absent => (page, Page::Absent),
            Stays::Fixed => (page, Space::FIXED),
        }));
        let fixed = moved.stay.iter().filter(|(_, stays)| *stays == Stays::Fixed).count();
        self.shared.counters.fixed.add(fixed);
        if !moved.pages.is_empty() {
            let batch =
                lock(&self.shared.chances).push(managed.id, moved.bytes, moved.pages.clone());
            let slots = moved.pages.iter().enumerate();
            states.extend(slots.map(|(at, &page)| (page, Page::Chance(batch.slot(at)))));
        }
        let mut space = managed.lock();
        let wanted = states.iter().filter(|&&(page, state)| space.left(page, state));
        let wanted = wanted.map(|&(page, _)| page).collect();
        space.hand_over(moved.pages.len());
        drop(space);
        managed.settle();
        wanted
    }

    /// Drops what the last batches left in the stagings.
    fn clean(&self) {
        for managed in self.shared.all() {
            if let Some(access) = managed.access().filter(|_| !managed.is_dead())
                && lock(&access.mover).clean().is_err()
            {
                self.shared.lost(&managed);
            }
        }
    }

    /// Closes a mapping of the attached space with the most open memory.
    fn close_some(&self, spaces: &[Arc<Managed>]) -> bool {
        let attached = spaces.iter().filter(|s| s.access().is_some() && !s.is_dead());
        let mut attached: Vec<_> = attached.filter(|s| s.open() > 0).collect();
        attached.sort_by_key(|s| std::cmp::Reverse(s.open()));
        attached.into_iter().any(|managed| close_open(&self.shared, managed))
    }

    /// Reads mappings where much was unmapped; returns whether that frees anything.
    fn survey_stale(&self, spaces: &[Arc<Managed>]) -> bool {
        let before = self.shared.budget.charge();
        for managed in spaces {
            if is_stale(&self.shared, managed) {
                survey(&self.shared, managed);
            }
        }
        self.shared.budget.charge() < before
    }

    /// Wants the largest space that is not attached; returns whether that may come soon.
    fn ask_to_attach(&self, spaces: &[Arc<Managed>]) -> bool {
        let usable = |s: &&Arc<Managed>| {
            s.access().is_none() && !s.refused.load(Ordering::Relaxed) && !s.is_dead()
        };
        let largest = spaces.iter().filter(usable).max_by_key(|s| s.open());
        let Some(managed) = largest.filter(|s| s.open() >= CLOSE_MIN) else {
            return false;
        };
        let mut asked = lock(&managed.asked);
        let soon = asked.is_some_and(|since| since.elapsed() < ATTACH_TIME);
        if !soon {
            let again = asked.replace(Instant::now()).is_some();
            drop(asked);
            managed.wanted.store(true, Ordering::Relaxed);
            self.shared.tracing.attach(managed.id);
            if again {
                return false;
            }
        }
        // Memory above the limit is not given out for what comes in a moment.
        std::thread::sleep(Duration::from_millis(1));
        true
    }

    /// Lets the readers of spaces that are gone end; returns whether some have not ended.
    fn bury(&self) -> bool {
        let mut grave = lock(&self.shared.grave);
        grave.retain(|managed| {
            let mut readers = lock(&managed.readers);
            for at in (0..readers.len()).rev() {
                // An error says that it has ended.
                let _ = readers[at].interruptible.interrupt();
                if readers[at].thread.is_finished() {
                    let _ = readers.remove(at).thread.join();
                }
            }
            !readers.is_empty()
        });
        !grave.is_empty()
    }

    /// Measures, where it is due and matters, what forks share; returns whether any is to come.
    fn measure_sharing(&self) -> bool {
        if !self.shared.budget.is_high_without_credit() {
            return false;
        }
        let mut to_come = false;
        for managed in self.shared.all() {
            let mut sharing = lock(&managed.sharing);
            let Some(due) = sharing.as_mut() else {
                continue;
            };
            if due.next <= Instant::now() {
                let shared = shared_pages(managed.pid()).unwrap_or(0);
                managed.set_credit(shared.min(managed.charged()));
                if shared == 0 {
                    *sharing = None;
                    continue;
                }
                due.pause = (due.pause * 2).clamp(SHARING[0], SHARING[1]);
                due.next = Instant::now() + due.pause;
            }
            to_come = true;
        }
        to_come
    }
}

/// Takes the pages out of a batch that are zeros.
fn take_zeros(moved: &mut Moved) -> Vec<PageNo> {
    const ZEROS: [u8; PAGE] = [0; PAGE];
    let mut zeros = Vec::new();
    let mut kept = 0;
    for at in 0..moved.pages.len() {
        let page = at * PAGE..(at + 1) * PAGE;
        if moved.bytes[page.clone()] == ZEROS {
            zeros.push(moved.pages[at]);
            continue;
        }
        if kept != at {
            moved.bytes.copy_within(page, kept * PAGE);
            moved.pages[kept] = moved.pages[at];
        }
        kept += 1;
    }
    moved.pages.truncate(kept);
    moved.bytes.truncate(kept * PAGE);
    zeros
}

/// Reads which memory of a space is open, and charges that. Returns it. Mappings that are being
/// made at this moment may be missed until the next time.
pub(crate) fn survey(shared: &Shared, managed: &Managed) -> Vec<Mapping> {
    let before = managed.open();
    let Ok(mappings) = mappings(managed.pid()) else {
        return Vec::new();
    };
    managed.stale.store(0, Ordering::Relaxed);
    shared.counters.surveys.add(1);
    let own = managed.access().map(Access::staging);
    let closed = managed.lock().closed().clone();
    let mut open = Vec::new();
    // Few pages of a large file that is mapped privately are ever written.
    let counted = |m: &Mapping| !m.other || m.pages.len() <= shared.budget.limit() / OTHER_SHARE;
    for mapping in mappings.into_iter().filter(counted) {
        let mut parts = Ranges::default();
        parts.insert(common(&mapping.pages, &shared.window));
        own.iter().for_each(|own| drop(parts.remove(own)));
        for part in parts.iter().flat_map(|part| closed.without(&part)) {
            open.push(Mapping { pages: part, ..mapping.clone() });
        }
    }
    let now: usize = open.iter().map(|mapping| mapping.pages.len()).sum();
    if now > before {
        managed.add_open(now - before);
    } else {
        managed.remove_open(before - now);
    }
    open
}

/// Returns whether so much was unmapped that the mappings should be read.
pub(crate) fn is_stale(shared: &Shared, managed: &Managed) -> bool {
    let stale = managed.stale.load(Ordering::Relaxed).min(managed.open());
    stale > shared.budget.limit() / STALE_SHARE
}

/// Closes mappings of an attached space until nothing is too much, or all are closed; returns
/// whether any was.
pub(crate) fn close_open(shared: &Shared, managed: &Managed) -> bool {
    let mut open = survey(shared, managed);
    // Reserved memory costs nothing once it is closed; large mappings give most.
    open.sort_by_key(|mapping| (!mapping.reserved, std::cmp::Reverse(mapping.pages.len())));
    let mut closed = false;
    let large = open.iter().filter(|m| m.pages.len() >= CLOSE_MIN && !m.other);
    for part in large.flat_map(|mapping| lock(&managed.own).without(&mapping.pages)) {
        closed |= close_mapping(shared, managed, &part);
        if closed && shared.budget.excess() == 0 {
            break;
        }
    }
    closed
}

fn close_mapping(shared: &Shared, managed: &Managed, pages: &Pages) -> bool {
    let mut closed = false;
    let mut from = pages.start;
    while from < pages.end {
        let slice = from..pages.end.min(from + SLICE);
        from = slice.end;
        if close(shared, managed, &slice, true).is_ok_and(|done| done) {
            managed.remove_open(slice.len());
            closed = true;
        }
    }
    closed
}

/// Closes a range; returns false if it is closed already. One that is old and not told of just
/// now may be in a change that has not happened yet: false then, too.
///
/// # Errors
/// The kernel does not register it: it is not what it was.
pub(crate) fn close(
    shared: &Shared,
    managed: &Managed,
    range: &Pages,
    is_old: bool,
) -> std::io::Result<bool> {
    let access = managed.access().expect("attached");
    // All under the lock: a page that is found present must not be given up meanwhile, and a
    // fault must find the range closed.
    let mut space = managed.lock();
    if (is_old && space.is_in_flux(range)) || space.closed().touches(range) {
        return Ok(false);
    }
    access.register(range)?;
    let present = access.present(range)?;
    space.close(range, &present, u8::from(!is_old));
    shared.counters.closed_pages.add(range.len());
    Ok(true)
}
