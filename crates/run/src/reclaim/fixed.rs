//! Retries pages that could not be moved. No message reports that a program has made memory
//! writable again or unlocked it, or that the kernel no longer pins pages. And memory that cannot
//! leave raises the marks of the limit, so that the hand of the clock may never come by again.
//!
//! So while the charge is higher than it would be if all pages could leave, the mappings of such
//! pages are checked, rarely if that recently achieved nothing, and pages that can leave by then
//! are moved out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::ranges::{PageNo, Pages, bytes_of, common, pages_of};
use crate::reclaim::evictor::Evictor;
use crate::reclaim::let_go::retire;
use crate::reclaim::mover::batch_max;
use crate::spaces::managed::Managed;
use crate::sys::procmap::{self, WRITE};

/// How often to check whether a retry is needed while there is room.
const LOOK: Duration = Duration::from_millis(20);

impl Evictor {
    /// Returns the time until pages may have to be retried; `None` if there are none.
    pub(crate) fn until_try(&self) -> Option<Duration> {
        self.shared.books.all().iter().any(|managed| managed.fixed() > 0).then(|| {
            let until = self.again.due.saturating_duration_since(Instant::now());
            if self.shared.budget.is_above() { until } else { until.max(LOOK) }
        })
    }

    /// Moves out pages that could not leave before and may leave now, if that is due; returns
    /// whether any has left.
    pub(crate) fn try_again(&mut self) -> bool {
        let budget = Arc::clone(&self.shared.budget);
        if !budget.is_above() || !self.again.is_due(budget.limit()) {
            return false;
        }
        if self.shared.books.all().iter().all(|managed| managed.fixed() == 0) {
            return false;
        }
        let began = Instant::now();
        let (mut out, mut late) = (0, 0);
        for managed in self.shared.books.all().iter() {
            if !managed.is_attached() || managed.fixed() == 0 {
                continue;
            }
            let mut from = Some(0);
            while let Some(at) = from
                && budget.is_above_low()
            {
                let (fixed, next) = managed.lock().fixed_from(at);
                from = next;
                let parts = parts(managed.pid(), &fixed, true);
                out += self.take_out(managed, parts.into_iter().map(|(part, _)| part).collect());
            }
            if budget.is_above_low() {
                late += self.take_protected(managed);
            }
        }
        self.again.done(began.elapsed(), out + late);
        if late > 0 {
            // Threads that wait for room have nothing else to wait for.
            self.again.due = Instant::now();
        }
        out + late > 0
    }

    /// Moves out pages of these ranges until enough are out; returns how many are. Pages of many
    /// small mappings leave together.
    fn take_out(&mut self, managed: &Arc<Managed>, mut parts: VecDeque<Pages>) -> usize {
        let mut out = 0;
        while !parts.is_empty() && self.shared.budget.is_above_low() {
            let mut is_picked = false;
            let (moved, _) = self.move_out(managed, None, |space, kept, victims| {
                is_picked = true;
                while victims.len() < batch_max()
                    && let Some(part) = parts.front_mut()
                {
                    match space.pick_in(part, batch_max(), kept, victims) {
                        Some(next) => part.start = next,
                        None => _ = parts.pop_front(),
                    }
                }
                None
            });
            if !is_picked {
                break;
            }
            out += moved;
            while !self.may_evict(self.ahead) && retire(&self.shared) {}
            self.serve_pending(false);
        }
        out
    }
}

/// Returns the parts of these pages, which are in order, that lie in private mappings which are
/// writable, or in those which are not, each with its protection.
pub(super) fn parts(pid: i32, fixed: &[Pages], writable: bool) -> Vec<(Pages, u8)> {
    let mut found = Vec::new();
    // The mapping that was checked last, and its protection if it is of that kind.
    let mut mapping: (Pages, Option<u8>) = (0..0, None);
    for run in fixed {
        let mut from: PageNo = run.start;
        while from < run.end {
            if !mapping.0.contains(&from) {
                let Ok(Some(vma)) = procmap::at_or_behind(pid, bytes_of(&(from..run.end)).start)
                else {
                    return found;
                };
                let is_such = vma.private && (vma.protection & WRITE != 0) == writable;
                mapping = (pages_of(&vma.range), is_such.then_some(vma.protection));
            }
            let part = common(&(from..run.end), &mapping.0);
            from = mapping.0.end;
            if let Some(protection) = mapping.1
                && !part.is_empty()
            {
                found.push((part, protection));
            }
        }
    }
    found
}
