//! Answers faults: decides where a missing page comes from, and fills it in.
//!
//! Any thread does, for a space that it has entered (shared/B1). A fault that cannot be answered
//! yet is left to the evictor or to the watcher (shared/B3). A page that no thread waits for, but
//! that must come, is a fault of thread 0: whoever wants it looks whether it is there.

use std::cell::RefCell;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::core::loads::{LOADS_BYTES, Loads, loads_max};
use crate::core::ranges::{PageNo, Pages};
use crate::core::space::{Answer, ZEROS_BYTES};
use crate::faults::messages;
use crate::shared::Shared;
use crate::spaces::access::{Access, Refused};
use crate::spaces::asked::Pending;
use crate::spaces::mailbox::Fault;
use crate::spaces::managed::{Held, Managed, lock};
use zfold_uffd::page::page_len;

/// How often a fault that has to wait for a change is tried before it is left to the watcher.
const TRIES: u32 = 20;

/// The pause before a page is tried again for which no thread waits.
const PAUSE: Duration = Duration::from_micros(50);

/// Zeros, as many as are filled in at once; never written to, so they take no memory.
static ZEROS: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; ZEROS_BYTES]);

thread_local! {
    /// Pages that this thread has read from the store.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; LOADS_BYTES]);
}

/// Reads and processes messages of a space, and answers the faults in its box.
pub(crate) fn answer(shared: &Shared, managed: &Arc<Managed>) {
    let is_changed = messages::read(shared, managed, &mut managed.lock());
    if let Some(page) = answer_faults(shared, managed) {
        bring_ahead(shared, managed, page);
    }
    if is_changed == Some(true) {
        shared.books.polls.changed(managed);
    }
}

/// Does something under the lock of a space whose messages are all read, and answers the faults in
/// its box before it returns: so whoever enters a space leaves nothing behind there.
pub(crate) fn enter<T>(
    shared: &Shared,
    managed: &Arc<Managed>,
    act: impl FnOnce(&mut Held<'_>) -> T,
) -> T {
    let mut space = managed.lock();
    messages::drain(shared, managed, &mut space);
    let done = act(&mut space);
    drop(space);
    answer_faults(shared, managed);
    done
}

/// Answers the faults in a space's box, or leaves them to other threads, until there are none.
/// Returns the page of the last one that was answered from the store.
pub(crate) fn answer_faults(shared: &Shared, managed: &Arc<Managed>) -> Option<PageNo> {
    let (mut tries, mut last) = (0, None);
    while let Some(fault) = managed.faults.take() {
        let pending = || Pending { managed: Arc::clone(managed), fault };
        match serve(shared, managed, &fault) {
            Outcome::Done => tries = 0,
            Outcome::Loaded => (tries, last) = (0, Some(fault.page)),
            Outcome::NoRoom => {
                lock(&shared.pending).add(pending());
                shared.evictor.call();
            }
            Outcome::Again if tries < TRIES => {
                tries += 1;
                managed.faults.put_back(fault);
                thread::yield_now();
            }
            Outcome::Again => {
                tries = 0;
                // What nobody waits for is tried again by the thread that wants it.
                if fault.thread != 0 {
                    shared.retry(pending());
                }
            }
        }
        shared.books.polls.told(managed, fault.thread);
    }
    last
}

/// What became of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The waiting thread is woken.
    Done,
    /// The same, and its page came from the store.
    Loaded,
    /// There is no room.
    NoRoom,
    /// A change is in progress.
    Again,
}

/// Answers a fault. May read messages.
fn serve(shared: &Shared, managed: &Arc<Managed>, fault: &Fault) -> Outcome {
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
            messages::drain(shared, managed, &mut space);
        }
        again = true;
        let outcome = match serve_locked(shared, access, &mut space, fault) {
            ControlFlow::Break(outcome) => Some(outcome),
            ControlFlow::Continue(loads) => load(shared, managed, space, &loads, |space, bytes| {
                fill_loaded(shared, access, space, fault.page, &loads, bytes)
            }),
        };
        // Otherwise the page is elsewhere by now.
        if let Some(outcome) = outcome {
            if matches!(outcome, Outcome::Done | Outcome::Loaded) && !fault.free {
                shared.latency.record(fault.since.elapsed().as_nanos() as u64);
            }
            return outcome;
        }
    }
}

/// Answers a fault under the lock of the space, or returns what it waits for: pages that are to be
/// loaded.
fn serve_locked(
    shared: &Shared,
    access: &Access,
    space: &mut Held<'_>,
    fault: &Fault,
) -> ControlFlow<Outcome, Loads> {
    let page = fault.page;
    let room = if fault.free { loads_max() } else { shared.budget.room() };
    let counters = &shared.counters;
    ControlFlow::Break(match space.fault(page, room) {
        Answer::NoRoom => Outcome::NoRoom,
        Answer::Check => {
            fill(shared, access, space, page, page..page + 1, |part| access.zero(part))
        }
        Answer::Zero(pages) => {
            // The kernel's page of zeros costs no memory, but a second fault when it is written to.
            let served = fill(shared, access, space, page, pages, |part| {
                if fault.writes {
                    access.copy(part.start, &ZEROS[..part.len() * page_len()])
                } else {
                    access.zero(part)
                }
            });
            counters.first_touches_total.add(1);
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
            fill(shared, access, space, page, pages, |part| {
                let (first, mut done) = (at + part.start - page, 0);
                for bytes in batch.pages(first..first + part.len()) {
                    let (some, refused) = access.copy(part.start + done, &bytes);
                    done += some;
                    if refused.is_some() {
                        return (done, refused);
                    }
                }
                (done, None)
            })
        }
        Answer::Stored(loads) => return ControlFlow::Continue(loads),
    })
}

/// Fills in pages; a thread waits for one of them, `page`.
fn fill(
    shared: &Shared,
    access: &Access,
    space: &mut Held<'_>,
    page: PageNo,
    mut part: Pages,
    mut op: impl FnMut(&Pages) -> (usize, Option<Refused>),
) -> Outcome {
    // Pages that come one by one benefit more from the room that copies would take.
    let keeps = part.len() > 1 && shared.cold.keeps(space.reach(page));
    let refused = loop {
        let (done, refused) = op(&part);
        let reached = part.start + done;
        if done > 0 {
            space.settled();
            space.filled(page, &(part.start..reached), keeps);
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
        Some(Refused::Exists) => space.found(page),
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
    for (&(_, key), bytes) in loads.iter().zip(buffer.chunks_exact_mut(page_len())) {
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

/// Reads pages from the store without the lock of their space. When that is taken again, `then`
/// gets their bytes; none if they cannot be read.
fn load<T>(
    shared: &Shared,
    managed: &Managed,
    mut space: Held<'_>,
    loads: &Loads,
    then: impl FnOnce(&mut Held<'_>, Option<&[u8]>) -> T,
) -> T {
    let number = space.begin_load();
    drop(space);
    BUFFER.with_borrow_mut(|buffer| {
        let is_read = read(shared, loads, buffer);
        let mut space = managed.lock();
        space.end_load(number);
        then(&mut space, is_read.then_some(buffer.as_slice()))
    })
}

/// Fills loaded pages in where they are still missing. `None` if `page`, for which a thread waits,
/// no longer has its key.
fn fill_loaded(
    shared: &Shared,
    access: &Access,
    space: &mut Held<'_>,
    page: PageNo,
    loads: &Loads,
    bytes: Option<&[u8]>,
) -> Option<Outcome> {
    let Some(bytes) = bytes else { return Some(Outcome::Done) };
    let first = loads[0].0;
    let run = space.still(loads).find(|run| run.contains(&(page - first)))?;
    let mut pages = first + run.start..first + run.end;
    // Others may have taken the room since the load began.
    if pages.len() > shared.budget.room() {
        pages = page..page + 1;
    }
    let len = pages.len();
    let served = fill(shared, access, space, page, pages, |part| {
        access.copy(
            part.start,
            &bytes[(part.start - first) * page_len()..][..part.len() * page_len()],
        )
    });
    if served == Outcome::Again {
        return Some(Outcome::Again);
    }
    shared.counters.loads_total.add(1);
    shared.counters.prefetched_total.add(len as u64 - 1);
    Some(Outcome::Loaded)
}

/// Reads ahead in the sequence of the last fault that was answered from the store, at `page`, as
/// long as there is room. No thread waits for these pages, so they come after all faults.
fn bring_ahead(shared: &Shared, managed: &Managed, page: PageNo) {
    let Some(access) = managed.access() else { return };
    loop {
        let mut space = managed.lock();
        let loads = space.ahead(page, shared.budget.room_ahead());
        if loads.is_empty() || managed.is_dead() {
            return;
        }
        let is_done = load(shared, managed, space, &loads, |space, bytes| {
            // Others may have taken the room since the load began.
            let has_room = loads.len() <= shared.budget.room();
            let Some(bytes) = bytes.filter(|_| has_room) else { return false };
            // Now, when others have left: while the pages were read, room for copies may have come.
            let keeps = shared.cold.keeps(space.reach(page));
            let runs: Vec<_> = space.still(&loads).collect();
            runs.into_iter().all(|Range { start, end }| {
                let bytes = &bytes[start * page_len()..end * page_len()];
                fill_ahead(shared, access, space, loads[start].0, bytes, keeps)
            })
        });
        if !is_done {
            return;
        }
        shared.call_evictor_if_high();
    }
}

/// Fills in neighbours that are away; returns whether more can be, though some of these cannot.
fn fill_ahead(
    shared: &Shared,
    access: &Access,
    space: &mut Held<'_>,
    mut first: PageNo,
    mut bytes: &[u8],
    keeps: bool,
) -> bool {
    let mut most = bytes.len() / page_len();
    while !bytes.is_empty() {
        let len = bytes.len().min(most * page_len());
        let (mut done, refused) = access.copy(first, &bytes[..len]);
        if done > 0 {
            space.settled();
            space.brought(&(first..first + done), keeps);
            shared.counters.prefetched_total.add(done as u64);
        }
        match refused {
            // A closed range may be several mappings, and the kernel fills in one at a time.
            Some(Refused::Elsewhere) if done == 0 && most > 1 => most = 1,
            Some(Refused::Exists) if done == 0 => {
                space.found(first);
                done = 1;
            }
            Some(Refused::Elsewhere) if done == 0 => done = 1,
            None | Some(Refused::Elsewhere | Refused::Exists) => {}
            Some(_) => return false,
        }
        first += done;
        bytes = &bytes[done * page_len()..];
    }
    true
}

/// Brings in a page even if there is no room; returns once it is present, or may never be.
pub(crate) fn bring_in(shared: &Shared, managed: &Arc<Managed>, page: PageNo) {
    let fault = Fault { page, thread: 0, writes: false, free: true, since: Instant::now() };
    let is_wanted =
        || !managed.is_dead() && !shared.is_ending() && managed.lock().page(page).is_away();
    while is_wanted() {
        managed.faults.put_back(fault);
        answer_faults(shared, managed);
        if is_wanted() && !forget_if_astray(shared, managed, page) {
            thread::sleep(PAUSE);
        }
    }
    answer_faults(shared, managed);
}

/// Forgets a page whose mapping is not registered, and so cannot be filled in: in a child of fork,
/// a mapping that the parent does not pass on, or had unmapped just before, with the message
/// following later. Returns whether it is such a page.
fn forget_if_astray(shared: &Shared, managed: &Arc<Managed>, page: PageNo) -> bool {
    let Some(access) = managed.access() else { return false };
    let one = page..page + 1;
    let mut space = managed.lock();
    messages::drain(shared, managed, &mut space);
    // The kernel checks for unread changes first, then for the mapping. So if it gives this answer
    // a second time, no change that could explain the first answer was unread.
    let is_elsewhere = || access.doubt(&one) == Some(Refused::Elsewhere);
    let is_astray = is_elsewhere() && is_elsewhere();
    if is_astray {
        space.forget(&one);
    }
    is_astray
}
