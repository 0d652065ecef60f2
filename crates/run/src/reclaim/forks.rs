//! The evictor's part in what forks share: it is measured, and leaves all who have it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::ranges::PageNo;
use crate::reclaim::evictor::Evictor;
use crate::spaces::books::RELATIVES;
use crate::spaces::managed::{Managed, lock};
use crate::spaces::maps::measure_shared;

/// Shortest time between two measurements of what forks share, in absolute terms and as a multiple
/// of the time that one took: no message reports the end of sharing.
const SHARING_MIN: Duration = Duration::from_millis(2);
const SHARING_REST: u32 = 20;
/// With more than [`RELATIVES`] spaces, measurements are limited to a time, and a pause follows
/// that is a multiple of the time they took.
const SHARING_TURN: Duration = Duration::from_millis(2);
const SHARING_TURNS: u32 = 16;

impl Evictor {
    /// Moves pages that have just left a space, and that it shared, out of the others that have
    /// them: as long as one has a page, its memory stays. With very many, it stays.
    pub(super) fn move_out_of_others(&mut self, managed: &Managed) {
        let pages = std::mem::take(&mut self.shared_out);
        if pages.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        for other in shared.books.sharing_with(managed.id, Managed::is_attached) {
            self.reconcile(&other);
            self.move_out(&other, None, |space, kept, victims| {
                let leaves = |page: &PageNo| space.may_leave(*page) && !kept(*page);
                victims.extend(pages.iter().copied().filter(leaves));
                None
            });
        }
        self.shared_out.clear();
    }

    /// Measures what forks share, where it is due and matters; returns whether more is to come.
    /// With many forks this is done in turns, and for a share of the time.
    pub(super) fn measure_sharing(&mut self) -> bool {
        if !self.shared.budget.is_high_without_credit() {
            return false;
        }
        let turn = Instant::now();
        if turn < self.next_measure {
            return true;
        }
        let spaces = self.shared.books.all();
        let next = spaces.partition_point(|managed| managed.id <= self.measured);
        let (mut to_come, is_many) = (false, spaces.len() > RELATIVES);
        for managed in spaces[next..].iter().chain(&spaces[..next]) {
            let mut sharing = lock(&managed.sharing);
            let Some(known) = sharing.as_mut() else {
                continue;
            };
            let began = Instant::now();
            if is_many && began > turn + SHARING_TURN {
                to_come = true;
                break;
            }
            if known.due <= began {
                self.measured = managed.id;
                if measure_shared(managed, known) == 0 {
                    *sharing = None;
                    continue;
                }
                let rest = began.elapsed() * SHARING_REST;
                known.due = Instant::now() + rest.max(SHARING_MIN);
            }
            to_come = true;
        }
        if is_many {
            // Finding out what is due takes long, too.
            self.next_measure = Instant::now() + turn.elapsed() * SHARING_TURNS;
        }
        to_come
    }
}
