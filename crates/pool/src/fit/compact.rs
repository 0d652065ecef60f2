//! Compaction: segments are emptied, the emptiest first, into the holes of the others.
//!
//! A segment is begun only when all its objects have a place elsewhere (heap/F5). It goes in steps
//! between which other callers get the lock, and an object is copied without it:
//!
//! ```text
//!   reserve   locked    take places for some objects of the segment; again until all have one
//!   claim     locked    give back the old places of the last step; hold the cells of some objects
//!   copy      no lock   copy, write headers, publish the cells at their new places
//! ```
//!
//! An object that is pinned, or on its way in or out, or that no owner names, stays, and its
//! segment with it. What is said of a cell here holds for the owner of an object that has one.
//!
//! - C1: an object moves only while its cell is held (cell/H1, H2) or its owner is (owned/O3), so
//!   no read or free of it is under way, and it has one place at any time: the old one until
//!   `publish`, then the new one.
//! - C2: a header says which cell or owner to try; its content is trusted only if the cell says
//!   that its object is live at this very place (shard/G1). Trying never waits, although the lock
//!   is held, and nothing is waited for while any owner is held (owned/O4).
//! - C3: a compaction is over when a round over all segments freed nothing, or after [`ROUNDS_MAX`]
//!   rounds, so it ends whatever others do meanwhile. A compaction that is to free a number of
//!   pages also ends after [`FUTILE_MAX`] segments in a row that could not be emptied.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::heap::evacuation::{Evacuation, Move, Reserved};
use super::place::{OWNED, Place};
use super::shard::{Shard, State};
use crate::owned::Owners;
use crate::sync::spin::Dead;
use crate::units::PageCount;

/// Objects that one step moves at most, and for which one reserves places.
const STEP_OBJECTS: usize = 8;

/// Segments that one hold of the lock looks at.
const STEP_SEGMENTS: u32 = 4096;

/// Rounds of one compaction at most. Two or three are usual, the last of which finds nothing.
const ROUNDS_MAX: usize = 8;

/// Segments in a row that a compaction with a budget tries in vain before it gives up: those that
/// are fuller hardly go where emptier ones do not. One without a budget tries all.
const FUTILE_MAX: u32 = 16;

/// The bounds of a compaction, and the owners of objects without handles that it may move.
#[derive(Clone, Copy, Debug)]
struct Bounds<'a> {
    budget: i64,
    stop: &'a AtomicBool,
    owners: &'a dyn Owners,
}

impl Bounds<'_> {
    fn goes_on(&self, freed: i64) -> bool {
        freed < self.budget && !self.is_stopped()
    }

    /// Returns whether another try is worthwhile after this many segments in a row.
    fn tries_on(&self, futile: u32) -> bool {
        futile < FUTILE_MAX || self.budget == i64::MAX
    }

    fn is_stopped(&self) -> bool {
        // Relaxed: a request that may be seen one step later.
        self.stop.load(Ordering::Relaxed)
    }
}

/// The progress of a compaction.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// Pages freed, less those that were committed for it.
    freed: i64,
    /// Whether an object stayed in this round because it, or its owner, could not be held, or
    /// segments were not tried.
    refused: bool,
}

/// An object on the move: its header, which names its cell or owner, held, and its two places.
#[derive(Clone, Copy, Debug)]
struct Claimed {
    header: u32,
    from: Place,
    granules: u16,
    to: Place,
}

impl Shard {
    /// Compacts until `pages` pages are freed, `stop` is set or nothing is left to do.
    pub(super) fn compact_within(&self, owners: &dyn Owners, pages: u64, stop: &AtomicBool) -> u64 {
        let bounds = Bounds { budget: i64::try_from(pages).unwrap_or(i64::MAX), stop, owners };
        // A dead pool compacts nothing any more; memory that was freed before that counts.
        if let Ok(mut state) = self.lock_in_turn() {
            state.heap.arena.begin_burst();
            self.unlock(state);
        }
        let mut done = Done::default();
        let _ = self.rounds(bounds, &mut done);
        if let Ok(mut state) = self.lock_in_turn() {
            state.heap.arena.end_burst();
            self.unlock(state);
        }
        self.release(|_| PageCount::ZERO);
        if let Ok(mut state) = self.lock_in_turn() {
            state.trim(pages == 0);
            self.unlock(state);
        }
        done.freed.try_into().unwrap_or(0)
    }

    fn rounds(&self, bounds: Bounds<'_>, done: &mut Done) -> Result<(), Dead> {
        for _ in 0..ROUNDS_MAX {
            let before = done.freed;
            done.refused = false;
            if bounds.goes_on(before) {
                self.round(bounds, done)?;
            }
            if !bounds.goes_on(done.freed) {
                return Ok(());
            }
            if done.freed <= before {
                // Refused objects can move another time.
                if !done.refused {
                    self.lock_in_turn()?.heap.settle();
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// Evacuates every segment that can be, the emptiest first.
    fn round(&self, bounds: Bounds<'_>, done: &mut Done) -> Result<(), Dead> {
        let mut candidates = self.candidates(bounds)?;
        let mut futile = 0;
        while bounds.goes_on(done.freed)
            && let Some(Reverse((live, segment))) = candidates.pop()
        {
            // Others may have been moved there since it was looked at.
            let Some(now) = self.lock_in_turn()?.heap.worth_evacuation(segment) else { continue };
            if now > live {
                candidates.push(Reverse((now, segment)));
                continue;
            }
            let before = done.freed;
            self.evacuate(bounds, segment, done)?;
            futile = if done.freed > before { 0 } else { futile + 1 };
            if !bounds.tries_on(futile) {
                done.refused = true;
                break;
            }
            if self.lock_in_turn()?.heap.arena.burst_due() {
                self.release(|arena| arena.burst_keep());
            }
        }
        Ok(())
    }

    /// Returns the segments that are worth their evacuation, by how full they are.
    fn candidates(&self, bounds: Bounds<'_>) -> Result<BinaryHeap<Reverse<(u16, u32)>>, Dead> {
        let (mut candidates, mut from) = (BinaryHeap::new(), 0);
        while !bounds.is_stopped() {
            let state = self.lock_in_turn()?;
            let to = state.heap.segments().min(from + STEP_SEGMENTS);
            if from >= to {
                break;
            }
            let live = |segment| Some(Reverse((state.heap.worth_evacuation(segment)?, segment)));
            candidates.extend((from..to).filter_map(live));
            from = to;
        }
        Ok(candidates)
    }

    /// Empties a segment as far as its objects can be moved.
    fn evacuate(&self, bounds: Bounds<'_>, segment: u32, done: &mut Done) -> Result<(), Dead> {
        let begun = self.lock_in_turn()?.heap.begin_evacuation(segment);
        let Some(mut evacuation) = begun else { return Ok(()) };
        let reserved = self.reserve(bounds, &mut evacuation)?;
        let mut claimed = Vec::with_capacity(STEP_OBJECTS);
        for moves in evacuation.moves.chunks(STEP_OBJECTS) {
            let owners = (reserved && !bounds.is_stopped()).then_some(bounds.owners);
            let mut state = self.lock_in_turn()?;
            state.give_old(&mut claimed);
            done.refused |= self.claim(&mut state, moves, owners, &mut claimed);
            self.unlock(state);
            self.copy(bounds.owners, &claimed);
        }
        let mut state = self.lock_in_turn()?;
        state.give_old(&mut claimed);
        let freed = state.heap.end_evacuation(&evacuation);
        state.pages_compacted_total += u64::try_from(freed).unwrap_or(0);
        self.unlock(state);
        done.freed += freed;
        Ok(())
    }

    /// Reserves a place for each object of a segment; returns whether there was room for all.
    fn reserve(&self, bounds: Bounds<'_>, evacuation: &mut Evacuation) -> Result<bool, Dead> {
        while !bounds.is_stopped() {
            let mut state = self.lock_in_turn()?;
            let reserved = state.heap.reserve(evacuation, STEP_OBJECTS);
            self.unlock(state);
            if reserved != Reserved::Some {
                return Ok(reserved == Reserved::All);
            }
        }
        Ok(false)
    }

    /// Holds the cells or owners of the objects to be moved, if they can be; gives back what was
    /// reserved for the others, or for all if there are no `owners` and nothing moves on. Returns
    /// whether one could not be.
    fn claim(
        &self,
        state: &mut State,
        moves: &[Move],
        owners: Option<&dyn Owners>,
        claimed: &mut Vec<Claimed>,
    ) -> bool {
        let mut refused = false;
        for &Move { from, granules, to } in moves {
            let Some(to) = to else { continue };
            let header = self.frames.load_u32(self.scale.header(from));
            if owners.is_some_and(|owners| self.try_hold(owners, header, from)) {
                claimed.push(Claimed { header, from, granules, to });
            } else {
                state.heap.give_either(to);
                refused |= owners.is_some();
            }
        }
        refused
    }

    /// Holds the cell or owner that a header names, if its object is at this place (C2).
    fn try_hold(&self, owners: &dyn Owners, header: u32, place: Place) -> bool {
        if header & OWNED != 0 {
            return owners.try_hold(header & !OWNED, self.address(place));
        }
        self.cells.get(header).is_some_and(|cell| cell.try_hold_at(place))
    }

    /// Copies objects and publishes where they are now. Needs no lock.
    fn copy(&self, owners: &dyn Owners, claimed: &[Claimed]) {
        for &Claimed { header, from, granules, to } in claimed {
            let (source, target) = (self.scale.payload(from), self.scale.payload(to));
            // SAFETY: C1: this thread holds the cell (cell/H1) or the owner (owned/O3), so no other
            // thread touches the object, and its new place, which has at least as many granules,
            // was taken for it and is not known to any other yet.
            unsafe { self.frames.copy(source, target, self.scale.room(granules)) };
            self.frames.store_u32(self.scale.header(to), header);
            if header & OWNED != 0 {
                owners.publish(header & !OWNED, self.address(to));
            } else {
                self.cells.at(header).publish(to);
            }
        }
    }
}

impl State {
    /// Gives back the places that objects have left.
    fn give_old(&mut self, claimed: &mut Vec<Claimed>) {
        self.moved_total += claimed.len() as u64;
        for Claimed { from, .. } in claimed.drain(..) {
            self.heap.give_either(from);
        }
    }
}
