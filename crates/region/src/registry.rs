//! The table of all regions, which the signal handler searches without a lock.
//!
//! - R1: an entry's space stays alive while its pointer is in the table and while `inside` is not
//!   zero. A thread announces itself in `inside` before it reads the pointer; a thread that removes
//!   the pointer reads `inside` afterwards (both `SeqCst`).

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::core::Core;
use super::space::Space;

/// Most regions of a process.
pub(super) const REGIONS_MAX: usize = 1024;

/// A region and the memory that it belongs to.
#[derive(Debug)]
pub(super) struct Managed {
    pub core: Arc<Core>,
    pub space: Arc<Space>,
}

#[derive(Debug)]
struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
    managed: AtomicPtr<Managed>,
    inside: AtomicU32,
}

impl Entry {
    const fn empty() -> Self {
        Self {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            managed: AtomicPtr::new(std::ptr::null_mut()),
            inside: AtomicU32::new(0),
        }
    }
}

static ENTRIES: [Entry; REGIONS_MAX] = [const { Entry::empty() }; REGIONS_MAX];

/// Entries that were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Calls `with` for the region of an address, if there is one.
pub(super) fn find<R>(address: usize, with: impl Fn(&Managed) -> R) -> Option<R> {
    let used = USED.load(Ordering::Acquire);
    for entry in &ENTRIES[..used.min(REGIONS_MAX)] {
        // Relaxed: a first look, which is repeated under R1.
        let (start, end) = (entry.start.load(Ordering::Relaxed), entry.end.load(Ordering::Relaxed));
        if !(start..end).contains(&address) {
            continue;
        }
        entry.inside.fetch_add(1, Ordering::SeqCst);
        let managed = entry.managed.load(Ordering::SeqCst);
        // SAFETY: not null, so it is in the table after this thread has announced itself (R1).
        let managed = (!managed.is_null()).then(|| unsafe { &*managed });
        let found = managed.filter(|managed| managed.space.contains(address)).map(&with);
        entry.inside.fetch_sub(1, Ordering::SeqCst);
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Hides entries of the same addresses: those of regions of the parent process, which a forked
/// child does not have, so that one of its own regions may lie there.
fn hide(start: usize, end: usize) {
    for entry in &ENTRIES {
        let theirs = entry.start.load(Ordering::Relaxed)..entry.end.load(Ordering::Relaxed);
        if theirs.start < end && start < theirs.end {
            entry.start.store(0, Ordering::Relaxed);
            entry.end.store(0, Ordering::Relaxed);
        }
    }
}

/// Makes a region known. `false` if there are too many.
pub(super) fn add(managed: Managed) -> bool {
    let (start, end) = (managed.space.range().start, managed.space.range().end);
    hide(start, end);
    let managed = Box::into_raw(Box::new(managed));
    for (at, entry) in ENTRIES.iter().enumerate() {
        let null = std::ptr::null_mut();
        let free =
            entry.managed.compare_exchange(null, managed, Ordering::SeqCst, Ordering::Relaxed);
        if free.is_ok() {
            entry.end.store(end, Ordering::Relaxed);
            entry.start.store(start, Ordering::Relaxed);
            // Release: a thread that sees the count sees the addresses.
            USED.fetch_max(at + 1, Ordering::AcqRel);
            return true;
        }
    }
    // SAFETY: made above, and no other thread has seen it.
    drop(unsafe { Box::from_raw(managed) });
    false
}

/// Removes a region; waits for threads that are using its entry.
pub(super) fn remove(space: &Arc<Space>) {
    for entry in &ENTRIES {
        let managed = entry.managed.load(Ordering::SeqCst);
        // Only the owner of a region removes it, so its own entry cannot go meanwhile; the
        // addresses identify it.
        if managed.is_null() || entry.start.load(Ordering::Relaxed) != space.range().start {
            continue;
        }
        entry.start.store(0, Ordering::Relaxed);
        entry.end.store(0, Ordering::Relaxed);
        entry.managed.store(std::ptr::null_mut(), Ordering::SeqCst);
        while entry.inside.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
        // SAFETY: made by `add`, out of the table, and no thread is inside (R1).
        drop(unsafe { Box::from_raw(managed) });
        return;
    }
}
