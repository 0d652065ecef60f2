//! Where each unit of the address space lies: four bytes a unit, in chunks that exist where units
//! are in use.
//!
//! - M1: `used` of a chunk is the number of its units that lie somewhere; a chunk without any does
//!   not exist.

/// Bytes of a unit: the unit by which the store places pages.
pub(crate) const UNIT: usize = 512;

/// Units of a chunk: 2 MiB of the address space, 16 KiB of map.
const CHUNK: usize = 4096;

/// A slot of the object table, and an index in that object: what the log makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u32);

impl Place {
    const NOWHERE: Self = Self(u32::MAX);

    /// Returns the place of a unit; `None` if the slot is beyond the last one.
    pub(crate) fn new(slot: u32, index: u32, index_bits: u32) -> Option<Self> {
        debug_assert!(index < 1 << index_bits);
        let place = (u64::from(slot) << index_bits) | u64::from(index);
        u32::try_from(place).ok().map(Self).filter(|&place| place != Self::NOWHERE)
    }

    /// Returns how many slots there are for objects with indices of this many bits. The last place
    /// of all stands for nowhere, so the last slot is left out.
    pub(crate) fn slots(index_bits: u32) -> u32 {
        u32::MAX >> index_bits
    }

    /// Returns the slot and the index.
    pub(crate) fn split(self, index_bits: u32) -> (u32, u32) {
        (self.0 >> index_bits, self.0 & ((1 << index_bits) - 1))
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Map {
    chunks: Vec<Option<Box<Chunk>>>,
    existing: usize,
}

#[derive(Debug)]
struct Chunk {
    used: u32,
    places: [Place; CHUNK],
}

impl Map {
    /// Returns the map of `units` units that lie nowhere.
    pub(crate) fn new(units: u32) -> Self {
        let chunks = (units as usize).div_ceil(CHUNK);
        Self { chunks: std::iter::repeat_with(|| None).take(chunks).collect(), existing: 0 }
    }

    /// Returns where a unit lies.
    pub(crate) fn at(&self, unit: u32) -> Option<Place> {
        let chunk = self.chunks[unit as usize / CHUNK].as_ref()?;
        Some(chunk.places[unit as usize % CHUNK]).filter(|&place| place != Place::NOWHERE)
    }

    /// Says where a unit lies; returns where it lay before.
    pub(crate) fn insert(&mut self, unit: u32, place: Place) -> Option<Place> {
        let slot = &mut self.chunks[unit as usize / CHUNK];
        if slot.is_none() {
            self.existing += 1;
        }
        let empty = || Box::new(Chunk { used: 0, places: [Place::NOWHERE; CHUNK] });
        let chunk = slot.get_or_insert_with(empty);
        let old = std::mem::replace(&mut chunk.places[unit as usize % CHUNK], place);
        if old == Place::NOWHERE {
            chunk.used += 1;
            return None;
        }
        Some(old)
    }

    /// Says that a unit lies nowhere; returns where it lay.
    pub(crate) fn remove(&mut self, unit: u32) -> Option<Place> {
        let slot = &mut self.chunks[unit as usize / CHUNK];
        let chunk = slot.as_mut()?;
        let old = std::mem::replace(&mut chunk.places[unit as usize % CHUNK], Place::NOWHERE);
        if old == Place::NOWHERE {
            return None;
        }
        chunk.used -= 1;
        if chunk.used == 0 {
            *slot = None;
            self.existing -= 1;
        }
        Some(old)
    }

    /// Returns the first unit from `unit` on, before `end`, that may lie somewhere: those between
    /// lie nowhere, and cost a step for each chunk.
    pub(crate) fn skip(&self, mut unit: u32, end: u32) -> u32 {
        while unit < end && self.chunks[unit as usize / CHUNK].is_none() {
            unit = ((unit as usize / CHUNK + 1) * CHUNK).min(end as usize) as u32;
        }
        unit
    }

    /// Returns the bytes of memory that the map takes.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<usize>() + self.existing * size_of::<Chunk>()
    }

    /// Panics unless M1 holds.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let some = self.chunks.iter().flatten();
        for chunk in some.clone() {
            let used = chunk.places.iter().filter(|&&place| place != Place::NOWHERE).count();
            assert!(used > 0);
            assert_eq!(used, chunk.used as usize);
        }
        assert_eq!(some.count(), self.existing);
    }
}
