//! Answers faults: decides where a missing page comes from, and fills it in.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::thread;

use crate::core::loads::{LOADS_BYTES, Loads, loads_max};
use crate::core::ranges::{PageNo, Pages};
use crate::core::space::{Answer, Released, ZEROS_BYTES};
use crate::faults::messages::{self, Told};
use crate::shared::Shared;
use crate::spaces::access::{Access, Refused};
use crate::spaces::asked::{Fault, Pending};
use crate::spaces::managed::{Held, Managed, lock};
use zfold_uffd::page::page_len;

/// How often a fault that has to wait for a change is tried before it is left to the watcher.
const TRIES: u32 = 20;

/// The state of a thread that answers faults.
#[derive(Debug)]
pub(crate) struct Answers {
    pub told: Told,
    buffer: Vec<u8>,
    /// Zeros, as many as are filled in at once; never written to, so they take no memory.
    zeros: Vec<u8>,
    /// The page of the last fault that was answered from the store, if the pages that follow are to
    /// be read ahead.
    follow: Option<PageNo>,
}

impl Answers {
    /// Makes the buffers for messages and loaded pages.
    pub(crate) fn new() -> Self {
        Self {
            told: Told::default(),
            buffer: vec![0; LOADS_BYTES],
            zeros: vec![0; ZEROS_BYTES],
            follow: None,
        }
    }

    /// Returns whether all faults that were read are answered, or left to another thread: a thread
    /// that reads a space's messages must ensure that before it reads another's, or rests.
    pub(crate) fn are_given(&self) -> bool {
        self.told.faults.is_empty()
    }
}

/// Reads and processes messages of a space, and answers the faults among them.
pub(crate) fn answer(shared: &Shared, managed: &Arc<Managed>, answers: &mut Answers) {
    let mut space = managed.lock();
    messages::read(shared, managed, &mut space, &mut answers.told);
    drop(space);
    answer_told(shared, managed, answers);
    bring_ahead(shared, managed, answers);
    if std::mem::take(&mut answers.told.changed) {
        shared.books.polls.changed(managed);
    }
}

/// Does something under the lock of a space whose messages are all read, and answers the faults
/// among them before it returns: so whoever enters a space leaves nothing behind there. `act` adds
/// states that it takes out to what is to be released.
pub(crate) fn enter<T>(
    shared: &Shared,
    managed: &Arc<Managed>,
    answers: &mut Answers,
    act: impl FnOnce(&mut Held<'_>, &mut Released) -> T,
) -> T {
    let mut space = managed.lock();
    messages::drain(shared, managed, &mut space, &mut answers.told);
    let done = act(&mut space, &mut answers.told.released);
    drop(space);
    answer_told(shared, managed, answers);
    done
}

/// Answers the faults that were read, and finishes the other messages.
pub(crate) fn answer_told(shared: &Shared, managed: &Arc<Managed>, answers: &mut Answers) {
    let mut tries = 0;
    while let Some(fault) = answers.told.faults.pop() {
        let free = managed.is_helper(fault.thread);
        match serve(shared, managed, &fault, free, answers) {
            Outcome::Done => tries = 0,
            Outcome::NoRoom => {
                shared.counters.waits_for_room_total.add(1);
                lock(&shared.pending).add(Pending { managed: Arc::clone(managed), fault });
                shared.evictor.call();
            }
            Outcome::Again if tries < TRIES => {
                tries += 1;
                answers.told.faults.push(fault);
                thread::yield_now();
            }
            Outcome::Again => {
                tries = 0;
                shared.retry(Pending { managed: Arc::clone(managed), fault });
            }
        }
        shared.books.polls.told(managed, fault.thread);
    }
    answers.told.finish(shared);
}

/// What became of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The waiting thread is woken.
    Done,
    /// There is no room.
    NoRoom,
    /// A change is in progress.
    Again,
}

/// Answers a fault; `free`: without asking the budget. Reads messages first, and adds the faults
/// among them to those to be answered.
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
            // A missing page may have been on its way out when the helper ended; this cannot be
            // known.
            return Outcome::Done;
        }
        if again {
            messages::drain(shared, managed, &mut space, &mut answers.told);
        }
        again = true;
        let served = serve_locked(shared, access, &mut space, fault, free, answers);
        drop(space);
        let outcome = match served {
            ControlFlow::Break(outcome) => outcome,
            ControlFlow::Continue((loads, number)) => {
                match load(shared, managed, access, fault.page, &loads, number, answers) {
                    Some(outcome) => outcome,
                    // The page is elsewhere by now.
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

/// Answers a fault under the lock of the space, or returns what it waits for: pages that are to be
/// loaded, and the number of the load.
fn serve_locked(
    shared: &Shared,
    access: &Access,
    space: &mut Held<'_>,
    fault: &Fault,
    free: bool,
    answers: &mut Answers,
) -> ControlFlow<Outcome, (Loads, u64)> {
    let page = fault.page;
    let Answers { told: Told { released, .. }, zeros, .. } = answers;
    let room = if free { loads_max() } else { shared.budget.room() };
    let one = page..page + 1;
    let counters = &shared.counters;
    ControlFlow::Break(match space.fault(page, room) {
        Answer::NoRoom => Outcome::NoRoom,
        Answer::Check => {
            counters.spurious_faults_total.add(1);
            let one = Filling { page, pages: one };
            fill(shared, access, space, &one, released, |part| access.zero(part))
        }
        Answer::Zero(pages) => {
            let len = pages.len();
            let filling = Filling { page, pages };
            // The kernel's page of zeros costs no memory, but a second fault when it is written to.
            let served = fill(shared, access, space, &filling, released, |part| {
                if fault.writes {
                    access.copy(part.start, &zeros[..part.len() * page_len()])
                } else {
                    access.zero(part)
                }
            });
            counters.first_touches_total.add(1);
            counters.first_touch_pages_total.add(len as u64);
            served
        }
        Answer::Cached(run, slot) => {
            // The lock ensures that a batch is not retired while a page is in it, except batches of
            // a space that is gone, for whose faults no thread waits.
            let found = lock(&shared.cold.swap_cache).find(slot);
            let Some((batch, at)) = found else { return ControlFlow::Break(Outcome::Done) };
            // Only from this batch: the slots of another may follow.
            let start = page - at.min(page - run.start);
            let pages = start..run.end.min(page + batch.len() - at);
            if batch.is_lost() {
                return ControlFlow::Break(Outcome::Done);
            }
            counters.refaults_total.add(1);
            counters.prefetched_total.add(pages.len() as u64 - 1);
            let filling = Filling { page, pages };
            fill(shared, access, space, &filling, released, |part| {
                let first = at + part.start - page;
                access.copy(part.start, &batch.pages(first..first + part.len()))
            })
        }
        Answer::Stored(loads) => return ControlFlow::Continue((loads, space.begin_load())),
    })
}

/// Pages to be filled in; a thread waits for one of them.
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
) -> Outcome {
    let page = filling.page;
    let mut part = filling.pages.clone();
    // Pages that come one by one benefit more from the room that copies would take.
    let keeps = part.len() > 1 && shared.cold.keeps(space.reach(page));
    let refused = loop {
        let (done, refused) = op(&part);
        let reached = part.start + done;
        if done > 0 {
            space.settled();
            space.filled(page, &(part.start..reached), keeps, released);
        }
        if reached > page {
            return Outcome::Done;
        }
        // A closed range may be several mappings, and the kernel fills in one at a time; and its
        // answer for a lower page does not hold for this one.
        let of_the_page = reached == page && refused != Some(Refused::Elsewhere);
        if part.len() == 1 || of_the_page {
            break refused;
        }
        part = page..page + 1;
    };
    match refused {
        Some(Refused::Again) => return Outcome::Again,
        Some(Refused::Exists) => space.found(page, released),
        Some(Refused::NoMemory) => {
            shared.end("the system has no memory for a page of the program".to_owned());
        }
        Some(Refused::Elsewhere | Refused::Gone) | None => {}
    }
    access.wake(&(page..page + 1));
    Outcome::Done
}

/// Reads pages from the store; returns whether that could be done.
fn read(shared: &Shared, loads: &Loads, buffer: &mut [u8]) -> bool {
    for (&(_, key), bytes) in loads.pages().iter().zip(buffer.chunks_exact_mut(page_len())) {
        match shared.cold.store.load(u64::from(key), bytes) {
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
/// waits, no longer has its key.
fn load(
    shared: &Shared,
    managed: &Managed,
    access: &Access,
    page: PageNo,
    loads: &Loads,
    number: u64,
    answers: &mut Answers,
) -> Option<Outcome> {
    let Answers { told, buffer, follow, .. } = answers;
    let is_read = read(shared, loads, buffer);
    let mut space = managed.lock();
    space.end_load(number, &mut told.released);
    if !is_read {
        return Some(Outcome::Done);
    }
    let first = loads.pages()[0].0;
    let run = space.still(loads).find(|run| run.contains(&(page - first)))?;
    let mut pages = first + run.start..first + run.end;
    // Others may have taken the room since the load began.
    if pages.len() > shared.budget.room() {
        pages = page..page + 1;
    }
    let len = pages.len();
    let copy = |part: &Pages| {
        let bytes = &buffer[(part.start - first) * page_len()..][..part.len() * page_len()];
        access.copy(part.start, bytes)
    };
    let filling = Filling { page, pages };
    let served = fill(shared, access, &mut space, &filling, &mut told.released, copy);
    drop(space);
    if served == Outcome::Again {
        return Some(Outcome::Again);
    }
    shared.counters.loads_total.add(1);
    shared.counters.prefetched_total.add(len as u64 - 1);
    *follow = Some(page);
    Some(Outcome::Done)
}

/// Reads ahead in the sequence of the last fault that was answered from the store, as long as there
/// is room. No thread waits for these pages, so they come after all faults.
fn bring_ahead(shared: &Shared, managed: &Managed, answers: &mut Answers) {
    let Answers { told, buffer, follow, .. } = answers;
    let (Some(page), Some(access)) = (follow.take(), managed.access()) else { return };
    loop {
        let mut space = managed.lock();
        let loads = space.ahead(page, shared.budget.room_ahead());
        if loads.pages().is_empty() || managed.is_dead() {
            break;
        }
        let ahead = Ahead { shared, access, of: Some(page) };
        let refused = ahead.load(managed, space, &loads, buffer, &mut told.released);
        told.finish(shared);
        if refused.is_some() {
            break;
        }
        shared.call_evictor_if_high();
    }
    told.finish(shared);
}

/// Brings in pages for which no thread waits.
pub(super) struct Ahead<'a> {
    pub shared: &'a Shared,
    pub access: &'a Access,
    /// The last fault of their sequence. `None`: the program has asked for them, and the hand
    /// spares them.
    pub of: Option<PageNo>,
}

impl Ahead<'_> {
    /// Loads pages and fills in those that are still missing, as [`fill`](Self::fill) does; none if
    /// others have taken the room since the load began.
    pub(super) fn load(
        &self,
        managed: &Managed,
        mut space: Held<'_>,
        loads: &Loads,
        buffer: &mut [u8],
        released: &mut Released,
    ) -> Option<Refused> {
        let number = space.begin_load();
        drop(space);
        let is_read = read(self.shared, loads, buffer);
        let mut space = managed.lock();
        space.end_load(number, released);
        if !is_read {
            return Some(Refused::Gone);
        }
        if loads.pages().len() > self.shared.budget.room() {
            return Some(Refused::Again);
        }
        space.still(loads).find_map(|Range { start, end }| {
            let bytes = &buffer[start * page_len()..end * page_len()];
            self.fill(&mut space, loads.pages()[start].0, bytes, released)
        })
    }

    /// Fills in neighbours that are away; returns why not all, unless only some of them cannot be
    /// filled in.
    pub(super) fn fill(
        &self,
        space: &mut Held<'_>,
        mut first: PageNo,
        mut bytes: &[u8],
        released: &mut Released,
    ) -> Option<Refused> {
        // Now, when others have left: while the pages were read, room for copies may have come.
        let keeps = self.shared.cold.keeps(self.of.map_or(0, |page| space.reach(page)));
        let mut most = bytes.len() / page_len();
        while !bytes.is_empty() {
            let len = bytes.len().min(most * page_len());
            let (mut done, refused) = self.access.copy(first, &bytes[..len]);
            if done > 0 {
                let pages = first..first + done;
                space.settled();
                space.brought(&pages, keeps, released);
                if self.of.is_none() {
                    space.spare(&pages);
                }
                self.shared.counters.prefetched_total.add(done as u64);
            }
            match refused {
                // A closed range may be several mappings, and the kernel fills in one at a time.
                Some(Refused::Elsewhere) if done == 0 && most > 1 => most = 1,
                Some(Refused::Exists) if done == 0 => {
                    space.found(first, released);
                    done = 1;
                }
                Some(Refused::Elsewhere) if done == 0 => done = 1,
                None | Some(Refused::Elsewhere | Refused::Exists) => {}
                Some(_) => return refused,
            }
            first += done;
            bytes = &bytes[done * page_len()..];
        }
        None
    }
}

/// Brings in a page even if there is no room; returns once it is present, or may never be.
pub(crate) fn bring_in(
    shared: &Shared,
    managed: &Arc<Managed>,
    page: PageNo,
    answers: &mut Answers,
) {
    let mut tried = false;
    while !managed.is_dead() && !shared.is_ending() {
        if std::mem::replace(&mut tried, true) {
            forget_if_astray(shared, managed, page, &mut answers.told);
        }
        let is_away = managed.lock().page(page).is_away();
        if !is_away {
            return answer_told(shared, managed, answers);
        }
        let since = std::time::Instant::now();
        let fault = Fault { page, thread: 0, writes: false, since };
        if serve(shared, managed, &fault, true, answers) == Outcome::Again {
            thread::sleep(std::time::Duration::from_micros(50));
        }
        answer_told(shared, managed, answers);
    }
}

/// Forgets a page whose mapping is not registered, and so cannot be filled in: in a child of fork,
/// a mapping that the parent does not pass on, or had unmapped just before, with the message
/// following later.
fn forget_if_astray(shared: &Shared, managed: &Arc<Managed>, page: PageNo, told: &mut Told) {
    let Some(access) = managed.access() else { return };
    let one = page..page + 1;
    let mut space = managed.lock();
    messages::drain(shared, managed, &mut space, told);
    // The kernel checks for unread changes first, then for the mapping. So if it gives this answer
    // a second time, no change that could explain the first answer was unread.
    let is_astray = || access.doubt(&one) == Some(Refused::Elsewhere);
    if is_astray() && is_astray() {
        told.released.extend(space.forget(&one));
    }
}
