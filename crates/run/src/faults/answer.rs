//! Answers faults: what a page is asked for, and where it comes from.

use std::sync::Arc;
use std::thread;

use crate::core::loads::{LOADS_MAX, Loads};
use crate::core::pages::Page;
use crate::core::ranges::{PageNo, Pages};
use crate::core::space::{Answer, Released};
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
    /// The page of the last fault that was answered from the store, if what follows it is to be
    /// brought, too.
    follow: Option<PageNo>,
}

impl Answers {
    /// Room for what is read and loaded.
    pub(crate) fn new() -> Self {
        Self { told: Told::default(), buffer: vec![0; LOADS_MAX * PAGE], follow: None }
    }

    /// Returns whether all faults that were read are answered, or left to somebody: who reads
    /// messages of a space has to see to that before it reads those of another, or rests.
    pub(crate) fn are_given(&self) -> bool {
        self.told.faults.is_empty()
    }
}

/// What became of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and none is allocated")]
enum Served {
    /// Who waits is woken.
    Done,
    /// There is no room.
    NoRoom,
    /// A change is not over.
    Again,
    /// It waits for these pages, which are to be loaded; and the number of the load.
    Load(Loads, u64),
}

/// Reads messages of a space, does what they mean, and answers the faults among them.
pub(crate) fn answer(shared: &Shared, managed: &Arc<Managed>, answers: &mut Answers) {
    let mut space = managed.lock();
    messages::read(shared, managed, &mut space, &mut answers.told);
    drop(space);
    answer_told(shared, managed, answers);
    bring_ahead(shared, managed, answers);
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
            Served::Load(loads, number) => {
                match load(shared, managed, access, fault.page, &loads, number, answers) {
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
            let one = Filling { page, pages: one };
            fill(shared, access, space, &one, released, |part| access.zero(part))
        }
        Answer::Zero(pages) => {
            let len = pages.len();
            let filling = Filling { page, pages };
            let served = fill(shared, access, space, &filling, released, |part| access.zero(part));
            counters.first_touches_total.add(1);
            counters.first_touch_pages_total.add(len as u64);
            served
        }
        Answer::Cached(run, slot) => {
            // It is not retired while a page is in it, which the lock sees to; but for the batches
            // of a space that is gone, whose faults nobody waits for.
            let found = lock(&shared.swap_cache).find(slot);
            let Some((batch, at)) = found else { return Served::Done };
            // Of this batch alone: the slots of another may follow.
            let start = page - at.min(page - run.start);
            let pages = start..run.end.min(page + batch.len() - at);
            counters.refaults_total.add(1);
            counters.prefetched_total.add(pages.len() as u64 - 1);
            let filling = Filling { page, pages };
            fill(shared, access, space, &filling, released, |part| {
                let first = at + part.start - page;
                access.copy(part.start, batch.pages(first..first + part.len()))
            })
        }
        Answer::Stored(loads) => Served::Load(loads, space.begin_load()),
    }
}

/// Pages to be filled in, for one of which a thread waits.
#[derive(Debug)]
struct Filling {
    page: PageNo,
    pages: Pages,
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
    let page = filling.page;
    let mut part = filling.pages.clone();
    // What comes one by one is better off with the room that copies would take.
    let keeps = part.len() > 1 && shared.copies.keeps(&shared.budget);
    let refused = loop {
        let (done, refused) = op(&part);
        let reached = part.start + done;
        if done > 0 {
            space.settled();
            space.filled(page, &(part.start..reached), keeps, released);
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
        Some(Refused::Exists) => space.found(page, released),
        Some(Refused::NoMemory) => {
            shared.tracing.end("the system has no memory for a page of the program".to_owned());
        }
        Some(Refused::Elsewhere | Refused::Gone) | None => {}
    }
    access.wake(&(page..page + 1));
    Served::Done
}

/// Reads pages from the store; returns whether that could be done.
fn read(shared: &Shared, loads: &Loads, buffer: &mut [u8]) -> bool {
    for (&(_, key), bytes) in loads.pages().iter().zip(buffer.chunks_exact_mut(PAGE)) {
        match shared.store.load(u64::from(key), bytes) {
            Ok(true) => {}
            Ok(false) => unreachable!("a key in use holds a page"),
            Err(error) => {
                shared.end_load(&error);
                return false;
            }
        }
    }
    true
}

/// Loads pages and fills them in where they are still missing. `None` if `page`, for which a thread
/// waits, is not under its key any more.
fn load(
    shared: &Shared,
    managed: &Managed,
    access: &Access,
    page: PageNo,
    loads: &Loads,
    number: u64,
    answers: &mut Answers,
) -> Option<Outcome> {
    let Answers { told, buffer, follow } = answers;
    let is_read = read(shared, loads, buffer);
    let mut space = managed.lock();
    space.end_load(number, &mut told.released);
    if !is_read {
        return Some(Outcome::Done);
    }
    let first = loads.pages()[0].0;
    let run = space.still(loads).find(|run| run.contains(&(page - first)))?;
    let pages = first + run.start..first + run.end;
    let len = pages.len();
    let copy = |part: &Pages| {
        let bytes = &buffer[(part.start - first) * PAGE..][..part.len() * PAGE];
        access.copy(part.start, bytes)
    };
    let filling = Filling { page, pages };
    let served = fill(shared, access, &mut space, &filling, &mut told.released, copy);
    drop(space);
    if served == Served::Again {
        return Some(Outcome::Again);
    }
    shared.counters.loads_total.add(1);
    shared.counters.prefetched_total.add(len as u64 - 1);
    *follow = Some(page);
    Some(Outcome::Done)
}

/// Brings what follows the last fault that was answered from the store in its sequence, as long as
/// there is room. Nobody waits for that, so it comes after all faults.
fn bring_ahead(shared: &Shared, managed: &Managed, answers: &mut Answers) {
    let Answers { told, buffer, follow } = answers;
    let (Some(page), Some(access)) = (follow.take(), managed.access()) else { return };
    loop {
        let mut space = managed.lock();
        let loads = space.ahead(page, shared.budget.room_ahead());
        if loads.pages().is_empty() || managed.is_dead() {
            break;
        }
        let number = space.begin_load();
        drop(space);
        let is_read = read(shared, &loads, buffer);
        let mut space = managed.lock();
        space.end_load(number, &mut told.released);
        if !is_read || !fill_ahead(shared, access, &mut space, &loads, buffer, &mut told.released) {
            break;
        }
        drop(space);
        told.finish(shared);
        shared.call_evictor_if_high();
    }
    told.finish(shared);
}

/// Fills in what was loaded ahead, where it is still missing; returns whether all of it is there.
fn fill_ahead(
    shared: &Shared,
    access: &Access,
    space: &mut Held<'_>,
    loads: &Loads,
    buffer: &[u8],
    released: &mut Released,
) -> bool {
    let keeps = shared.copies.keeps(&shared.budget);
    for run in space.still(loads) {
        let first = loads.pages()[run.start].0;
        let bytes = &buffer[run.start * PAGE..run.end * PAGE];
        let (done, refused) = access.copy(first, bytes);
        if done > 0 {
            space.settled();
            space.brought(&(first..first + done), keeps, released);
            shared.counters.prefetched_total.add(done as u64);
        }
        if refused.is_some() {
            return false;
        }
    }
    true
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
            matches!(space.page(page), Page::Cached(_) | Page::Stored { .. })
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
