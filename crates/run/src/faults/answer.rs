//! Answers faults: what a page is asked for, and where it comes from.

use std::sync::Arc;
use std::thread;

use crate::core::pages::{Key, Page};
use crate::core::ranges::{PageNo, Pages, run_around};
use crate::core::space::{Answer, LOADS_MAX, Released, Space};
use crate::faults::messages::{self, Told};
use crate::spaces::access::{Access, Refused};
use crate::spaces::asked::{Fault, Pending};
use crate::spaces::managed::{Held, Managed, lock};
use crate::spaces::shared::Shared;
use zfold_uffd::page::PAGE;

/// How often a fault is tried that has to wait for a change to be over, before the watcher does.
const TRIES: u32 = 20;

/// What a thread that answers faults needs.
#[derive(Debug)]
pub(crate) struct Answers {
    pub told: Told,
    buffer: Vec<u8>,
}

impl Answers {
    /// Room for what is read and loaded.
    pub(crate) fn new() -> Self {
        Self { told: Told::default(), buffer: vec![0; LOADS_MAX * PAGE] }
    }

    /// Returns whether all faults that were read are answered, or left to somebody: who reads
    /// messages of a space has to see to that before it reads those of another, or rests.
    pub(crate) fn are_given(&self) -> bool {
        self.told.faults.is_empty()
    }
}

/// What became of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Served {
    /// Who waits is woken.
    Done,
    /// There is no room.
    NoRoom,
    /// A change is not over.
    Again,
    /// It waits for these pages, from the first on, which are pinned in the store.
    Load(PageNo, Vec<Key>),
}

/// Reads messages of a space, does what they mean, and answers the faults among them.
pub(crate) fn answer(shared: &Shared, managed: &Arc<Managed>, answers: &mut Answers) {
    let mut space = managed.lock();
    messages::read(shared, managed, &mut space, &mut answers.told);
    drop(space);
    answer_told(shared, managed, answers);
    if std::mem::take(&mut answers.told.changed) {
        shared.polls.changed(managed);
    }
}

/// Answers the faults that were read, and finishes what else was told.
pub(crate) fn answer_told(shared: &Shared, managed: &Arc<Managed>, answers: &mut Answers) {
    let mut tries = 0;
    while let Some(fault) = answers.told.faults.pop() {
        let free = managed.is_helper(fault.thread);
        match serve(shared, managed, &fault, free, answers) {
            Outcome::Done => tries = 0,
            Outcome::NoRoom => {
                shared.counters.waits_for_room_total.add(1);
                lock(&shared.pending).push_back(Pending { managed: Arc::clone(managed), fault });
                shared.evictor.call();
            }
            Outcome::Again if tries < TRIES => {
                tries += 1;
                answers.told.faults.push(fault);
                thread::yield_now();
            }
            Outcome::Again => {
                tries = 0;
                lock(&shared.retries).push(Pending { managed: Arc::clone(managed), fault });
                shared.watcher.call();
            }
        }
        shared.polls.told(managed, fault.thread);
    }
    answers.told.finish(shared);
}

/// What became of a fault in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Who waits is woken.
    Done,
    /// There is no room.
    NoRoom,
    /// A change is not over.
    Again,
}

/// Answers a fault; `free`: without asking the budget. Messages are read before, and faults among
/// them are added to those to be answered.
pub(crate) fn serve(
    shared: &Shared,
    managed: &Arc<Managed>,
    fault: &Fault,
    free: bool,
    answers: &mut Answers,
) -> Outcome {
    let Some(access) = managed.access() else { return Outcome::Done };
    let mut again = false;
    loop {
        let mut space = managed.lock();
        if managed.is_dead() {
            // What is missing may have been on its way out when its helper went: nobody knows.
            return Outcome::Done;
        }
        if again {
            messages::drain(shared, managed, &mut space, &mut answers.told);
        }
        again = true;
        let served =
            serve_locked(shared, access, &mut space, fault.page, free, &mut answers.told.released);
        drop(space);
        let outcome = match served {
            Served::Done => Outcome::Done,
            Served::NoRoom => Outcome::NoRoom,
            Served::Again => Outcome::Again,
            Served::Load(first, keys) => {
                match load(shared, managed, access, fault.page, first, &keys, answers) {
                    Some(outcome) => outcome,
                    // It is elsewhere by now.
                    None => continue,
                }
            }
        };
        if outcome == Outcome::Done && !free {
            let nanos = fault.since.elapsed().as_nanos() as u64;
            shared.latency.record(nanos);
        }
        return outcome;
    }
}

fn serve_locked(
    shared: &Shared,
    access: &Access,
    space: &mut Held<'_>,
    page: PageNo,
    free: bool,
    released: &mut Released,
) -> Served {
    let room = if free { LOADS_MAX } else { shared.budget.room() };
    let one = page..page + 1;
    let counters = &shared.counters;
    match space.fault(page, room) {
        Answer::NoRoom => Served::NoRoom,
        Answer::Check => {
            counters.spurious_faults_total.add(1);
            let one = Filling { page, pages: one, state: Space::NEW };
            fill(shared, access, space, &one, released, |part| access.zero(part))
        }
        Answer::Zero(pages) => {
            let len = pages.len();
            let filling = Filling { page, pages, state: Space::NEW };
            let served = fill(shared, access, space, &filling, released, |part| access.zero(part));
            counters.first_touches_total.add(1);
            counters.first_touch_pages_total.add(len as u64);
            served
        }
        Answer::Cached(run, slot) => {
            // It is not retired while a page is in it, which the lock sees to.
            let found = lock(&shared.swap_cache).find(slot);
            let (batch, at) = found.expect("a batch stays while a state names it");
            // Of this batch alone: the slots of another may follow.
            let start = page - at.min(page - run.start);
            let pages = start..run.end.min(page + batch.len() - at);
            counters.refaults_total.add(1);
            counters.prefetched_total.add(pages.len() as u64 - 1);
            let filling = Filling { page, pages, state: Space::BACK };
            fill(shared, access, space, &filling, released, |part| {
                let first = at + part.start - page;
                access.copy(part.start, batch.pages(first..first + part.len()))
            })
        }
        Answer::Stored(first, keys) => {
            let mut all = lock(&shared.keys);
            keys.iter().for_each(|&key| all.share(key));
            Served::Load(first, keys)
        }
    }
}

/// Pages to be filled in, for one of which a thread waits, and their state then.
#[derive(Debug)]
struct Filling {
    page: PageNo,
    pages: Pages,
    state: Page,
}

/// Fills in pages.
fn fill(
    shared: &Shared,
    access: &Access,
    space: &mut Held<'_>,
    filling: &Filling,
    released: &mut Released,
    mut op: impl FnMut(&Pages) -> (usize, Option<Refused>),
) -> Served {
    let Filling { page, state, .. } = *filling;
    let mut part = filling.pages.clone();
    let refused = loop {
        let (done, refused) = op(&part);
        let reached = part.start + done;
        if done > 0 {
            space.settled();
            released.extend(space.filled(page, &(part.start..reached), state));
        }
        if reached > page {
            return Served::Done;
        }
        // A closed range may be several mappings, and the kernel fills in one at a time; and what
        // it says of a page below is not said of this one.
        let of_the_page = reached == page && refused != Some(Refused::Elsewhere);
        if part.len() == 1 || of_the_page {
            break refused;
        }
        part = page..page + 1;
    };
    match refused {
        Some(Refused::Again) => return Served::Again,
        Some(Refused::Exists) => released.extend(space.found(page)),
        Some(Refused::NoMemory) => {
            shared.tracing.end("the system has no memory for a page of the program".to_owned());
        }
        Some(Refused::Elsewhere | Refused::Gone) | None => {}
    }
    access.wake(&(page..page + 1));
    Served::Done
}

/// Loads pinned pages, from `first` on, and fills them in where they are still missing. `None` if
/// `page`, for which a thread waits, is not under its key any more.
fn load(
    shared: &Shared,
    managed: &Managed,
    access: &Access,
    page: PageNo,
    first: PageNo,
    keys: &[Key],
    answers: &mut Answers,
) -> Option<Outcome> {
    let Answers { told, buffer } = answers;
    for (key, bytes) in keys.iter().zip(buffer.chunks_exact_mut(PAGE)) {
        match shared.store.load(u64::from(*key), bytes) {
            Ok(true) => {}
            Ok(false) => unreachable!("a key in use holds a page"),
            Err(error) => {
                shared.end_load(&error);
                shared.release_keys(keys.iter().copied());
                return Some(Outcome::Done);
            }
        }
    }
    let mut space = managed.lock();
    let is_same = |at: PageNo| space.page(at) == Page::Stored(keys[at - first]);
    let same = is_same(page).then(|| run_around(page, &(first..first + keys.len()), is_same));
    let outcome = same.clone().map(|same| {
        let copy = |part: &Pages| {
            let bytes = &buffer[(part.start - first) * PAGE..][..part.len() * PAGE];
            access.copy(part.start, bytes)
        };
        let filling = Filling { page, pages: same, state: Space::NEW };
        let served = fill(shared, access, &mut space, &filling, &mut told.released, copy);
        if served == Served::Again { Outcome::Again } else { Outcome::Done }
    });
    drop(space);
    if outcome == Some(Outcome::Done) {
        shared.counters.loads_total.add(1);
        shared.counters.prefetched_total.add(same.map_or(0, |same| same.len() as u64 - 1));
    }
    shared.release_keys(keys.iter().copied());
    told.finish(shared);
    outcome
}

/// Brings in a page, whatever there is room for; returns once it is there, or never will be.
pub(crate) fn bring_in(
    shared: &Shared,
    managed: &Arc<Managed>,
    page: PageNo,
    answers: &mut Answers,
) {
    let mut tried = false;
    while !managed.is_dead() {
        if std::mem::replace(&mut tried, true) {
            forget_if_astray(shared, managed, page, &mut answers.told);
        }
        let away = {
            let space = managed.lock();
            matches!(space.page(page), Page::Cached(_) | Page::Stored(_))
        };
        if !away {
            return answer_told(shared, managed, answers);
        }
        let fault = Fault { page, thread: 0, since: std::time::Instant::now() };
        if serve(shared, managed, &fault, true, answers) == Outcome::Again {
            thread::sleep(std::time::Duration::from_micros(50));
        }
        answer_told(shared, managed, answers);
    }
}

/// Forgets a page whose mapping is not registered, and so cannot be filled in: in a child of fork,
/// what its parent does not pass on, or had unmapped just before and told of after that.
fn forget_if_astray(shared: &Shared, managed: &Arc<Managed>, page: PageNo, told: &mut Told) {
    let Some(access) = managed.access() else { return };
    let one = page..page + 1;
    let mut space = managed.lock();
    messages::drain(shared, managed, &mut space, told);
    // The kernel looks for untold changes first, then for the mapping. So when it says so a second
    // time, nothing was untold that it had found the first time.
    let is_astray = || access.doubt(&one) == Some(Refused::Elsewhere);
    if is_astray() && is_astray() {
        told.released.extend(space.forget(&one));
    }
}
