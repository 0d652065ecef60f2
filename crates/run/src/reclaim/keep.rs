//! Records where pages are after a move.

use std::sync::Arc;

use crate::cold::swap_cache::Batch;
use crate::core::pages::Page;
use crate::core::space::Space;
use crate::reclaim::mover::Moved;
use crate::shared::Shared;
use crate::spaces::managed::{Managed, lock};
use crate::spaces::staging::Stays;

/// Records where the victims are; returns those that are out as a batch, whose bytes are to be set.
/// `own`: pages that are still busy stay.
pub(crate) fn settle(
    shared: &Shared,
    managed: &Managed,
    space: &mut Space,
    moved: Moved,
    own: bool,
) -> Option<Arc<Batch>> {
    for &(page, stays) in &moved.stay {
        match stays {
            Stays::Again => {}
            Stays::Busy if !own => {}
            Stays::Absent => space.emptied(page),
            Stays::Busy | Stays::Fixed => {
                shared.counters.busy_pages_total.add(1);
                let state = if stays == Stays::Busy { Space::BUSY } else { Space::FIXED };
                space.set(page, state);
            }
        }
    }
    if moved.pages.is_empty() {
        return None;
    }
    space.settled();
    shared.counters.evictions_total.add(moved.pages.len() as u64);
    shared.budget.left(moved.pages.len());
    shared.budget.change(0, moved.pages.len());
    let pages = moved.pages.clone();
    let batch = lock(&shared.cold.swap_cache).push(managed.id, moved.pages);
    for (at, &page) in pages.iter().enumerate() {
        space.set(page, Page::Cached(batch.slot(at)));
    }
    Some(batch)
}
