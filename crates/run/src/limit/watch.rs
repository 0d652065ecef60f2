//! The watcher: a thread that watches how much memory the tree has, and does work that must not
//! wait for the evictor: it closes growing memory, has spaces attached, and serves the tracer's
//! requests.
//!
//! Open memory costs nothing, not even a message for each change. So growth is found by looking,
//! more often as it nears the limit.
//!
//! - W1: a look reads files of a bounded number of processes, however many there are: threads of
//!   the program wait for the work that comes after it. With more processes it reads those of the
//!   newest, and of the others in turn.
//! - W2: how long all surveys of mappings take together does not depend on how many spaces there
//!   are, but on how much memory they open.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::faults::answer::enter;
use crate::limit::close::{close_min, close_open};
use crate::limit::forks::Forks;
use crate::limit::requests::{RETRY, perform};
use crate::link::SpaceId;
use crate::shared::Shared;
use crate::spaces::asked::{Pending, Work};
use crate::spaces::managed::{Managed, lock};
use crate::spaces::maps::{Statm, measure_shared, minor_faults};
use crate::spaces::survey::CROWD;
use zfold_uffd::page::page_len;

/// Shortest and longest time between two looks.
const LOOKS: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(50)];
/// Time between two looks for each space: a look takes up to 2 microseconds for each.
const LOOK_REST: Duration = Duration::from_micros(40);
/// Most spaces whose processes one look reads, and how many of these are the newest (W1).
const LOOKED: usize = 64;
const NEWEST: usize = 16;
/// The pause after a look that read the files of some processes only, as a multiple of its time.
const CROWD_REST: u32 = 12;
/// Near the limit, at most this share of it can be touched between two looks; and the longest time
/// between them there.
const UNSEEN: usize = 64;
const LOOKS_NEAR: Duration = Duration::from_millis(2);
/// Longest time between two looks there while nothing opens up and no space is young; the part of
/// the limit by which open memory changes if something does, and the least number of pages, which
/// the kernel's count may be off by; how long a space is young.
const CALM: Duration = Duration::from_millis(1);
const OPENS: usize = 256;
const OPENS_MIN: usize = 64;
const YOUNG: Duration = Duration::from_millis(20);
/// Most files that are kept open for looks.
const STATMS: usize = 16;
/// The speed at which a program is assumed to touch memory, in bytes a second.
const GROWTH: u64 = 6 << 30;
/// How long usage must be seen above the limit before it counts: pages that are about to leave do
/// not.
const EXCURSION: Duration = Duration::from_millis(20);

/// Most spaces whose shared pages are measured before usage above the limit is reported, and the
/// pause after that, as a multiple of the time it took.
const MEASURED_MAX: usize = 64;
const MEASURE_REST: u32 = 20;

/// The watcher's own state.
pub(crate) struct Watcher {
    shared: Arc<Shared>,
    statms: Statms,
    /// Since when usage is above the limit, and whether that was counted.
    above: Option<(Instant, bool)>,
    /// When shared pages of forks may be measured again.
    next_measure: Instant,
    /// The newest space and when it began; its first milliseconds are watched closely.
    newest: (SpaceId, Instant),
    /// The last space of the last turn.
    looked: SpaceId,
    /// How many pages were open at the last look, and the time since which nothing has opened up.
    open: usize,
    calm_since: Instant,
    /// Forks that wait for room.
    forks: Forks,
}

impl Watcher {
    /// Returns a watcher that has seen nothing.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            statms: Statms::default(),
            above: None,
            next_measure: Instant::now(),
            newest: (SpaceId(0), Instant::now()),
            looked: SpaceId(0),
            open: 0,
            calm_since: Instant::now(),
            forks: Forks::default(),
        }
    }

    /// Works until it is told to stop.
    pub(crate) fn run(mut self) {
        crate::sys::urgency::be_prompt();
        let (mut next_look, mut next_try) = (Instant::now(), Instant::now());
        loop {
            let retrying = !lock(&self.shared.retries).is_empty() || self.forks.are_waiting();
            let next = if retrying { next_look.min(next_try) } else { next_look };
            if self.shared.watcher.wait(next.saturating_duration_since(Instant::now())) {
                return;
            }
            while let Some(work) = self.next_work() {
                if let Some(work) = self.forks.wait(&self.shared, work) {
                    perform(&self.shared, work);
                }
            }
            let began = Instant::now();
            while let Some(work) = self.forks.next(&self.shared) {
                perform(&self.shared, work);
            }
            if began >= next_try {
                self.retry();
                next_try = next_after(began, began.elapsed(), RETRY);
            }
            let began = Instant::now();
            if began >= next_look {
                let rest = self.look();
                next_look = next_after(began, began.elapsed(), rest);
            }
        }
    }

    fn next_work(&self) -> Option<Work> {
        lock(&self.shared.work).pop_front()
    }

    /// Retries faults that had to wait for a change.
    fn retry(&self) {
        let retries = std::mem::take(&mut *lock(&self.shared.retries));
        for Pending { managed, fault } in retries {
            managed.faults.add(fault);
            enter(&self.shared, &managed, |_| ());
        }
    }

    /// Looks at all spaces; returns when to look again.
    fn look(&mut self) -> Duration {
        let (shared, began) = (Arc::clone(&self.shared), Instant::now());
        let spaces = shared.books.all();
        self.statms.keep(&spaces);
        let turn = turn(&spaces, &mut self.looked);
        for managed in &turn {
            let pages = if shared.looks() { self.statms.pages_of(managed) } else { 0 };
            managed.seen(pages);
        }
        let mut seen = lock(&shared.cold.swap_cache).pages();
        let mut immovable = 0;
        for managed in spaces.iter() {
            seen += managed.last_seen();
            immovable += managed.immovable();
        }
        // Pages that were asked for have left the store.
        shared.budget.set_held(shared.cold.store.held_bytes());
        if shared.budget.is_high_without_credit() {
            take_copies_off(&turn, &spaces);
        }
        let shared_pages: usize = spaces.iter().map(|managed| managed.credit()).sum();
        shared.budget.set_immovable(immovable);
        let mut pages = Some(seen.saturating_sub(shared_pages));
        if pages > Some(shared.budget.limit()) {
            pages = self.measured(&spaces, seen);
        }
        if let Some(pages) = pages {
            self.count(pages);
        }
        if let Some(newest) = spaces.last().filter(|newest| newest.id > self.newest.0) {
            self.newest = (newest.id, Instant::now());
        }
        if shared.budget.is_growing() {
            self.ask(&spaces);
        }
        if shared.budget.is_near() {
            self.close(&spaces);
        }
        shared.call_evictor_if_high();
        let crowd = if turn.len() < spaces.len() { began.elapsed() * CROWD_REST } else { LOOKS[0] };
        let rest = (LOOK_REST * turn.len() as u32).max(crowd).min(LOOKS[1]);
        let shortest = rest.max(time_to_touch(shared.budget.limit() / UNSEEN).min(LOOKS_NEAR));
        let until_near = time_to_touch(shared.budget.headroom());
        until_near.min(self.newest.1.elapsed()).clamp(self.calm(&spaces, shortest), LOOKS[1])
    }

    /// Returns the shortest time until the next look: closed memory cannot pass the limit, so looks
    /// are rare while all other memory stays as it is. The longer it has, the rarer they are.
    fn calm(&mut self, spaces: &[Arc<Managed>], shortest: Duration) -> Duration {
        let open: usize = spaces.iter().map(|managed| managed.open()).sum();
        let opens = open.abs_diff(self.open) > (self.shared.budget.limit() / OPENS).max(OPENS_MIN);
        self.open = open;
        let is_young = self.newest.1.elapsed() < YOUNG;
        if opens || is_young || spaces.iter().any(|managed| self.should_attach(managed)) {
            self.calm_since = Instant::now();
        }
        shortest.max((self.calm_since.elapsed() / 4).min(CALM))
    }

    /// Returns the usage `seen`, less what forks share, measured now: the known value is too low
    /// while a child is young, and a reported peak should be real. `None` if it was measured a
    /// moment ago.
    fn measured(&mut self, spaces: &[Arc<Managed>], seen: usize) -> Option<usize> {
        let shares = |managed: &&Arc<Managed>| managed.shares();
        let sharing: Vec<_> = spaces.iter().filter(shares).collect();
        if !sharing.is_empty() && sharing.len() <= MEASURED_MAX {
            let began = Instant::now();
            if began < self.next_measure {
                return None;
            }
            for managed in sharing {
                if let Some(sharing) = &mut *lock(&managed.sharing) {
                    measure_shared(managed, sharing);
                }
            }
            self.next_measure = Instant::now() + began.elapsed() * MEASURE_REST;
        }
        let shared: usize = spaces.iter().map(|managed| managed.credit()).sum();
        Some(seen.saturating_sub(shared))
    }

    /// Records the usage.
    fn count(&mut self, pages: usize) {
        self.shared.counters.peak_resident_bytes.raise((pages * page_len()) as u64);
        if pages <= self.shared.budget.limit() {
            self.above = None;
            return;
        }
        let (since, counted) = self.above.get_or_insert((Instant::now(), false));
        if !*counted && since.elapsed() > EXCURSION {
            *counted = true;
            self.shared.counters.over_limit_total.add(1);
        }
    }

    /// Returns whether a space is to be attached, and is not yet.
    fn should_attach(&self, managed: &Managed) -> bool {
        let smallest = close_min().max(self.shared.budget.limit() / 64);
        !managed.is_attached()
            && !managed.is_dead()
            && !managed.refused.load(Ordering::Relaxed)
            && managed.pid() != 0
            && (managed.charged() >= smallest || managed.shares())
            && managed.is_worth_helper()
    }

    /// Asks for large spaces to be attached, at each look until they are.
    fn ask(&self, spaces: &[Arc<Managed>]) {
        let mut wanted: Vec<_> =
            spaces.iter().filter(|managed| self.should_attach(managed)).collect();
        wanted.sort_by_key(|managed| std::cmp::Reverse(managed.charged()));
        for managed in wanted {
            self.shared.tracing.attach(managed.id);
        }
    }

    /// Closes open memory of attached spaces, the largest first.
    fn close(&mut self, spaces: &[Arc<Managed>]) {
        let mut attached: Vec<_> = spaces
            .iter()
            .filter(|managed| managed.is_attached() && managed.open() >= close_min())
            .collect();
        attached.sort_by_key(|managed| std::cmp::Reverse(managed.open()));
        // A space that has grown by much is not left open just because reading its mappings is
        // expensive; many of them may not grow by more in total.
        let much = close_min().max(self.shared.budget.much() / (attached.len() / CROWD).max(1));
        let spaces = attached.len();
        for managed in attached {
            let last = *lock(&managed.survey);
            let open = managed.open();
            let due = last.is_none_or(|last| last.is_due(open, spaces) || open >= last.left + much);
            if due && self.shared.budget.is_near() {
                close_open(&self.shared, managed);
            }
        }
    }
}

/// Returns the spaces whose processes a look reads (W1): the newest, and others in turn after
/// `looked`, the last of the turn before.
fn turn(spaces: &[Arc<Managed>], looked: &mut SpaceId) -> Vec<Arc<Managed>> {
    if spaces.len() <= LOOKED {
        return spaces.to_vec();
    }
    let (others, newest) = spaces.split_at(spaces.len() - NEWEST);
    let from = others.partition_point(|managed| managed.id <= *looked);
    let turn = others[from..].iter().chain(&others[..from]).take(LOOKED - NEWEST);
    let turn: Vec<_> = turn.cloned().collect();
    *looked = turn.last().map_or(*looked, |last| last.id);
    turn.into_iter().chain(newest.iter().cloned()).collect()
}

/// Returns when to look or try again, after one that took `took` and wants the next after `rest`.
/// The pause is at least as long: a real-time thread without pauses would keep all other threads,
/// including the program's, off the only processor of a small machine.
fn next_after(began: Instant, took: Duration, rest: Duration) -> Instant {
    began + rest.max(took * 2)
}

/// Returns how long a program takes at least to touch so many pages.
fn time_to_touch(pages: usize) -> Duration {
    Duration::from_nanos(((pages * page_len()) as u64).saturating_mul(1_000_000_000) / GROWTH)
}

/// Subtracts from the credit the pages that writes in the spaces of a turn may have copied since
/// their last look, so that a copy counts before the shared pages are measured again.
fn take_copies_off(turn: &[Arc<Managed>], spaces: &[Arc<Managed>]) {
    let mut copies = 0;
    for managed in turn {
        if let Some(sharing) = &mut *lock(&managed.sharing) {
            let faults = minor_faults(managed.pid()).unwrap_or(0);
            copies += sharing.copies(faults, managed.open());
        }
    }
    for managed in spaces {
        if copies == 0 {
            return;
        }
        // Measuring threads hold it, too.
        let _sharing = lock(&managed.sharing);
        let (credit, off) = (managed.credit(), managed.credit().min(copies));
        managed.set_credit(credit - off);
        copies -= off;
    }
}

/// The files of a few processes that are read at each look: opening one takes longer than reading
/// it.
#[derive(Default)]
struct Statms(BTreeMap<i32, Statm>);

impl Statms {
    /// Returns how many pages a space has of its own.
    fn pages_of(&mut self, managed: &Managed) -> usize {
        let pid = managed.pid();
        if managed.is_dead() || pid == 0 {
            return 0;
        }
        // The main thread may have ended before the others: its number shows nothing then.
        let pages = self.own_pages(pid).ok().filter(|&pages| pages > 0);
        pages.unwrap_or_else(|| {
            let tasks = lock(&managed.tasks).clone();
            let pages = |&task: &i32| Statm::open(task)?.own_pages();
            tasks.iter().filter_map(|task| pages(task).ok()).find(|&pages| pages > 0).unwrap_or(0)
        })
    }

    fn own_pages(&mut self, pid: i32) -> io::Result<usize> {
        if let Some(statm) = self.0.get(&pid) {
            // The number of a process that is gone may have been reused.
            return statm.own_pages().inspect_err(|_| drop(self.0.remove(&pid)));
        }
        let statm = Statm::open(pid)?;
        let pages = statm.own_pages();
        if self.0.len() < STATMS {
            self.0.insert(pid, statm);
        }
        pages
    }

    /// Closes the files of processes whose spaces are no longer looked at, if there are many.
    fn keep(&mut self, spaces: &[Arc<Managed>]) {
        if self.0.len() == STATMS {
            self.0.retain(|pid, _| spaces.iter().any(|managed| managed.pid() == *pid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_reads_few_of_many_processes_the_newest_and_others_in_turn() {
        let (_, new) = crate::spaces::tests::spaces(1 << 20);
        let spaces: Vec<_> = (1..=1000).map(|id| Arc::new(new(id, 0))).collect();
        let (mut looked, mut seen) = (SpaceId(0), BTreeMap::new());
        for _ in 0..1000_usize.div_ceil(LOOKED - NEWEST) {
            let turn = turn(&spaces, &mut looked);
            assert!(turn.len() <= LOOKED && turn.last().is_some_and(|last| last.id.0 == 1000));
            seen.extend(turn.into_iter().map(|managed| (managed.id, ())));
        }
        assert_eq!(seen.len(), 1000);
        assert_eq!(turn(&spaces[..LOOKED], &mut looked).len(), LOOKED);
    }

    #[test]
    fn half_of_the_time_is_left_to_others_however_long_looks_take() {
        let began = Instant::now();
        for micros in [10, 100, 300, 5_000, 400_000] {
            let took = Duration::from_micros(micros);
            let next = next_after(began, took, LOOKS[0]);
            assert!(next >= began + took * 2, "{took:?}");
            assert!(next >= began + LOOKS[0]);
        }
    }
}
