//! Memory that cannot be written to leaves while the threads that have it are held.
//!
//! The kernel moves only pages of writable mappings. Copying a page and then dropping it would lose
//! what a device writes to it in between; and a call that drops or moves memory acts on whatever is
//! mapped there by then, since only calls of userfaultfd are refused while a change is unread. So
//! such memory is made writable while it is moved (mover/M3).
//!
//! - P1: the tracer holds all threads of the space from before its mappings are read until they are
//!   restored: no thread changes a mapping, or writes where it may not.
//! - P2: if the helper ends in the middle, the mapping is checked, and the space is ended if it is
//!   still writable.
//! - P3: a space with locked memory is left alone: the kernel fills such memory in when it becomes
//!   writable. This is checked while the threads are held; an earlier check usually saves the stop.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::core::ranges::{Pages, bytes_of};
use crate::reclaim::evictor::Evictor;
use crate::reclaim::fixed::parts;
use crate::reclaim::let_go::retire;
use crate::reclaim::mover::batch_max;
use crate::spaces::managed::Managed;
use crate::spaces::maps::may_be_locked;
use crate::sys::procmap::{self, WRITE};

/// How long to wait for threads to be held: some cannot be stopped.
const PATIENCE: Duration = Duration::from_millis(20);
/// Time between two checks whether they are, and the number of checks after which their faults that
/// wait for room are answered: a thread that waits inside a call does not stop before that.
const LOOK: Duration = Duration::from_micros(50);
const LOOKS: u32 = 10;

impl Evictor {
    /// Moves out memory that cannot be written to; returns how many pages are out.
    pub(crate) fn take_protected(&mut self, managed: &Arc<Managed>) -> usize {
        let may = managed.may_protect.load(Ordering::Relaxed) && !managed.is_frozen();
        if !may || !has_protected(managed) || may_be_locked(managed.pid()) {
            managed.leaves_late.store(false, Ordering::Relaxed);
            return 0;
        }
        self.again.turn += 1;
        let turn = self.again.turn;
        self.shared.tracing.stand(managed.id, turn, true);
        let out = if self.stands(managed, turn) { self.take_standing(managed) } else { 0 };
        self.shared.tracing.stand(managed.id, turn, false);
        managed.leaves_late.store(out > 0, Ordering::Relaxed);
        out
    }

    /// Waits until all threads of a space are held; returns whether they are.
    fn stands(&mut self, managed: &Arc<Managed>, turn: u64) -> bool {
        let began = Instant::now();
        let mut looks = 0;
        while managed.stands.load(Ordering::Acquire) != turn {
            if managed.is_dead() || began.elapsed() > PATIENCE {
                return false;
            }
            thread::sleep(LOOK);
            looks += 1;
            if looks % LOOKS == 0 {
                self.serve_pending_of(managed);
            }
        }
        true
    }

    /// The same while they are held, from the page on where the last turn ended (P1).
    fn take_standing(&mut self, managed: &Arc<Managed>) -> usize {
        if may_be_locked(managed.pid()) {
            return 0;
        }
        let mut out = 0;
        let begin = self.again.hand;
        for mut at in [Some(begin), Some(0)] {
            while let Some(from) = at {
                let (fixed, next) = managed.lock().fixed_from(from);
                at = next;
                for (part, protection) in parts(managed.pid(), &fixed, false) {
                    if !self.shared.budget.is_above_low() {
                        self.again.hand = part.start;
                        return out;
                    }
                    out += self.take_mapping(managed, part, protection);
                }
            }
        }
        out
    }

    /// Moves out pages of one mapping, which has this `protection`, until enough are out.
    fn take_mapping(&mut self, managed: &Arc<Managed>, mut range: Pages, protection: u8) -> usize {
        let mut out = 0;
        while !range.is_empty() && self.shared.budget.is_above_low() {
            let mut is_picked = false;
            let (moved, next) =
                self.move_out(managed, Some((&range, protection)), |space, kept, victims| {
                    is_picked = true;
                    space.pick_in(&range, batch_max(), kept, victims)
                });
            if !is_picked {
                break;
            }
            out += moved;
            range.start = next.unwrap_or(range.end);
            self.again.hand = range.start;
            while !self.may_evict(self.ahead) && retire(&self.shared) {}
        }
        out
    }

    /// A helper has ended in the middle (P2).
    pub(super) fn end_if_writable(&self, managed: &Managed, range: &Pages) {
        managed.may_protect.store(false, Ordering::Relaxed);
        let vmas = procmap::within(managed.pid(), &bytes_of(range)).unwrap_or_default();
        if vmas.iter().any(|vma| vma.protection & WRITE != 0) {
            let message = "its helper ended while it worked at memory that cannot be written to";
            self.shared.tracing.end_space(managed.id, message.to_owned());
        }
    }
}

/// Returns whether a space seems to have such memory.
fn has_protected(managed: &Managed) -> bool {
    let mut at = Some(0);
    while let Some(from) = at {
        let (fixed, next) = managed.lock().fixed_from(from);
        if !parts(managed.pid(), &fixed, false).is_empty() {
            return true;
        }
        at = next;
    }
    false
}
