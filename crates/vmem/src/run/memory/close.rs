//! Closes memory: from then on the kernel tells of missing pages and of changes there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::access::{Access, Refused};
use super::faults::{Answers, answer_told};
use super::managed::{Managed, lock};
use super::maps::{mappings, marked};
use super::messages::drain;
use super::shared::Shared;
use crate::run::core::ranges::{Pages, Ranges, bytes_of, common, pages_of};
use crate::run::sys::procmap::within;

/// Pages that are closed under one hold of the lock.
const SLICE: usize = 8192;
/// A mapping with fewer pages stays open, unless there are many such: it would cost more than it
/// gives.
pub(crate) const CLOSE_MIN: usize = 16;
/// After reading the mappings, this many times as long passes before they are read again.
const SURVEY_REST: u32 = 10;
/// The same of a look at what is the program's own, which costs more.
const OWN_REST: u32 = 50;
/// How long what a program asked for stays its own, whatever its mappings say.
const ASKED_FOR: Duration = Duration::from_millis(200);

/// Closes the mappings of an attached space that are worth it.
pub(crate) fn close_open(shared: &Shared, managed: &Arc<Managed>, answers: &mut Answers) {
    let began = Instant::now();
    shared.counters.surveys.add(1);
    look_at_own(shared, managed, answers);
    let open = mappings(managed.pid()).unwrap_or_default();
    let mut open: Vec<_> = open.into_iter().filter(|mapping| !mapping.other).collect();
    open.sort_by_key(|mapping| std::cmp::Reverse(mapping.pages.len()));
    // Small ones only if there is much in them.
    let much = shared.budget.much();
    for mapping in open {
        if mapping.pages.len() < CLOSE_MIN && managed.open() < much {
            break;
        }
        for part in closable(shared, managed, &mapping.pages) {
            close_slices(shared, managed, &part, answers);
        }
    }
    let next = Instant::now() + began.elapsed() * SURVEY_REST;
    *lock(&managed.next_survey) = Some((next, managed.open()));
}

/// Forgets what was left to the program and is not its own any more, if that was not looked at
/// lately: nobody tells of it.
fn look_at_own(shared: &Shared, managed: &Arc<Managed>, answers: &mut Answers) {
    let mut next = lock(&managed.next_look_at_own);
    let due = next.is_none_or(|due| due <= Instant::now());
    if !due || managed.lock().own().is_empty() {
        return;
    }
    let began = Instant::now();
    let mut space = managed.lock();
    drain(shared, managed, &mut space, &mut answers.told);
    if let Ok(mappings) = marked(managed.pid()) {
        let mut own = Ranges::default();
        let ours = space.closed().clone();
        let helpers = space.helpers().all.clone();
        for mapping in mappings {
            let watched = mapping.registered && !ours.touches(&mapping.pages);
            let is_helpers = !common(&mapping.pages, &helpers).is_empty();
            if mapping.wiped || (watched && !is_helpers) {
                own.insert(mapping.pages);
            }
        }
        // A thread that has asked for it may not have made its call yet.
        let mut asked = lock(&managed.asked_for);
        asked.retain(|(since, _)| since.elapsed() < ASKED_FOR);
        asked.iter().for_each(|(_, pages)| own.insert(pages.clone()));
        drop(asked);
        space.set_own(own);
    }
    drop(space);
    answer_told(shared, managed, answers);
    *next = Some(Instant::now() + (began.elapsed() * OWN_REST).max(ASKED_FOR));
}

pub(super) fn close_slices(
    shared: &Shared,
    managed: &Arc<Managed>,
    pages: &Pages,
    answers: &mut Answers,
) {
    let mut from = pages.start;
    while from < pages.end {
        let slice = from..pages.end.min(from + SLICE);
        from = slice.end;
        let open = managed.lock().closed().without(&slice);
        for part in open {
            close(shared, managed, &part, 0, answers);
        }
    }
}

/// Closes a range, of which what is there leaves after `age` passes; not one of which anything is
/// closed, or which is no anonymous memory.
pub(crate) fn close(
    shared: &Shared,
    managed: &Arc<Managed>,
    range: &Pages,
    age: u8,
    answers: &mut Answers,
) {
    let Some(access) = managed.access() else { return };
    // All under the lock: a page that is found present must not be given up meanwhile, and a
    // fault must find the range closed.
    let mut space = managed.lock();
    drain(shared, managed, &mut space, &mut answers.told);
    let registered = space.may_close(range) && access.register(range).is_ok();
    match registered.then(|| look(managed, access, range)) {
        Some(Look::Present(present)) => {
            let pages = present.iter().map(|part| part.len()).sum();
            space.close(range, &present, age);
            // Before they are charged as closed, when the lock is released.
            managed.closed(pages);
            drop(space);
            shared.counters.closed_pages.add(range.len());
        }
        Some(_) => {
            // It is tried again with what there is then.
            let _ = access.unregister(range);
            drop(space);
        }
        None => drop(space),
    }
    answer_told(shared, managed, answers);
}

/// What a look at a range found.
#[derive(Debug)]
pub(crate) enum Look {
    /// All of it is registered, nothing is untold, and these pages are there.
    Present(Ranges),
    /// A change is not read yet.
    Again,
    /// Not all of it is mapped and registered.
    Holes,
}

/// Looks at a range that was registered before, under the lock of the space.
///
/// That registering it succeeded says little: what was unmapped just before, and is mapped again
/// just after, is not registered, and nobody tells of its changes. So it is proven afterwards, by
/// an operation that the kernel refuses where anything is untold or not registered. What was
/// registered then was so when the look was taken: nobody else registers, and what was unmapped in
/// between would be untold.
pub(crate) fn look(managed: &Managed, access: &Access, range: &Pages) -> Look {
    let Ok(found) = access.present(managed.pid(), range) else { return Look::Holes };
    let mut present = Ranges::default();
    found.into_iter().for_each(|part| present.insert(part));
    match prove(access, range, &mut present) {
        Some(Refused::Elsewhere) => {}
        Some(Refused::Again) => return Look::Again,
        Some(_) => return Look::Holes,
        None => return Look::Present(present),
    }
    // Several mappings, which are proven one by one.
    let Ok(vmas) = within(managed.pid(), &bytes_of(range)) else { return Look::Holes };
    let mut proven = range.start;
    for part in vmas.iter().map(|vma| pages_of(&vma.range)) {
        if part.start > proven {
            return Look::Holes;
        }
        match prove(access, &part, &mut present) {
            None => proven = part.end,
            Some(Refused::Again) => return Look::Again,
            Some(_) => return Look::Holes,
        }
    }
    if proven == range.end { Look::Present(present) } else { Look::Holes }
}

/// Proves that a range lies in one registered mapping of which nothing is untold; if not, returns
/// what the kernel says. A page that this fills in has no content to lose.
fn prove(access: &Access, range: &Pages, present: &mut Ranges) -> Option<Refused> {
    // The first page is there then, so that the whole is looked at, and not filled in.
    for pages in [range.start..range.start + 1, range.clone()] {
        match access.zero(&pages) {
            (0, Some(Refused::Exists)) => {}
            (0, refused) => return refused,
            (done, _) => present.insert(pages.start..pages.start + done),
        }
    }
    None
}

/// Returns what of a range may be closed: not what is the program's own, nor the helper's.
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
