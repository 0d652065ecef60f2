//! Pages that must be present when a thread ends: the kernel clears the thread's number and walks
//! its robust mutexes, and does not wait for pages then. Without them, threads that wait for these
//! would wait for ever.
//!
//! - E1: such a page is kept from before it is looked up until no thread has that number any
//!   longer: the kernel's accesses lie in between.
//! - E2: a list of robust mutexes belongs to the program, and may contain anything. No more entries
//!   are read than the kernel reads ([`ENTRIES_MAX`]). Pages come in only where the table says that
//!   they are away. A word is read only if its page was found present, and in a way that waits for
//!   no userfaultfd: so neither a page that is never filled in nor a file that is never served
//!   blocks this thread. A word that cannot be read ends the list.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::core::ranges::{PageNo, Pages, page_of};
use crate::faults::answer::bring_in;
use crate::link::{Ending, SpaceId, Ticket};
use crate::shared::Shared;
use crate::spaces::asked::Task;
use crate::spaces::managed::{Held, Managed, lock};
use crate::sys::process::is_there;
use zfold_uffd::page::page_len;

/// Most robust mutexes of a thread.
const ENTRIES_MAX: usize = 2048;
/// Bytes of a thread number, and of the word of a robust mutex.
const NUMBER: usize = 4;
/// Bytes of a pointer or offset. The list begins with three of them: to the first entry, from an
/// entry to its mutex, and to the entry that was about to be added or removed.
const WORD: usize = 8;
const HEAD: usize = 3 * WORD;
/// Beyond any address of a program, also with five levels of page tables.
const END: usize = 1 << 56;

/// The thread of `ticket` is about to end; see [`crate::link::Memory::ends`]. Does not wait.
pub(crate) fn begin(shared: &Shared, space: SpaceId, ending: &Ending<'_>, ticket: Ticket) -> bool {
    let Some(managed) = shared.books.find(space) else { return true };
    if managed.access().is_none() || managed.is_dead() {
        return true;
    }
    let number = ending.tid_at.map(|at| pages_at(at, NUMBER));
    let head = ending.robust.map(|at| pages_at(at, HEAD));
    let pages: Vec<_> = [number, head].into_iter().flatten().flatten().collect();
    {
        let mut kept = lock(&managed.kept);
        if kept.is_look_due() {
            kept.look(is_there);
        }
        pages.iter().for_each(|&page| kept.add(ticket.thread, page));
    }
    let is_ready = managed.try_lock().is_some_and(|space| {
        !pages.iter().any(|&page| space.page(page).is_away())
            && has_no_mutex(&managed, &space, ending)
    });
    if !is_ready {
        shared.ask(managed, Task::End { pages, robust: ending.robust }, Some(ticket));
    }
    is_ready
}

/// Brings in the pages that the kernel needs when a thread ends.
pub(crate) fn bring(
    shared: &Shared,
    managed: &Arc<Managed>,
    thread: i32,
    pages: &[PageNo],
    robust: Option<usize>,
) {
    for &page in pages {
        bring_in(shared, managed, page);
    }
    // By the thread's number, since the first thread of its process may have ended.
    if let Some(head) = robust
        && let Ok(memory) = File::open(format!("/proc/{thread}/mem"))
    {
        Walk { shared, managed, thread, memory }.walk(head);
    }
}

/// The pages of `len` bytes; none where no program has any.
fn pages_at(at: usize, len: usize) -> Pages {
    if at >= END { 0..0 } else { page_of(at)..(at + len).div_ceil(page_len()) }
}

/// Returns whether pages are present; false if that cannot be found out.
fn are_there(managed: &Managed, pages: &Pages) -> bool {
    let found = managed.access().map(|access| access.present(managed.pid(), pages));
    matches!(found, Some(Ok(found)) if found == [pages.clone()])
}

/// Returns whether a list of robust mutexes, none of whose pages is away, is empty or cannot be
/// read, by the kernel either.
fn has_no_mutex(managed: &Managed, space: &Held<'_>, ending: &Ending<'_>) -> bool {
    let Some(head) = ending.robust else { return true };
    let pages = pages_at(head, HEAD);
    // In a closed range, only pages of zeros are missing.
    let is_closed = pages.clone().all(|page| space.page(page).is_present());
    if !is_closed && !are_there(managed, &pages) {
        return true;
    }
    let word = |at: usize| (ending.word)(head.wrapping_add(at)).map(entry_of);
    word(0).is_none_or(|first| first == head) && word(2 * WORD).is_none_or(|pending| pending == 0)
}

/// The entry that a pointer names; the lowest bit is a flag of the mutex.
fn entry_of(pointer: usize) -> usize {
    pointer & !1
}

/// A walk through the robust mutexes of a thread that is held.
struct Walk<'a> {
    shared: &'a Shared,
    managed: &'a Arc<Managed>,
    thread: i32,
    memory: File,
}

impl Walk<'_> {
    fn walk(&self, head: usize) {
        let words = [0, WORD, 2 * WORD].map(|at| self.word(head.wrapping_add(at)));
        let [Some(first), Some(offset), Some(pending)] = words else { return };
        let mut entry = entry_of(first);
        for _ in 0..ENTRIES_MAX {
            if entry == head {
                break;
            }
            self.bring(&pages_at(entry.wrapping_add(offset), NUMBER));
            let Some(next) = self.word(entry) else { break };
            entry = entry_of(next);
        }
        if entry_of(pending) != 0 {
            self.bring(&pages_at(entry_of(pending).wrapping_add(offset), NUMBER));
        }
    }

    /// Brings pages in and keeps them (E1).
    fn bring(&self, pages: &Pages) {
        for page in pages.clone() {
            lock(&self.managed.kept).add(self.thread, page);
            bring_in(self.shared, self.managed, page);
        }
    }

    /// Reads a word, if it is there (E2).
    fn word(&self, at: usize) -> Option<usize> {
        let pages = pages_at(at, WORD);
        self.bring(&pages);
        let mut bytes = [0; WORD];
        let got = are_there(self.managed, &pages)
            && self.memory.read_exact_at(&mut bytes, at as u64).is_ok();
        got.then(|| usize::from_ne_bytes(bytes))
    }
}
