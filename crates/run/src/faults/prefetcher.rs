//! Brings in pages that programs say they will need (madvise(WILLNEED)): a thread of its own, while
//! they run on.
//!
//! - N1: like what is read ahead of a sequence, a page is filled in only if the table says under
//!   the lock that it is away, where it was found (space/S1, S8). What was unmapped, discarded or
//!   brought in meanwhile is passed over. The prefetcher reads no messages, so faults are never
//!   left to it: while one is unread and the kernel refuses, it waits for a reader.
//! - N2: a call brings in or spares at most a half of the limit; what is beyond stays as it is. So
//!   a range that is larger does not push itself out.
//! - N3: pages take only room that faults leave ([`Budget::room_ahead`]). When there is none, the
//!   evictor makes some, and a call that got none for long is forgotten. No thread waits for the
//!   prefetcher.
//! - N4: few calls of a space wait; further ones are forgotten, and spaces take turns.
//!
//! [`Budget::room_ahead`]: crate::spaces::budget::Budget::room_ahead

use std::time::Duration;

use crate::core::loads::Away;
use crate::core::ranges::Pages;
use crate::faults::answer::Ahead;
use crate::shared::Shared;
use crate::spaces::access::Refused;
use crate::spaces::asked::Needed;
use crate::spaces::managed::{Managed, lock};
use zfold_uffd::page::page_len;

/// The part of the limit that a call may bring in (N2).
const SHARE: usize = 2;
/// Most calls of a space that wait (N4).
const CALLS_MAX: usize = 64;
/// The pause after a refusal: about the time in which the evictor frees a batch.
const PAUSE: Duration = Duration::from_micros(200);
/// Refusals in a row after which a call is forgotten (N3): a second at least.
const REFUSED_MAX: u32 = 5000;
/// How often to look for calls without a signal.
const IDLE: Duration = Duration::from_secs(3600);

/// Records that a program will need these pages; does not wait.
pub(crate) fn ask(shared: &Shared, managed: &Managed, pages: Pages) {
    // A call for memory that is open, such as a file, is not worth waking the thread. A space whose
    // lock is taken is looked at later.
    if managed.try_lock().is_some_and(|space| !space.closed().touches(&pages)) {
        return;
    }
    let left = shared.budget.limit() / SHARE;
    let mut needed = lock(&shared.needed);
    if needed.iter().filter(|other| other.space == managed.id).count() < CALLS_MAX {
        needed.push_back(Needed { space: managed.id, pages, left, refused: 0 });
        drop(needed);
        shared.prefetcher.call();
    }
}

/// Works until it is told to stop.
pub(crate) fn run(shared: &Shared) {
    let mut pause = IDLE;
    while !shared.prefetcher.wait(pause) {
        pause = IDLE;
        loop {
            let Some(mut needed) = lock(&shared.needed).pop_front() else { break };
            let step = step(shared, &mut needed);
            shared.call_evictor_if_high();
            needed.refused = if step == Step::Refused { needed.refused + 1 } else { 0 };
            let is_over = step == Step::Over || needed.pages.is_empty() || needed.left == 0;
            if !is_over && needed.refused < REFUSED_MAX {
                lock(&shared.needed).push_back(needed);
            }
            if step == Step::Refused {
                pause = PAUSE;
                break;
            }
        }
    }
}

/// What became of some of the pages of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// They are there, or will not be brought.
    Done,
    /// There is no room, or a change is in progress: they are tried again.
    Refused,
    /// Nothing more can be done for this call.
    Over,
}

/// Brings in the next pages of a call.
fn step(shared: &Shared, needed: &mut Needed) -> Step {
    let Some(managed) = shared.books.find(needed.space) else { return Step::Over };
    let (Some(access), false) = (managed.access(), managed.is_dead()) else { return Step::Over };
    let room = shared.budget.room_ahead();
    if room == 0 {
        return Step::Refused;
    }
    let before = (needed.pages.clone(), needed.left);
    let ahead = Ahead { shared, access, of: None };
    let mut space = managed.lock();
    let refused = match space.needed(&mut needed.pages, &mut needed.left, room) {
        Away::None => {
            drop(space);
            None
        }
        Away::Cached(pages, slot) => {
            // The lock ensures that a batch is not retired while a page is in it.
            let Some((batch, at)) = lock(&shared.cold.swap_cache).find(slot) else {
                return Step::Over;
            };
            // Only from this batch: the slots of another may follow.
            let len = pages.len().min(batch.len() - at);
            (needed.pages.start, needed.left) =
                (pages.start + len, needed.left + pages.len() - len);
            if batch.is_lost() {
                return Step::Over;
            }
            let mut start = pages.start;
            let refused = batch.pages(at..at + len).find_map(|bytes| {
                let refused = ahead.fill(&mut space, start, &bytes);
                start += bytes.len() / page_len();
                refused
            });
            drop(space);
            refused
        }
        Away::Stored(loads) => ahead.load(&managed, space, &loads),
    };
    match refused {
        None => Step::Done,
        Some(Refused::Again) => {
            (needed.pages, needed.left) = before;
            Step::Refused
        }
        Some(_) => Step::Over,
    }
}
