//! Answers faults: what a page is asked for, where it comes from, and the threads that do it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use super::access::{Access, Filled};
use super::managed::{Managed, Reader, lock};
use super::pages::{Key, Page, SlotNo};
use super::ranges::{PAGE, PageNo, Pages};
use super::shared::{Pending, Shared};
use super::space::{Answer, LOADS_MAX, Space};
use crate::sys::interrupt::Interruptible;

/// Threads that read the faults of a space, at most: one for each CPU.
const READERS: usize = 4;

/// Room for pages that are loaded.
pub(crate) type Buffer = Vec<u8>;

/// Returns such a buffer.
pub(crate) fn buffer() -> Buffer {
    vec![0; LOADS_MAX * PAGE]
}

/// Starts the threads that answer the faults of a space. Each runs on one CPU: a thread that
/// faults there wakes it without an interrupt of another CPU, which costs more than the answer.
///
/// # Errors
/// The system starts no thread; those that were started run.
pub(crate) fn start_readers(shared: &Arc<Shared>, managed: &Arc<Managed>) -> std::io::Result<()> {
    for cpu in cpus() {
        let interruptible = Arc::new(Interruptible::default());
        let (shared, here) = (Arc::clone(shared), Arc::clone(managed));
        let entered = Arc::clone(&interruptible);
        let name = format!("faults-{}-{cpu}", managed.id.0);
        let thread = thread::Builder::new().name(name).stack_size(128 << 10).spawn(move || {
            entered.enter();
            pin(cpu);
            read_faults(&shared, &here);
        })?;
        lock(&managed.readers).push(Reader { interruptible, thread });
    }
    Ok(())
}

/// CPUs that this process may use, the first few.
fn cpus() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return vec![0];
    };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).take(READERS).collect()
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    // Elsewhere it is slower, not wrong.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

fn read_faults(shared: &Shared, managed: &Arc<Managed>) {
    let access = managed.access().expect("readers start when it is attached");
    let mut buffer = buffer();
    while !managed.is_dead() {
        let Ok(fault) = access.next_fault() else {
            // Interrupted, or the descriptor is of no use any more.
            continue;
        };
        let Some((page, thread)) = fault else {
            continue;
        };
        let begin = Instant::now();
        let free = access.is_helper(thread);
        if serve(shared, managed, page, free, &mut buffer) {
            let nanos = begin.elapsed().as_nanos() as u64;
            lock(&shared.latency).saturating_record(nanos);
        } else {
            shared.counters.waiting_faults.add(1);
            lock(&shared.pending).push_back(Pending { managed: Arc::clone(managed), page });
            shared.call_evictor();
        }
        shared.call_evictor_if_high();
    }
}

/// Answers a fault; `free`: without asking the budget. Returns false if there is no room.
pub(crate) fn serve(
    shared: &Shared,
    managed: &Managed,
    page: PageNo,
    free: bool,
    buffer: &mut Buffer,
) -> bool {
    let Some(access) = managed.access() else {
        return true;
    };
    let room = if free { LOADS_MAX } else { shared.budget.room() };
    let mut space = managed.lock();
    let answer = space.fault(page, room);
    match answer {
        Answer::NoRoom => return false,
        Answer::Later => {}
        Answer::Unknown | Answer::There => {
            // Under the lock, so that the page does not leave meanwhile: it is there, or it is
            // one that the kernel dropped (MADV_FREE) or made by itself (a stack that grew).
            access.zero(page..page + 1);
            shared.counters.spurious_faults.add(1);
        }
        Answer::Zero(pages) => {
            drop(space);
            fill_zeros(shared, managed, access, pages);
        }
        Answer::Chance(slot) => {
            // Found under the lock: the batch is not retired while a page is in it.
            let found = lock(&shared.chances).find(slot);
            drop(space);
            let (batch, at) = found.expect("a batch stays while a state names it");
            fill_chance(shared, managed, access, page, slot, batch.page(at));
        }
        Answer::Stored(keys) => {
            drop(space);
            fill_stored(shared, managed, access, page, &keys, buffer);
        }
    }
    true
}

fn fill_zeros(shared: &Shared, managed: &Managed, access: &Access, pages: Pages) {
    let done = done_of(shared, managed, access.zero(pages.clone()), pages.len());
    arrived(managed, &pages, |at| if at < done { Space::NEW } else { Page::Absent });
    shared.counters.zero_faults.add(1);
    shared.counters.zero_pages.add(done);
    if done < pages.len() {
        // Again: who was woken by the attempt may have found the page still arriving.
        access.wake(&pages);
    }
}

fn fill_chance(
    shared: &Shared,
    managed: &Managed,
    access: &Access,
    page: PageNo,
    slot: SlotNo,
    bytes: &[u8],
) {
    let done = done_of(shared, managed, access.copy(page, bytes), 1);
    shared.counters.chance_faults.add(1);
    if done == 1 {
        arrived(managed, &(page..page + 1), |_| Space::BACK);
        return;
    }
    let mut space = managed.lock();
    // The batch may have been retired since, with nobody in it.
    let state = match lock(&shared.chances).find(slot) {
        Some(_) => Page::Chance(slot),
        None => shared.keep(bytes),
    };
    space.arrived(page, state);
    drop(space);
    managed.settle();
    access.wake(&(page..page + 1));
}

fn fill_stored(
    shared: &Shared,
    managed: &Managed,
    access: &Access,
    first: PageNo,
    keys: &[Key],
    buffer: &mut Buffer,
) {
    let bytes = &mut buffer[..keys.len() * PAGE];
    for (key, page) in keys.iter().zip(bytes.chunks_exact_mut(PAGE)) {
        match shared.store.load(u64::from(*key), page) {
            Ok(true) => {}
            Ok(false) => unreachable!("a key in use holds a page"),
            Err(error) => return shared.end_load(&error),
        }
    }
    let pages = first..first + keys.len();
    let done = done_of(shared, managed, access.copy(first, bytes), keys.len());
    arrived(managed, &pages, |at| if at < done { Space::NEW } else { Page::Stored(keys[at]) });
    shared.counters.stored_faults.add(1);
    shared.counters.prefetched.add(done.saturating_sub(1));
    shared.release_keys(keys[..done].iter().copied());
    if done < keys.len() {
        access.wake(&pages);
    }
}

/// How many pages of an attempt are there.
fn done_of(shared: &Shared, managed: &Managed, filled: Filled, all: usize) -> usize {
    match filled {
        Filled::All => all,
        Filled::UpTo(done) => done,
        // Nobody waits for them any more.
        Filled::Gone => {
            managed.dead.store(true, Ordering::Relaxed);
            0
        }
        Filled::NoMemory => {
            shared.tracing.end("the system has no memory for a page of the program".to_owned());
            0
        }
    }
}

fn arrived(managed: &Managed, pages: &Pages, state: impl Fn(usize) -> Page) {
    let mut space = managed.lock();
    for (at, page) in pages.clone().enumerate() {
        space.arrived(page, state(at));
    }
    drop(space);
    managed.settle();
}
