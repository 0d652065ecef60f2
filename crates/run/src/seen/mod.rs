//! How much of its memory a program uses: at each look, the pages of a [`sample`] are found that
//! were accessed since the last one, and are marked anew (`zfold_uffd::Uffd::watch`).
//!
//! Accesses are seen in closed memory. All that is open counts as touched, and so does closed
//! memory that cannot be marked: what had no access when it was closed. So the figures say how much
//! was touched *at most*; and there are none before any memory is closed, or where the kernel does
//! not tell (before Linux 7.3).
//!
//! - A1: a mark is a hint, from which figures are made, and by which the hand chooses pages
//!   (`zfold_uffd::policy::watched`). What a page holds, and whether it may leave, never depends on
//!   it.
//! - A2: no thread ever waits at a mark: a descriptor has both features for accesses, or neither.
//! - A3: a guest's memory is not of a run. Nothing here marks pages so that they can be copied and
//!   dropped.
//! - A4: only pages of closed ranges are marked, under the lock of their space; so never a staging,
//!   which zfold reads (space/S6).
//! - A5: a range that is no longer registered has no marks. To mark it then fails, which is no
//!   mistake.
//! - A6: "touched" may be wrong in the safe direction: pages that were locked, came along with
//!   others, or are a part of a huge page. "Not touched" is wrong only for what accesses memory
//!   without a mapping, and for the moment between a look and the new mark.
//! - A7: the hand and the sample set marks anew. Whoever does has said before which of these pages
//!   were accessed, and the other one takes that for what it saw itself, once
//!   (`core::pages::told`); so neither takes the other's evidence away.

mod sample;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use zfold_uffd::page::page_len;
use zfold_uffd::policy::Era;

use self::sample::{Found, PERIOD, Sample};
use crate::core::pages::told::{Bits, CHUNK as AT_ONCE, PART, bits_of};
use crate::core::ranges::{Pages, Ranges};
use crate::faults::answer::enter;
use crate::figures::Touched;
use crate::shared::Shared;
use crate::spaces::access::Access;
use crate::spaces::managed::{Managed, lock};
use crate::spaces::signal::Signal;

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Ends the thread that looks.
    pub signal: Signal,
    /// A leaf in the lock order.
    touched: Mutex<Option<Touched>>,
}

impl Seen {
    /// Returns how much was touched, if anything was seen.
    pub(crate) fn touched(&self) -> Option<Touched> {
        *lock(&self.touched)
    }

    /// Looks until it is told to stop.
    pub(crate) fn run(&self, shared: &Shared) {
        let mut looks = Looks::new(shared);
        let mut due = Instant::now() + PERIOD;
        while !self.signal.wait(due.saturating_duration_since(Instant::now())) {
            if Instant::now() < due {
                continue;
            }
            due = Instant::now() + PERIOD;
            let touched = looks.look(shared);
            *lock(&self.touched) = touched;
        }
    }
}

/// Looks at the spaces of a run.
pub(crate) struct Looks {
    sample: Sample,
    /// When it looked last.
    era: Era,
    touched: Option<Touched>,
}

impl Looks {
    /// Returns looks of which none has been made.
    pub(crate) fn new(shared: &Shared) -> Self {
        Self { sample: Sample::default(), era: shared.budget.now(), touched: None }
    }

    /// The same that look at one of 2^`least` parts at most.
    #[cfg(test)]
    pub(crate) fn at_few(shared: &Shared, least: u32) -> Self {
        Self { sample: Sample::at_few(least), ..Self::new(shared) }
    }

    /// Looks at the sample of all spaces; returns the figures. Calls are [`PERIOD`] apart.
    ///
    /// # Cost
    /// 20 ns for each page of the sample that is there, 200 for each that was accessed; a
    /// microsecond for each 2 MiB of memory that is closed.
    pub(crate) fn look(&mut self, shared: &Shared) -> Option<Touched> {
        let before = std::mem::replace(&mut self.era, shared.budget.now());
        let spaces = shared.books.all();
        let attached: Vec<_> =
            spaces.iter().filter(|space| !space.is_dead() && space.access().is_some()).collect();
        let counts = attached.iter().map(|space| space.lock().counts());
        let (known, present) = counts.fold((0, 0), |(known, present), of| {
            (known + of.present + of.cached + of.stored, present + of.present)
        });
        self.sample.begin(known, present);
        for managed in attached {
            let refused = look_at(managed, &mut self.sample, before);
            if !refused.is_empty() {
                register_again(shared, managed, &refused);
            }
        }
        let open = spaces.iter().map(|space| space.open()).sum();
        let old = self.touched.unwrap_or_default();
        // Where all has been given up, nothing was touched of late.
        let found = self.sample.end().or(self.touched.map(|_| Default::default()))?;
        self.touched = Some(figures(found, open, old));
        self.touched
    }
}

/// Looks at the sample of a space; returns what of it cannot be marked.
fn look_at(managed: &Managed, sample: &mut Sample, era: Era) -> Vec<Pages> {
    let (mut parts, mut refused) = (Vec::new(), Vec::new());
    let Some(access) = managed.access() else { return refused };
    for first in managed.lock().table().parts() {
        let all = (first..first + AT_ONCE).step_by(PART);
        parts.extend(all.filter(|&first| sample.takes((managed.id, first))));
    }
    for near in parts.chunk_by(|one, next| one / AT_ONCE == next / AT_ONCE) {
        let runs = near.chunk_by(|one, next| one + PART == *next);
        let runs: Vec<Pages> = runs.map(|run| run[0]..run[run.len() - 1] + PART).collect();
        // Nothing comes or leaves, or is opened, between the look and the mark.
        let mut space = managed.lock();
        let known: Vec<_> = near.iter().map(|&first| space.table().part(first, era)).collect();
        let mut accessed = Bits::default();
        if known.iter().any(|part| part.present != 0) {
            accessed = look_and_mark(managed.pid(), access, space.closed(), &runs, &mut refused);
        }
        for (&first, part) in near.iter().zip(known) {
            let seen = accessed[first % AT_ONCE / PART];
            sample.saw((managed.id, first), part, seen | space.sampled(first, seen));
        }
        drop(space);
    }
    refused
}

/// Registers what could not be marked once more: it may have become accessible, as the heap of a
/// thread does as it grows.
fn register_again(shared: &Shared, managed: &Arc<Managed>, refused: &[Pages]) {
    let Some(access) = managed.access() else { return };
    let is_sure = enter(shared, managed, |space| {
        let parts: Vec<_> = refused.iter().flat_map(|part| space.closed().within(part)).collect();
        parts.iter().for_each(|part| drop(access.register(managed.pid(), part)));
        parts.iter().all(|part| access.doubt(part).is_none())
    });
    if is_sure {
        return;
    }
    // What has taken its place since the messages were read is not closed (close/C1).
    enter(shared, managed, |space| {
        let others = refused.iter().flat_map(|part| space.closed().without(part));
        others.for_each(|part| drop(access.unregister(&part)));
    });
}

/// Finds the pages of ranges within 2 MiB that were accessed, and marks all. What is refused counts
/// as accessed.
fn look_and_mark(
    pid: i32,
    access: &Access,
    closed: &Ranges,
    runs: &[Pages],
    refused: &mut Vec<Pages>,
) -> Bits {
    // All of them before any is marked, which may mark the others as well.
    let mut touched: Vec<Pages> = Vec::new();
    for run in runs {
        touched.extend(access.accessed(pid, run).unwrap_or_else(|_| vec![run.clone()]));
    }
    let before = refused.len();
    // To mark a part of a huge page would split it.
    let is_huge = |run: &Pages| {
        run.len() < AT_ONCE && access.huge(pid, run).is_ok_and(|huge| !huge.is_empty())
    };
    if runs.iter().any(is_huge) {
        let first = runs[0].start - runs[0].start % AT_ONCE;
        mark(access, closed, &(first..first + AT_ONCE), refused);
    } else {
        runs.iter().for_each(|run| mark(access, closed, run, refused));
    }
    touched.extend_from_slice(&refused[before..]);
    bits_of(touched)
}

/// Marks pages; adds those that cannot be marked to `refused`.
fn mark(access: &Access, closed: &Ranges, pages: &Pages, refused: &mut Vec<Pages>) {
    for piece in closed.within(pages) {
        if access.watch(&piece).is_err() {
            // One of its mappings cannot be marked, mostly.
            let parts = piece.clone().step_by(PART).map(|at| at..piece.end.min(at + PART));
            refused.extend(parts.filter(|part| access.watch(part).is_err()));
        }
    }
}

/// Returns the figures after a look, from those before.
fn figures(found: [Found; 3], unseen: usize, before: Touched) -> Touched {
    let bytes = |pages: usize| (pages * page_len()) as u64;
    let [short, minute, long] = found;
    let peak = |before: u64, found: Found| before.max(bytes(found.pages + found.error + unseen));
    let peak_minute = peak(before.peak_touched_1min_bytes, minute);
    Touched {
        touched_10s_bytes: bytes(short.pages + unseen),
        touched_10s_error_bytes: bytes(short.error),
        touched_1min_bytes: bytes(minute.pages + unseen),
        touched_1min_error_bytes: bytes(minute.error),
        touched_10min_bytes: bytes(long.pages + unseen),
        touched_10min_error_bytes: bytes(long.error),
        peak_touched_10s_bytes: peak(before.peak_touched_10s_bytes, short),
        peak_touched_1min_bytes: peak_minute,
        peak_touched_10min_bytes: peak(before.peak_touched_10min_bytes, long),
        enough_limit_bytes: enough(peak_minute),
    }
}

/// Returns the least limit, in whole mebibytes, under which so much can stay: pages leave before it
/// is reached (`spaces::budget`).
fn enough(bytes: u64) -> u64 {
    const SHARE: u64 = 32;
    const MOST: u64 = 8 << 20;
    (bytes + (bytes / (SHARE - 1)).min(MOST)).next_multiple_of(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spaces::budget::Budget;

    #[test]
    fn under_a_limit_that_is_enough_nothing_leaves() {
        for mib in [5, 31, 310, 5000] {
            let enough = enough(mib << 20);
            let budget = Budget::new(enough, true);
            budget.change(0, (mib << 20) as usize / page_len());
            assert!(!budget.is_high(), "{mib} of {enough}");
            assert!(enough <= (mib << 20) * 21 / 20 + (1 << 20), "{mib} of {enough}");
        }
    }

    #[test]
    fn figures_have_what_is_not_seen_and_the_most_so_far() {
        let found = |pages, error| Found { pages, error };
        let all = |pages| [found(pages, 1), found(2 * pages, 2), found(3 * pages, 3)];
        let before = figures(all(100), 7, Touched::default());
        let of = |pages: usize| (pages * page_len()) as u64;
        assert_eq!(before.touched_1min_bytes, of(207));
        assert_eq!(before.touched_1min_error_bytes, of(2));
        let now = figures(all(10), 0, before);
        assert_eq!((now.touched_10s_bytes, now.touched_10min_bytes), (of(10), of(30)));
        assert_eq!((now.peak_touched_10s_bytes, now.peak_touched_1min_bytes), (of(108), of(209)));
        assert_eq!(now.enough_limit_bytes, before.enough_limit_bytes);
    }
}
