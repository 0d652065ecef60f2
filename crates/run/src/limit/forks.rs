//! Forks that wait: for the page of the child's number, and for room where the store's memory
//! counts against the same limit.
//!
//! The kernel writes the number in the child's memory before the child stops for the first time.
//! That stop is pending by then, and with anything pending the kernel does not sleep until a page
//! is there, but tries again at once. In a group with a small share of the processors, the child
//! can use up all of it, so that the manager never brings the page. So the page is there before the
//! fork, and stays until the child has a copy of it: no page leaves a child that has not stopped.
//!
//! The kernel copies a shared page at the first write, and nobody can make it wait. So there must
//! be room for a part of the copies before the first write (`Budget::charge`), and pages leave for
//! that while the program stands still: once parent and child run, the evictor may get a processor
//! too late.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::ranges::PageNo;
use crate::link::Request;
use crate::shared::Shared;
use crate::spaces::asked::{Task, Work};
use crate::spaces::managed::{Managed, lock};

/// Longest wait of a fork: without room the kernel may end the program, but need not.
const LONGEST: Duration = Duration::from_millis(500);

/// A fork that waits.
struct Fork {
    work: Work,
    /// How many pages its child will share.
    pages: usize,
    since: Instant,
}

/// A fork begins: keeps the page where its child finds its number. Returns whether the page is
/// there, which is false as well if the space is busy.
pub(crate) fn keep_number(managed: &Managed, number: Option<PageNo>) -> bool {
    // First, so that it does not leave after it was found.
    lock(&managed.kept).set_number(number);
    let is_there = |page| managed.try_lock().is_some_and(|space| !space.page(page).is_away());
    number.is_none_or(is_there)
}

/// Forks that wait, in the order in which they were asked for.
#[derive(Default)]
pub(super) struct Forks(Vec<Fork>);

impl Forks {
    /// Returns whether there are any.
    pub(super) fn are_waiting(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns work that need not wait, and keeps a fork for which there is no room.
    pub(super) fn wait(&mut self, shared: &Arc<Shared>, work: Work) -> Option<Work> {
        let Some(pages) = parent(&work).map(|managed| managed.charged()) else { return Some(work) };
        shared.budget.change_forking(0, pages);
        if has_room(shared) {
            shared.budget.change_forking(pages, 0);
            return Some(work);
        }
        shared.evictor.call();
        self.0.push(Fork { work, pages, since: Instant::now() });
        None
    }

    /// Returns a fork that has waited long enough.
    pub(super) fn next(&mut self, shared: &Arc<Shared>) -> Option<Work> {
        for Fork { work, pages, .. } in &mut self.0 {
            // What has left meanwhile is not shared.
            let left = parent(work).map_or(0, Managed::charged);
            shared.budget.change_forking(std::mem::replace(pages, left), left);
        }
        let (first, has_room) = (self.0.first()?, has_room(shared));
        let is_gone = parent(&first.work).is_none_or(|managed| managed.is_dead());
        if !has_room && !is_gone && first.since.elapsed() < LONGEST {
            return None;
        }
        let Fork { work, pages, .. } = self.0.remove(0);
        shared.budget.change_forking(pages, 0);
        Some(work)
    }
}

fn has_room(shared: &Shared) -> bool {
    !shared.budget.is_together() || !shared.budget.is_high()
}

/// Returns the space that forks, if it is a fork that is to be done.
fn parent(work: &Work) -> Option<&Managed> {
    let forks = matches!(work.task, Task::Request(Request::Hold { .. } | Request::Fork { .. }));
    forks.then_some(&work.managed)
}
