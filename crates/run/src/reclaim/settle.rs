//! Records where pages are after a move.

use crate::core::pages::Page;
use crate::core::ranges::PageNo;
use crate::core::space::{Released, Space};
use crate::spaces::managed::{Managed, lock};
use crate::spaces::mover::{Moved, Stays};
use crate::spaces::shared::Shared;
use zfold_uffd::page::{PAGE, is_zero};

/// Records where the victims are; returns how many are out. `own`: pages that are still busy stay.
/// Adds the copies of pages that are nowhere to `released`.
pub(crate) fn settle(
    shared: &Shared,
    managed: &Managed,
    space: &mut Space,
    mut moved: Moved,
    own: bool,
    released: &mut Released,
) -> usize {
    let zeros = take_zeros(&mut moved);
    shared.counters.zero_pages_total.add(zeros.len() as u64);
    shared.counters.evictions_total.add(moved.pages.len() as u64);
    let out = zeros.len() + moved.pages.len();
    if out > 0 {
        space.settled();
        shared.budget.left(out);
    }
    zeros.iter().for_each(|&page| space.emptied(page, released));
    for &(page, stays) in &moved.stay {
        match stays {
            Stays::Again => {}
            Stays::Busy if !own => {}
            Stays::Absent => space.emptied(page, released),
            Stays::Busy | Stays::Fixed => {
                shared.counters.busy_pages_total.add(1);
                let state = if stays == Stays::Busy { Space::BUSY } else { Space::FIXED };
                space.set(page, state);
            }
        }
    }
    if moved.pages.is_empty() {
        return out;
    }
    shared.budget.change(0, moved.pages.len());
    let pages = moved.pages.clone();
    let batch = lock(&shared.swap_cache).push(managed.id, moved.bytes, moved.pages);
    for (at, &page) in pages.iter().enumerate() {
        space.set(page, Page::Cached(batch.slot(at)));
    }
    out
}

/// Takes the pages out of a batch that are zeros.
fn take_zeros(moved: &mut Moved) -> Vec<PageNo> {
    let mut zeros = Vec::new();
    let mut kept = 0;
    for at in 0..moved.pages.len() {
        let page = at * PAGE..(at + 1) * PAGE;
        if is_zero(&moved.bytes[page.clone()]) {
            zeros.push(moved.pages[at]);
            continue;
        }
        if kept != at {
            moved.bytes.copy_within(page, kept * PAGE);
            moved.pages[kept] = moved.pages[at];
        }
        kept += 1;
    }
    moved.pages.truncate(kept);
    moved.bytes.truncate(kept * PAGE);
    zeros
}
