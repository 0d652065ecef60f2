//! The log: which unit lies in which object, which units of an object are still needed, and which
//! objects to clean.
//!
//! Plain data without locks, time or input and output. Its caller makes it true: an object is added
//! to the log after the engine has acknowledged it, and only objects are deleted that the log has
//! handed out as dead.
//!
//! An object is a row of units of the address space, in spans. Overwriting or discarding a unit
//! makes its copy in an object dead. An object without a living unit is dead itself; one of which
//! less than half lives is sparse, and one shorter than [`SMALL`] is small. Both are rewritten,
//! several into one, once that is worth it ([`victims`](Log::victims)).
//!
//! - L1: where the map places a unit, there is an object, whose spans say that unit at that index.
//! - L2: `live` of an object is the number of units that the map places there. An object has at
//!   least one; without, it is gone and its number is among the dead.
//! - L3: `stored` and `live` of the log are the sums over its objects, in units.
//! - L4: `begin` returns each number once.
//! - L5: a number is handed out as dead once, and no unit lies there then or later.
//! - L6: `relocate` moves only units that still lie where they were copied from.
//! - L7: a small object is in `small`; another is in `sparse` if less than half of it lives. One
//!   that could not be read is in neither until more of it dies, a small one for good.
//!
//! Cost: 4 bytes a unit in use, in chunks; about 50 bytes an object and 8 a span.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::map::{Map, Place, UNIT};
use crate::seal::SEALED;
use crate::twin::{Twin, broken};

/// Units below which an object is small: 16 KiB, where what an engine adds to a value is 1 %.
const SMALL: u32 = 32;

/// How many of the objects that can be listed are the cleaner's, which needs one to make room.
const KEPT_SLOTS: u32 = 16;

/// How many small objects are merged although they do not fill half an object.
const SMALL_MAX: usize = 256;

/// How many dead objects are deleted before it is time, at least and at most; between them, an
/// eighth of all that can be there.
const DEAD_MIN: u32 = 8;
const DEAD_MAX: u32 = 256;

/// The shortest and the longest object, in bytes.
const OBJECT_BYTES: std::ops::RangeInclusive<usize> = (64 << 10)..=(1 << 20);

/// Neighbouring units of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) unit: u32,
    pub(crate) len: u32,
}

impl Span {
    /// Returns its units.
    pub(crate) fn units(self) -> Range<u32> {
        self.unit..self.unit + self.len
    }
}

/// The range that a reader requests from the engine. Numbers are not reused, so equal spots have
/// equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) number: u64,
    pub(crate) index: u32,
}

/// A span that lies, in order, in an object from an index on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) span: Span,
    pub(crate) spot: Spot,
    slot: u32,
}

/// The log has no room for another object, or only for one of the cleaner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

#[derive(Debug)]
struct Object {
    number: u64,
    units: u32,
    live: u32,
    spans: Box<[Span]>,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Log {
    map: Map,
    units: u32,
    object_units: u32,
    index_bits: u32,
    /// How many objects can be listed.
    slots_max: u32,
    next: u64,
    slots: Vec<Option<Object>>,
    free: Vec<u32>,
    spans: usize,
    stored: u64,
    live: u64,
    /// By number, so the oldest first.
    sparse: BTreeSet<(u64, u32)>,
    small: BTreeSet<(u64, u32)>,
    small_live: u64,
    dead: Vec<u64>,
    /// How many of these are deleted before it is time.
    dead_max: u32,
    /// Numbers whose put failed: those of now, and those of before the last `age`.
    doubtful: [Vec<u64>; 2],
}

impl Log {
    /// Returns an empty log of this many units, with objects of about `object_bytes` sealed bytes.
    pub(crate) fn new(units: u32, object_bytes: usize) -> Self {
        let bytes = object_bytes.clamp(*OBJECT_BYTES.start(), *OBJECT_BYTES.end());
        let object_units = (bytes / SEALED) as u32;
        let index_bits = object_units.next_power_of_two().trailing_zeros();
        Self {
            map: Map::new(units),
            units,
            object_units,
            index_bits,
            slots_max: Place::slots(index_bits),
            next: 0,
            slots: Vec::new(),
            free: Vec::new(),
            spans: 0,
            stored: 0,
            live: 0,
            sparse: BTreeSet::new(),
            small: BTreeSet::new(),
            small_live: 0,
            dead: Vec::new(),
            dead_max: (units / 8 / object_units).clamp(DEAD_MIN, DEAD_MAX),
            doubtful: [Vec::new(), Vec::new()],
        }
    }

    /// Returns how many units an object has at most.
    pub(crate) fn object_units(&self) -> u32 {
        self.object_units
    }

    /// Returns a number for an object (L4).
    pub(crate) fn begin(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Says that an object with the units of `span` is acknowledged.
    ///
    /// # Errors
    /// [`Full`]; the object is then dead.
    pub(crate) fn publish(&mut self, number: u64, span: Span) -> Result<(), Full> {
        let slot = self.add(number, Box::new([span]), KEPT_SLOTS)?;
        for (unit, index) in span.units().zip(0..) {
            self.place(unit, slot, index);
        }
        self.settle(slot);
        Ok(())
    }

    /// Says that an object is acknowledged which holds copies of `pieces`, in order (L6).
    ///
    /// # Errors
    /// [`Full`]; the object is then dead.
    pub(crate) fn relocate(&mut self, number: u64, pieces: &[Piece]) -> Result<(), Full> {
        let slot = self.add(number, pieces.iter().map(|piece| piece.span).collect(), 0)?;
        let mut index = 0;
        for piece in pieces {
            for at in 0..piece.span.len {
                if self.lies(piece, at) {
                    self.place(piece.span.unit + at, slot, index);
                }
                index += 1;
            }
        }
        self.settle(slot);
        Ok(())
    }

    /// Returns whether a unit of a piece lies where it did when the piece was made.
    fn lies(&self, piece: &Piece, at: u32) -> bool {
        if broken(Twin::MovesBlindly) {
            return true;
        }
        let there = (piece.slot, piece.spot.index + at);
        self.map.at(piece.span.unit + at).map(|place| place.split(self.index_bits)) == Some(there)
            && self.object(piece.slot).number == piece.spot.number
    }

    /// Returns where `unit` lies, and how many of the `len` units from there on lie side by side.
    pub(crate) fn find(&self, unit: u32, len: u32) -> Option<(Spot, u32)> {
        let (slot, index) = self.map.at(unit)?.split(self.index_bits);
        let beside = |at: &u32| {
            let place = self.map.at(unit + at).map(|place| place.split(self.index_bits));
            place == Some((slot, index + at))
        };
        let together = 1 + (1..len).take_while(beside).count() as u32;
        Some((Spot { number: self.object(slot).number, index }, together))
    }

    /// Declares the units of `span` unneeded.
    pub(crate) fn discard(&mut self, span: Span) {
        let end = span.unit + span.len;
        let mut unit = self.map.skip(span.unit, end);
        while unit < end {
            if let Some(place) = self.map.remove(unit) {
                self.lose(place);
            }
            unit = self.map.skip(unit + 1, end);
        }
    }

    /// Declares `number`, which is in no object of the log, unneeded.
    pub(crate) fn doom(&mut self, number: u64) {
        self.dead.push(number);
    }

    /// Says that the put of `number` failed, so that the object may be there, or come yet. It is
    /// dead after `age` was called twice.
    pub(crate) fn doubt(&mut self, number: u64) {
        self.doubtful[0].push(number);
    }

    /// Lets time pass for doubtful numbers.
    pub(crate) fn age(&mut self) {
        let [young, old] = &mut self.doubtful;
        self.dead.append(old);
        std::mem::swap(young, old);
    }

    /// Returns up to `most` numbers that can be deleted; the caller deletes them, or dooms them
    /// again (L5).
    pub(crate) fn take_dead(&mut self, most: usize) -> Vec<u64> {
        let rest = self.dead.len().saturating_sub(most);
        let taken = self.dead.split_off(rest);
        if self.dead.is_empty() {
            self.dead = Vec::new();
        }
        taken
    }

    /// Forgets all objects, whose numbers are then dead, and so are the doubtful ones.
    pub(crate) fn discard_all(&mut self) {
        self.discard(Span { unit: 0, len: self.units });
        self.age();
        self.age();
    }

    /// Returns what is worth being written into one new object: living pieces of sparse objects
    /// when the dead are more than a third of all that is stored, or of small objects when they
    /// make half an object or are many; of either, if there is no room for more objects. Empty if
    /// nothing is.
    pub(crate) fn victims(&self) -> Vec<Piece> {
        let dead = self.stored - self.live;
        let short = !self.has_room();
        if (short || 2 * dead > self.live) && !self.sparse.is_empty() {
            return self.gather(&self.sparse);
        }
        let fills = 2 * self.small_live >= u64::from(self.object_units) && self.small.len() > 1;
        if fills || self.small.len() >= SMALL_MAX || (short && self.small.len() > 1) {
            return self.gather(&self.small);
        }
        Vec::new()
    }

    /// Takes an object that could not be read from the cleaner's lists, until more of it dies.
    pub(crate) fn leave(&mut self, piece: &Piece) {
        if self.slots[piece.slot as usize].as_ref().is_some_and(|o| o.number == piece.spot.number) {
            self.sparse.remove(&(piece.spot.number, piece.slot));
            if self.small.remove(&(piece.spot.number, piece.slot)) {
                self.small_live -= u64::from(self.object(piece.slot).live);
            }
        }
    }

    fn gather(&self, from: &BTreeSet<(u64, u32)>) -> Vec<Piece> {
        let mut left = self.object_units;
        let mut pieces = Vec::new();
        for &(_, slot) in from {
            let live = self.object(slot).live;
            if live > left {
                break;
            }
            left -= live;
            self.living(slot, &mut pieces);
        }
        pieces
    }

    /// Appends the pieces of an object that live.
    fn living(&self, slot: u32, pieces: &mut Vec<Piece>) {
        let object = self.object(slot);
        let mut index = 0;
        for span in &object.spans {
            let mut open: Option<Piece> = None;
            for unit in span.units() {
                let here = self.map.at(unit).map(|place| place.split(self.index_bits));
                if here == Some((slot, index)) {
                    let spot = Spot { number: object.number, index };
                    let start = Piece { span: Span { unit, len: 0 }, spot, slot };
                    open.get_or_insert(start).span.len += 1;
                } else {
                    pieces.extend(open.take());
                }
                index += 1;
            }
            pieces.extend(open);
        }
    }

    /// Returns whether another object can be listed that is not the cleaner's.
    pub(crate) fn has_room(&self) -> bool {
        self.has_slots(KEPT_SLOTS)
    }

    fn has_slots(&self, kept: u32) -> bool {
        self.objects() + u64::from(kept) < u64::from(self.slots_max)
    }

    /// Adds an object without live units yet, if there is room for `kept` others.
    fn add(&mut self, number: u64, spans: Box<[Span]>, kept: u32) -> Result<u32, Full> {
        let units: u32 = spans.iter().map(|span| span.len).sum();
        debug_assert!(0 < units && units <= self.object_units);
        if !self.has_slots(kept) {
            self.doom(number);
            return Err(Full);
        }
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        self.spans += spans.len();
        self.stored += u64::from(units);
        let object = Some(Object { number, units, live: 0, spans });
        match self.slots.get_mut(slot as usize) {
            Some(free) => *free = object,
            None => self.slots.push(object),
        }
        Ok(slot)
    }

    /// Places a unit, whose former copy becomes garbage.
    fn place(&mut self, unit: u32, slot: u32, index: u32) {
        let place = Place::new(slot, index, self.index_bits).expect("checked when it was added");
        let object = self.slots[slot as usize].as_mut().expect("added");
        object.live += 1;
        self.live += 1;
        if let Some(old) = self.map.insert(unit, place) {
            self.lose(old);
        }
    }

    /// Puts a new object, all of whose units are placed, where it belongs (L2, L7).
    fn settle(&mut self, slot: u32) {
        let (number, units, live) = self.counts(slot);
        if live == 0 {
            self.remove(slot);
        } else if units < SMALL {
            self.small.insert((number, slot));
            self.small_live += u64::from(live);
        } else if 2 * live < units {
            self.sparse.insert((number, slot));
        }
    }

    /// Counts one unit less in the object where it lay (L2, L7).
    fn lose(&mut self, place: Place) {
        let (slot, _) = place.split(self.index_bits);
        self.live -= 1;
        let object = self.slots[slot as usize].as_mut().expect("a unit lies there (L1)");
        object.live -= 1;
        let (number, units, live) = self.counts(slot);
        if self.small.contains(&(number, slot)) {
            self.small_live -= 1;
        }
        if live == 0 {
            self.remove(slot);
        } else if units >= SMALL && 2 * live < units {
            self.sparse.insert((number, slot));
        }
    }

    /// Removes an object without live units (L2).
    fn remove(&mut self, slot: u32) {
        let object = self.slots[slot as usize].take().expect("it is there");
        self.free.push(slot);
        self.spans -= object.spans.len();
        self.stored -= u64::from(object.units);
        self.sparse.remove(&(object.number, slot));
        self.small.remove(&(object.number, slot));
        self.doom(object.number);
    }

    fn object(&self, slot: u32) -> &Object {
        self.slots[slot as usize].as_ref().expect("a unit lies there (L1)")
    }

    fn counts(&self, slot: u32) -> (u64, u32, u32) {
        let object = self.object(slot);
        (object.number, object.units, object.live)
    }

    /// Returns the numbers of the objects in these slots; none beyond the last one.
    pub(crate) fn numbers(&self, slots: Range<usize>) -> Option<Vec<u64>> {
        let slots = self.slots.get(slots.start..slots.end.min(self.slots.len()))?;
        (!slots.is_empty()).then(|| slots.iter().flatten().map(|object| object.number).collect())
    }

    /// Returns the number of objects.
    pub(crate) fn objects(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
    }

    /// Returns the number of objects that are or may be there, without use, and are not handed out.
    pub(crate) fn dead(&self) -> usize {
        self.dead.len() + self.doubtful.iter().map(Vec::len).sum::<usize>()
    }

    /// Returns whether the cleaner should be woken.
    pub(crate) fn calls(&self) -> bool {
        self.dead.len() >= self.dead_max as usize
    }

    /// Returns the sealed bytes of all objects, and of the units in them that live.
    pub(crate) fn sealed_bytes(&self) -> (u64, u64) {
        (self.stored * SEALED as u64, self.live * SEALED as u64)
    }

    /// Panics unless L1, L2, L3 and L7 hold.
    #[cfg(test)]
    fn check(&self) {
        self.map.check();
        let (mut stored, mut live, mut spans, mut small_live) = (0, 0, 0, 0);
        for (slot, object) in self.slots.iter().enumerate() {
            let Some(object) = object else { continue };
            let id = (object.number, slot as u32);
            assert!(object.number < self.next);
            assert_eq!(object.units, object.spans.iter().map(|span| span.len).sum::<u32>());
            let mut pieces = Vec::new();
            self.living(slot as u32, &mut pieces);
            assert_eq!(object.live, pieces.iter().map(|piece| piece.span.len).sum::<u32>());
            assert!(object.live > 0);
            (stored, live) = (stored + object.units, live + object.live);
            spans += object.spans.len();
            assert!(!self.small.contains(&id) || object.units < SMALL);
            assert!(!self.sparse.contains(&id) || object.units >= SMALL);
            assert!(!self.sparse.contains(&id) || 2 * object.live < object.units);
            small_live += if self.small.contains(&id) { object.live } else { 0 };
        }
        let placed = (0..self.units).filter(|&unit| self.map.at(unit).is_some()).count();
        assert_eq!((u64::from(stored), u64::from(live)), (self.stored, self.live));
        assert_eq!((placed, spans), (live as usize, self.spans));
        assert_eq!(u64::from(small_live), self.small_live);
        let there = |id: &(u64, u32)| self.object(id.1).number == id.0;
        assert!(self.small.iter().chain(&self.sparse).all(there));
    }

    /// Returns the bytes of memory that the log takes; of its sets, what their elements take.
    pub(crate) fn bytes(&self) -> u64 {
        let sets = (self.sparse.len() + self.small.len()) * size_of::<(u64, u32)>();
        let tables = self.slots.capacity() * size_of::<Option<Object>>()
            + self.free.capacity() * size_of::<u32>()
            + (self.dead.capacity() + self.doubtful.iter().map(Vec::capacity).sum::<usize>())
                * size_of::<u64>();
        (self.map.bytes() + self.spans * size_of::<Span>() + sets + tables) as u64
    }
}

const _: () = assert!(UNIT == zfold_store::backing::MIN_ALIGN);

#[cfg(test)]
mod tests;
