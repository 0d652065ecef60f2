//! The units that lie on this machine and move to others when they are old: which, where, since
//! when.
//!
//! The address space is cut into chunks of [`CHUNK`] units. A chunk of which something lies here
//! has a *slot*, as many bytes of the near backing, and the second in which it was last written to.
//! Plain data without locks, time or input and output, like the log.
//!
//! - W1: a unit lies here if its bit is set. A chunk is in the map, and so has a slot, exactly if
//!   one of its bits is set; no two chunks have the same slot.
//! - W2: a unit that is being written is not moved; its chunk keeps its slot meanwhile.
//! - W3: no unit goes before its chunk has not been written to for the age, unless less than an
//!   eighth of the slots is free.
//! - W4: a unit whose move ends was neither written nor discarded since the move began.
//! - W5: in a day, counted from the start, no more bytes are written here than are allowed.
//!
//! Cost: 28 bytes a slot, whatever the length of the address space.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::log::Span;
use crate::map::UNIT;
use crate::twin::{Twin, broken};

/// Units of a chunk: 32 KiB, which grow old together.
pub(crate) const CHUNK: u32 = u64::BITS;

/// Seconds of a day.
const DAY: u32 = 24 * 60 * 60;

/// With less than this share of slots free, the oldest chunks move whatever their age.
const FREE_SHARE: usize = 8;

/// Units of one chunk that lie side by side on the near backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) span: Span,
    /// The unit of the near backing at which it begins.
    pub(crate) at: u32,
}

/// A chunk of which something lies here.
#[derive(Debug)]
struct Chunk {
    live: u64,
    slot: u32,
    /// The second of the last write.
    stamp: u32,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Near {
    chunks: BTreeMap<u32, Chunk>,
    free: Vec<u32>,
    slots_total: usize,
    used: u64,
    /// Writes that have begun and not ended.
    writing: Vec<Span>,
    /// Units of the move under way that have not changed since it began.
    moving: BTreeSet<u32>,
    /// The chunk at which the search for old ones goes on.
    hand: u32,
    day: u32,
    day_units: u64,
    /// Units that may be written in a day.
    day_units_max: u64,
}

impl Near {
    /// Returns an address space of this many units, of which none lies here; there is room for
    /// `room` of them, and this many bytes may be written in a day.
    pub(crate) fn new(units: u32, room: u64, day_bytes: Option<u64>) -> Self {
        let chunks = u64::from(units.div_ceil(CHUNK));
        let slots = (room / u64::from(CHUNK)).min(chunks) as u32;
        Self {
            chunks: BTreeMap::new(),
            free: (0..slots).rev().collect(),
            slots_total: slots as usize,
            used: 0,
            writing: Vec::new(),
            moving: BTreeSet::new(),
            hand: 0,
            day: 0,
            day_units: 0,
            day_units_max: day_bytes.map_or(u64::MAX, |bytes| bytes / UNIT as u64),
        }
    }

    /// Begins to write `span`, if there is room for all of it and it may be written today; returns
    /// where its parts go. Their old contents are gone.
    pub(crate) fn begin_write(&mut self, span: Span, second: u32) -> Option<Vec<Part>> {
        if self.day != second / DAY {
            (self.day, self.day_units) = (second / DAY, 0);
        }
        let units = self.day_units + u64::from(span.len);
        let chunks = chunks_of(span);
        let new = chunks.clone().filter(|chunk| !self.chunks.contains_key(chunk)).count();
        if units > self.day_units_max || new > self.free.len() {
            return None;
        }
        self.day_units = units;
        self.change(span);
        for number in chunks {
            let bits = bits_of(span, number);
            let chunk = self.chunks.entry(number).or_insert_with(|| {
                let slot = self.free.pop().expect("counted just now");
                Chunk { live: 0, slot, stamp: 0 }
            });
            self.used += u64::from((bits & !chunk.live).count_ones());
            chunk.live |= bits;
            chunk.stamp = second;
        }
        self.writing.push(span);
        Some(self.parts(span))
    }

    /// Ends a write; one that failed leaves nothing here.
    pub(crate) fn end_write(&mut self, span: Span, done: bool) {
        let at = self.writing.iter().position(|writing| *writing == span);
        self.writing.swap_remove(at.expect("it has begun"));
        if !done {
            self.remove(span);
        }
    }

    /// Declares that no unit of `span` lies here any longer.
    pub(crate) fn remove(&mut self, span: Span) {
        self.change(span);
        for chunk in chunks_of(span) {
            self.clear(chunk, bits_of(span, chunk));
        }
    }

    /// Takes bits of a chunk away, and its slot with the last one (W1). A slot that is being
    /// written to stays with its chunk's other bits, which are those of the write (W2).
    fn clear(&mut self, number: u32, bits: u64) {
        let Some(chunk) = self.chunks.get_mut(&number) else { return };
        self.used -= u64::from((bits & chunk.live).count_ones());
        chunk.live &= !bits;
        if chunk.live == 0 {
            self.free.push(chunk.slot);
            self.chunks.remove(&number);
        }
    }

    /// Notes that units are not what they were when the move began (W4).
    fn change(&mut self, span: Span) {
        if !self.moving.is_empty() {
            for unit in span.units() {
                self.moving.remove(&unit);
            }
        }
    }

    /// Returns how many of the `len` units from `unit` on lie here like the first one, or lie
    /// elsewhere like it; and where, if they lie here, in one part.
    pub(crate) fn run(&self, unit: u32, len: u32) -> (u32, Option<u32>) {
        let here = |unit: u32| {
            let chunk = self.chunks.get(&(unit / CHUNK));
            chunk.is_some_and(|chunk| chunk.live >> (unit % CHUNK) & 1 != 0)
        };
        let first = here(unit);
        let most = if first { len.min(CHUNK - unit % CHUNK) } else { len };
        let run = 1 + (1..most).take_while(|at| here(unit + at) == first).count() as u32;
        (run, first.then(|| self.place(unit)))
    }

    fn place(&self, unit: u32) -> u32 {
        self.chunks[&(unit / CHUNK)].slot * CHUNK + unit % CHUNK
    }

    /// Returns where the units of `span`, which all lie here, do so.
    fn parts(&self, span: Span) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for chunk in chunks_of(span) {
            let first = (chunk * CHUNK).max(span.unit);
            let end = ((chunk + 1) * CHUNK).min(span.unit + span.len);
            let (at, len) = (self.place(first), end - first);
            match parts.last_mut() {
                Some(last) if last.at + last.span.len == at => last.span.len += len,
                _ => parts.push(Part { span: Span { unit: first, len }, at }),
            }
        }
        parts
    }

    /// Begins to move units that are old at `second`, at most `most`; returns where they lie. Empty
    /// if nothing is old. One move at a time.
    pub(crate) fn begin_move(&mut self, second: u32, age: u32, most: u32) -> Vec<Part> {
        debug_assert!(self.moving.is_empty());
        let pressed = self.free.len() * FREE_SHARE < self.slots_total;
        let old = |number: u32, chunk: &Chunk| {
            let old = pressed || second.saturating_sub(chunk.stamp) >= age;
            old && !self.is_written(number)
        };
        let from_hand = self.chunks.range(self.hand..).chain(self.chunks.range(..self.hand));
        let mut left = most;
        let mut parts = Vec::new();
        let mut hand = self.hand;
        for (&number, chunk) in from_hand.filter(|(number, chunk)| old(**number, chunk)) {
            let units = chunk.live.count_ones();
            if units > left {
                break;
            }
            left -= units;
            hand = number + 1;
            self.living(number, &mut parts);
        }
        self.hand = hand;
        let units = parts.iter().flat_map(|part| part.span.units());
        self.moving = units.collect();
        parts
    }

    /// Returns whether something of a chunk is being written (W2).
    fn is_written(&self, chunk: u32) -> bool {
        self.writing.iter().any(|span| chunks_of(*span).contains(&chunk))
    }

    /// Appends the parts of a chunk that lie here.
    fn living(&self, chunk: u32, parts: &mut Vec<Part>) {
        let (mut unit, end) = (chunk * CHUNK, (chunk + 1) * CHUNK);
        while unit < end {
            let (len, at) = self.run(unit, end - unit);
            parts.extend(at.map(|at| Part { span: Span { unit, len }, at }));
            unit += len;
        }
    }

    /// Returns whether the copy of a unit of the move counts (W4).
    pub(crate) fn counts(&self, unit: u32) -> bool {
        self.moving.contains(&unit) || broken(Twin::MovesChanged)
    }

    /// Ends the move: what counts lies elsewhere now, if it was `done`; otherwise here as before.
    /// Returns the units that went.
    pub(crate) fn end_move(&mut self, done: bool) -> u64 {
        let moved = std::mem::take(&mut self.moving);
        if !done {
            return 0;
        }
        for &unit in &moved {
            self.clear(unit / CHUNK, 1 << (unit % CHUNK));
        }
        moved.len() as u64
    }

    /// Returns the bytes that lie here.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used * UNIT as u64
    }

    /// Returns the bytes of memory that this takes when all slots are in use.
    pub(crate) fn bytes(&self) -> u64 {
        (self.slots_total * (size_of::<(u32, Chunk)>() + size_of::<u32>())) as u64
    }

    /// Panics unless W1 holds.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut slots: Vec<u32> = self.free.clone();
        let mut used = 0;
        for chunk in self.chunks.values() {
            assert_ne!(chunk.live, 0);
            slots.push(chunk.slot);
            used += u64::from(chunk.live.count_ones());
        }
        slots.sort_unstable();
        assert!(slots.iter().copied().eq(0..self.slots_total as u32), "{slots:?}");
        assert_eq!(used, self.used);
    }
}

/// Returns the chunks that have units of a span, which is not empty.
fn chunks_of(span: Span) -> Range<u32> {
    span.unit / CHUNK..(span.unit + span.len - 1) / CHUNK + 1
}

/// Returns the bits of a span in a chunk of it.
fn bits_of(span: Span, chunk: u32) -> u64 {
    let start = chunk * CHUNK;
    let first = span.unit.max(start) - start;
    let end = (span.unit + span.len).min(start + CHUNK) - start;
    (u64::MAX >> (CHUNK - (end - first))) << first
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKS: u32 = 8;

    fn span(unit: u32, len: u32) -> Span {
        Span { unit, len }
    }

    fn near(slots: u32, day_units: Option<u32>) -> Near {
        let day = day_units.map(|units| u64::from(units) * UNIT as u64);
        Near::new(CHUNKS * CHUNK, u64::from(slots * CHUNK), day)
    }

    fn write(near: &mut Near, span: Span, second: u32) -> bool {
        let begun = near.begin_write(span, second).is_some();
        if begun {
            near.end_write(span, true);
        }
        near.check();
        begun
    }

    /// Moves what is old; returns which units went.
    fn moved(near: &mut Near, second: u32, age: u32) -> Vec<u32> {
        let parts = near.begin_move(second, age, u32::MAX);
        let units = parts.iter().flat_map(|part| part.span.units());
        let units: Vec<u32> = units.collect();
        assert_eq!(near.end_move(true), units.len() as u64);
        near.check();
        units
    }

    #[test]
    fn what_is_written_lies_in_slots_until_it_is_removed() {
        let mut near = near(2, None);
        let (early, late) = (span(CHUNK - 10, 20), span(7 * CHUNK, 5));
        let parts = near.begin_write(early, 0).expect("room");
        assert_eq!(parts, [Part { span: early, at: CHUNK - 10 }], "slots that lie side by side");
        near.end_write(early, true);
        assert_eq!(near.run(CHUNK - 10, 20), (10, Some(CHUNK - 10)));
        assert_eq!(near.run(CHUNK + 5, 20), (5, Some(CHUNK + 5)));
        assert_eq!(near.run(CHUNK + 10, 20), (20, None));
        assert!(!write(&mut near, late, 0), "both slots are in use");
        near.remove(span(CHUNK - 10, 10));
        assert!(write(&mut near, late, 0));
        assert_eq!((near.run(7 * CHUNK, 9), near.used_bytes()), ((5, Some(0)), 15 * 512));
        near.begin_write(span(CHUNK, 3), 0).expect("it has a slot");
        near.end_write(span(CHUNK, 3), false);
        assert_eq!(near.run(CHUNK, 9), (3, None), "a write that failed");
        near.check();
    }

    #[test]
    fn a_chunk_goes_when_it_is_old_or_room_is_short() {
        let mut near = near(8, None);
        for chunk in 0..4 {
            assert!(write(&mut near, span(chunk * CHUNK, 2), 10 * chunk));
        }
        assert!(moved(&mut near, 9, 10).is_empty());
        assert_eq!(moved(&mut near, 25, 10), [0, 1, CHUNK, CHUNK + 1]);
        assert!(write(&mut near, span(2 * CHUNK + 9, 1), 29), "it is young again");
        assert!(moved(&mut near, 38, 10).is_empty());
        for chunk in [0, 1, 4, 5, 6] {
            assert!(write(&mut near, span(chunk * CHUNK, 1), 38));
        }
        assert!(moved(&mut near, 38, 10).is_empty(), "one of eight is free");
        assert!(write(&mut near, span(7 * CHUNK, 1), 38));
        assert_eq!(moved(&mut near, 38, 10).len(), 6 + 5, "none is: all is older than what comes");
    }

    #[test]
    fn what_changes_during_a_move_stays_and_what_is_written_does_not_begin_one() {
        let mut near = near(8, None);
        assert!(write(&mut near, span(0, 6), 0));
        near.begin_write(span(CHUNK, 1), 0).expect("room");
        let parts = near.begin_move(100, 10, u32::MAX);
        assert_eq!(parts, [Part { span: span(0, 6), at: 0 }], "the other is being written");
        near.end_write(span(CHUNK, 1), true);
        near.remove(span(1, 1));
        assert!(write(&mut near, span(3, 2), 100));
        let counts: Vec<bool> = (0..6).map(|unit| near.counts(unit)).collect();
        assert_eq!(counts, [true, false, true, false, false, true]);
        assert_eq!(near.end_move(true), 3);
        assert_eq!([near.run(0, 9), near.run(3, 9)], [(3, None), (2, Some(3))]);
        near.begin_move(200, 10, u32::MAX);
        assert_eq!((near.end_move(false), near.run(3, 9)), (0, (2, Some(3))), "it could not go");
        near.check();
    }

    #[test]
    fn a_move_is_no_longer_than_was_asked_for_and_the_next_goes_on() {
        let mut near = near(8, None);
        for chunk in 0..6 {
            assert!(write(&mut near, span(chunk * CHUNK, 50), 0));
        }
        for chunks in [0..2, 2..4, 4..6] {
            let parts = near.begin_move(100, 10, 120);
            let units: Vec<u32> = parts.iter().map(|part| part.span.unit).collect();
            assert!(units.into_iter().eq(chunks.map(|chunk| chunk * CHUNK)));
            near.end_move(true);
        }
        assert!(near.begin_move(100, 10, 120).is_empty());
    }

    #[test]
    fn a_day_has_its_bytes_and_no_more() {
        let mut near = near(8, Some(100));
        assert!(write(&mut near, span(0, 60), 0) && !write(&mut near, span(200, 41), DAY - 1));
        assert!(write(&mut near, span(200, 40), DAY - 1) && !write(&mut near, span(0, 1), DAY - 1));
        assert!(write(&mut near, span(0, 100), DAY), "the next day");
    }
}
