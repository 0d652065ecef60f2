//! Evacuation: the places of a segment, and others that are reserved for them (F3, F5, F6, F8).

use super::super::directory::{Extent, Taker};
use super::super::holes::bin_of;
use super::super::place::{Place, SEGMENT, SEGMENT_PAGES};
use super::{Heap, State};
use crate::memory::arena::Arena;

/// The granules that an evacuation may take from fresh pages instead of holes: at most nine pages,
/// where it frees sixteen.
const FRESH_MAX: u16 = SEGMENT / 2;

/// A segment that is being emptied: its places, the largest first, and the ones reserved for them.
#[derive(Debug)]
pub(crate) struct Evacuation {
    pub(crate) segment: u32,
    pub(crate) moves: Vec<Move>,
    /// Where to go on with the reservation; it goes over the moves twice.
    next: usize,
    /// Granules that found no hole.
    homeless: u32,
    /// Pages that the segment has.
    pages: u16,
    /// Pages that were committed for its objects.
    fresh_pages: u64,
}

/// A place that is left for another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) from: Place,
    pub(crate) granules: u16,
    pub(crate) to: Option<Place>,
}

/// How far a reservation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// Another call is needed.
    Some,
    /// Every move has a place.
    All,
    /// There is no room; the reserved places are to be freed.
    NoRoom,
}

impl Heap {
    /// Returns the granules of the used extents of a segment, if it is worth its evacuation.
    #[inline]
    pub(crate) fn worth_evacuation(&self, segment: u32) -> Option<u16> {
        let record = self.segments.get(segment as usize)?;
        record.is_worth_evacuation().then_some(record.live)
    }

    /// Takes a segment out of allocation, if it is worth its evacuation.
    pub(crate) fn begin_evacuation(&mut self, segment: u32) -> Option<Evacuation> {
        self.worth_evacuation(segment)?;
        let record = &mut self.segments[segment as usize];
        record.state = State::Victim;
        let used = self.directories.extents(&record.directory).filter(|extent| !extent.free);
        let new_move = |Extent { at, len, .. }| {
            let from = Place { segment, at };
            Move { from, granules: len, to: None }
        };
        let mut moves: Vec<_> = used.map(new_move).collect();
        moves.sort_unstable_by_key(|of| std::cmp::Reverse(of.granules));
        let pages = record.pages();
        self.open = self.open.filter(|&open| open != segment);
        Some(Evacuation { segment, moves, next: 0, homeless: 0, pages, fresh_pages: 0 })
    }

    /// Reserves places for up to `count` more moves: holes first, then, if that pays, fresh pages
    /// for those that found none.
    pub(crate) fn reserve(&mut self, evacuation: &mut Evacuation, count: usize) -> Reserved {
        let len = evacuation.moves.len();
        for _ in 0..count {
            if evacuation.next == 2 * len || evacuation.next == len && evacuation.homeless == 0 {
                return Reserved::All;
            }
            let in_holes = evacuation.next < len;
            let Move { granules, to, .. } = evacuation.moves[evacuation.next % len];
            evacuation.next += 1;
            if to.is_some() {
                continue;
            }
            let place = match self.take_hole(Taker::Extent(granules)) {
                None if in_holes => {
                    evacuation.homeless += u32::from(granules);
                    let pays = evacuation.homeless <= FRESH_MAX.into();
                    if !pays || evacuation.pages < SEGMENT_PAGES {
                        return Reserved::NoRoom;
                    }
                    None
                }
                None => {
                    let before = self.arena.used().0;
                    // A warm run would cost sixteen pages at once.
                    if self.extend(granules, Arena::take_cold).is_err() {
                        return Reserved::NoRoom;
                    }
                    evacuation.fresh_pages += self.arena.used().0 - before;
                    Some(self.take_tail(Taker::Extent(granules)))
                }
                found => found,
            };
            self.reserved += u64::from(place.is_some());
            evacuation.moves[(evacuation.next - 1) % len].to = place;
        }
        Reserved::Some
    }

    /// Gives back one of the two places of a move: the old one, or the new one if nothing moved.
    pub(crate) fn give_either(&mut self, place: Place) {
        self.reserved -= 1;
        // The other place stays, so a move leaves no more room than there was.
        let given = self.given;
        self.give(place);
        self.given = given;
    }

    /// Returns how many moves have two places.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Ends an evacuation, whose reserved places are given back or used: without places the
    /// segment leaves, otherwise it is used again. Returns the pages freed, less those that were
    /// committed for it.
    pub(crate) fn end_evacuation(&mut self, evacuation: &Evacuation) -> i64 {
        let segment = evacuation.segment;
        let fresh = evacuation.fresh_pages as i64;
        if self.segment(segment).live == 0 {
            return i64::from(self.release(segment)) - fresh;
        }
        self.segment_mut(segment).state = State::Used;
        if self.segment(segment).pages() < SEGMENT_PAGES {
            self.open.get_or_insert(segment);
        }
        let extents = self.directories.extents(&self.segments[segment as usize].directory);
        for hole in extents.filter(|extent| extent.free) {
            self.holes.set(bin_of(hole.len), segment);
        }
        -fresh
    }
}
