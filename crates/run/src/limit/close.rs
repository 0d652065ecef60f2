//! Closes memory: from then on the kernel reports missing pages and changes there.
//!
//! Invariants:
//! - C1: a range is closed only if the kernel has confirmed, after its pages were read, that each
//!   of its mappings is registered and that no change is unread ([`look`]).
//! - C2: closing fills no page in: afterwards a range is charged for the pages that the program has
//!   touched.
//! - C3: neighbouring mappings are closed together, whatever their protection, and count together
//!   in the decision whether they are large enough. A mapping that cannot be closed does not keep
//!   its neighbours open.
//! - C4: if part of a range is closed, only the rest is closed, and the states of the first part
//!   stay: by C1 no change is unread, so it is still the same mapping. Only the rest is registered,
//!   and unregistered if the kernel refuses. Otherwise a new mapping in place of the first part
//!   would be registered and not closed, and a mapping of which only a part is registered does not
//!   move as one.
//! - C5: memory that a thread is about to make the program's own stays open from before its call
//!   until the call has returned, however long that takes; then the mappings show whether it is. So
//!   pending requests are read before the mappings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::ranges::{Pages, Ranges, bytes_of, common, pages_of};
use crate::faults::answer::enter;
use crate::shared::Shared;
use crate::spaces::access::{Access, Refused};
use crate::spaces::managed::{Held, Managed, lock};
use crate::spaces::maps::{Mapping, mappings, mappings_in, marked_of};
use crate::spaces::survey::Survey;
use crate::sys::procmap::within;
use zfold_uffd::page::pages_in;

/// Most present pages that are closed under one hold of the lock.
const SLICE: usize = 8192;
/// Most pages, present or not, that are closed under one hold of the lock. Programs reserve
/// terabytes of which they touch little, and the check that a slice is closed makes the kernel
/// allocate a page table for it ([`look`]).
const SLICE_SPAN: usize = 1 << 21;
/// A mapping with fewer bytes stays open, unless there are many of them: closing it would cost more
/// than it gains.
const CLOSE_BYTES_MIN: usize = 64 << 10;
/// The pause after reading the mappings, as a multiple of the time that took; it doubles each time
/// that there was nothing to close, up to the second number.
const SURVEY_REST: [u32; 2] = [10, 320];
/// The same for a check of which memory is the program's own, which costs more.
const OWN_REST: u32 = 50;
/// The shortest time between two of these checks.
const OWN_REST_MIN: Duration = Duration::from_millis(200);

/// Returns the fewest pages of a mapping that is worth closing.
pub(crate) fn close_min() -> usize {
    pages_in(CLOSE_BYTES_MIN)
}

/// Closes the mappings of an attached space that are worth it.
pub(crate) fn close_open(shared: &Shared, managed: &Arc<Managed>) {
    let began = Instant::now();
    look_at_own(shared, managed);
    let mut open = runs(mappings(managed.pid()).unwrap_or_default());
    open.sort_by_key(|run| std::cmp::Reverse(run.len()));
    // Small mappings only if they hold much in total.
    let much = shared.budget.much();
    let mut found = false;
    for run in open {
        if run.len() < close_min() && managed.open() < much {
            break;
        }
        for part in closable(shared, managed, &run) {
            found |= close_slices(shared, managed, &part);
        }
    }
    let mut survey = lock(&managed.survey);
    let [least, most] = SURVEY_REST;
    let before = survey.map_or(least, |last| last.rest);
    let rest = if found { least } else { most.min(before * 2) };
    let (at, took) = (Instant::now(), began.elapsed());
    *survey = Some(Survey { at, took, left: managed.open(), rest });
}

/// Returns the ranges of neighbouring mappings that can be closed, in order.
fn runs(mappings: Vec<Mapping>) -> Vec<Pages> {
    let mut runs: Vec<Pages> = Vec::new();
    for Mapping { pages, other } in mappings {
        match runs.last_mut() {
            _ if other => {}
            Some(run) if run.end == pages.start => run.end = pages.end,
            _ => runs.push(pages),
        }
    }
    runs
}

/// Takes back memory that was left to the program and is no longer its own, unless that was checked
/// recently: no message reports it.
fn look_at_own(shared: &Shared, managed: &Arc<Managed>) {
    let mut next = lock(&managed.next_look_at_own);
    let due = next.is_none_or(|due| due <= Instant::now());
    if !due || managed.lock().own().is_empty() {
        return;
    }
    let began = Instant::now();
    enter(shared, managed, |space| {
        let mut own = Ranges::default();
        lock(&managed.asked_for).values().for_each(|pages| own.insert(pages.clone()));
        let Ok(mappings) = marked_of(managed) else { return };
        let ours = space.closed().clone();
        let helpers = space.helpers().all.clone();
        for mapping in mappings {
            let watched = mapping.registered && !ours.touches(&mapping.pages);
            let is_helpers = !common(&mapping.pages, &helpers).is_empty();
            if mapping.wiped || (watched && !is_helpers) {
                own.insert(mapping.pages);
            }
        }
        space.set_own(own);
    });
    *next = Some(Instant::now() + (began.elapsed() * OWN_REST).max(OWN_REST_MIN));
}

/// Closes the open parts of a range in slices: its mappings together if possible. Returns whether
/// any of it was closed.
pub(crate) fn close_slices(shared: &Shared, managed: &Arc<Managed>, pages: &Pages) -> bool {
    let Some(access) = managed.access() else { return false };
    let open = managed.lock().closed().without(pages);
    // More pages may be present by the time that it is closed, which is only slower.
    let there = |part: Pages| {
        let present = access.present(managed.pid(), &part).unwrap_or_default();
        slices(&part, &present)
    };
    let mut found = false;
    for slice in open.into_iter().flat_map(there) {
        if close(shared, managed, &slice, 0) {
            found = true;
            continue;
        }
        // One of its mappings has changed, which does not keep the others open.
        for mapping in mappings_in(managed.pid(), &slice).unwrap_or_default() {
            if !mapping.other && mapping.pages != slice {
                found |= close(shared, managed, &mapping.pages, 0);
            }
        }
    }
    found
}

/// Cuts a range with these present pages into slices.
fn slices(pages: &Pages, present: &[Pages]) -> Vec<Pages> {
    let mut slices = Vec::new();
    let (mut start, mut there) = (pages.start, 0);
    let mut cut_at = |end: usize| {
        while start < end {
            let slice = start..end.min(start + SLICE_SPAN);
            start = slice.end;
            slices.push(slice);
        }
    };
    for part in present {
        let mut from = part.start;
        while there + (part.end - from) >= SLICE {
            from += SLICE - there;
            cut_at(from);
            there = 0;
        }
        there += part.end - from;
    }
    cut_at(pages.end);
    slices
}

/// Closes the open parts of a range, whose present pages leave after `age` passes, if it is
/// anonymous memory. Returns whether all of it is closed.
pub(crate) fn close(shared: &Shared, managed: &Arc<Managed>, range: &Pages, age: u8) -> bool {
    let Some(access) = managed.access() else { return false };
    // All under the lock: a page that is found present must not be discarded meanwhile, and a fault
    // must find the range closed.
    enter(shared, managed, |space| {
        space.may_close(range) && close_rest(managed, access, space, range, age).is_ok()
    })
}

/// Why a range stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// A change is unread.
    Again,
    /// Not all of it is mapped, or it is another kind of memory.
    Other,
}

/// Closes the open parts of a range, under the lock of its space and after its messages were read.
///
/// # Errors
/// It stays open.
pub(crate) fn close_rest(
    managed: &Managed,
    access: &Access,
    space: &mut Held<'_>,
    range: &Pages,
    age: u8,
) -> Result<(), Open> {
    let open = space.closed().without(range);
    if open.is_empty() {
        return Ok(());
    }
    let registered = open.iter().all(|part| access.register(managed.pid(), part).is_ok());
    let looked = if registered { look(managed, access, range) } else { Err(Open::Other) };
    let present = looked.inspect_err(|_| {
        // It is tried again with the mappings of that time.
        open.iter().for_each(|part| drop(access.unregister(part)));
    })?;
    // Before they are charged as closed, when the lock is released.
    managed.closed(space.close(range, &present, age));
    Ok(())
}

/// Checks a range that was registered before, under the lock of the space; returns which of its
/// pages are present.
///
/// Success of the registration proves little: a mapping that was unmapped just before it, and is
/// mapped again just after, is not registered, and its changes are not reported. So it is checked
/// afterwards, by a call that the kernel refuses if a change is unread or a part is not registered.
/// A part that is registered then was registered when the pages were read: no other thread
/// registers, and an unmapping in between would be unread.
///
/// # Errors
/// It has to stay open.
pub(crate) fn look(managed: &Managed, access: &Access, range: &Pages) -> Result<Ranges, Open> {
    let present = access.present(managed.pid(), range).map_err(|_| Open::Other)?;
    let present = present.into_iter().collect();
    let prove = |part: &Pages| match access.doubt(part) {
        None => Ok(()),
        Some(Refused::Again) => Err(Open::Again),
        Some(_) => Err(Open::Other),
    };
    if let done @ (Ok(()) | Err(Open::Again)) = prove(range) {
        return done.map(|()| present);
    }
    // Several mappings, which are checked one by one.
    let vmas = within(managed.pid(), &bytes_of(range)).map_err(|_| Open::Other)?;
    let mut proven = range.start;
    for part in vmas.iter().map(|vma| pages_of(&vma.range)) {
        if part.start > proven {
            return Err(Open::Other);
        }
        prove(&part)?;
        proven = part.end;
    }
    if proven == range.end { Ok(present) } else { Err(Open::Other) }
}

/// Returns the parts of a range that may be closed: neither the program's own nor the helper's.
pub(crate) fn closable(shared: &Shared, managed: &Managed, pages: &Pages) -> Vec<Pages> {
    let space = managed.lock();
    let helpers = space.helpers().all.clone();
    let parts = space.own().without(&common(pages, &shared.window));
    drop(space);
    let around = |part: Pages| {
        [part.start..part.end.min(helpers.start), part.start.max(helpers.end)..part.end]
    };
    let mut parts: Vec<_> = parts.into_iter().flat_map(around).collect();
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_have_so_much_that_is_there_and_so_much_in_all() {
        let all = |pages: Pages, present: &[Pages]| slices(&pages, present);
        assert_eq!(all(5..5, &[]), Vec::<Pages>::new());
        let one = all(5..SLICE_SPAN, &[7..9, 10..12]);
        assert_eq!((one.len(), &one[0]), (1, &(5..SLICE_SPAN)));
        let span = |n: usize| 5 + n * SLICE_SPAN;
        assert_eq!(all(5..span(2) + 1, &[]), [5..span(1), span(1)..span(2), span(2)..span(2) + 1]);
        // Cut where so many are there, however they lie.
        let whole = 0..3 * SLICE;
        assert_eq!(
            all(whole.clone(), &[whole]),
            [0..SLICE, SLICE..2 * SLICE, 2 * SLICE..3 * SLICE]
        );
        let parts = [7..SLICE, 2 * SLICE..2 * SLICE + 6, 7 * SLICE..9 * SLICE];
        assert_eq!(
            all(0..9 * SLICE, &parts),
            [0..7 * SLICE + 1, 7 * SLICE + 1..8 * SLICE + 1, 8 * SLICE + 1..9 * SLICE]
        );
    }

    #[test]
    fn neighbours_are_one_run_whatever_their_protection() {
        let mapping = |pages, other| Mapping { pages, other };
        let all = [
            mapping(1..2, false),
            mapping(3..8, false),
            mapping(8..19, false),
            mapping(19..20, true),
            mapping(20..25, false),
            mapping(25..26, false),
        ];
        assert_eq!(runs(all.to_vec()), [1..2, 3..19, 20..26]);
        assert!(runs(Vec::new()).is_empty());
    }
}
