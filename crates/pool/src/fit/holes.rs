//! Which segment has a hole of which length: one bit a segment and bin, and above them two levels
//! that say where a search goes on.
//!
//! ```text
//!   some:      a bit a bin                has any segment a hole of it?
//!   summary:   a bit a bin and group      has any segment of the group?
//!   groups:    a bit a bin and segment    64 segments a group
//! ```
//!
//! A bin has the holes of one length, the last one all holes that fit every extent. So a hole of an
//! object's very length is found, however alike the objects are. A search takes the first bin that
//! fits, in it the lowest segment: objects gather in segments with low numbers, and those with high
//! ones empty.
//!
//! - B1: a bit of an upper level is set if and only if one that it stands for is.
//! - B2: a bit of the lowest level may be stale, when the hole has been joined to another or its
//!   segment has gone. A search that finds no hole there clears it.
//!
//! Cost: 64 bytes a segment. A search looks at three words, or at one more for every 256 MiB of
//! a pool that has no such hole further down.

use super::directory::Lens;
use super::place::{OBJECT_MAX, SEGMENT};

/// The bin of holes that every used extent fits; it may have a granule more than its object.
const LAST: u16 = OBJECT_MAX + 1;

/// Bins of holes: one a length.
pub(crate) const BINS: usize = LAST as usize + 1;

/// Segments of a group, and groups of a word of the summary.
const WORD: usize = u64::BITS as usize;

/// Returns the bin of a hole, which is also the first whose holes all have room for as much, if
/// that is no more than a used extent has.
#[inline]
pub(crate) fn bin_of(granules: u16) -> u16 {
    granules.min(LAST)
}

/// Returns the lengths of the holes of a bin.
#[inline]
pub(crate) fn lens_of(bin: u16) -> Lens {
    Lens { least: bin, more: if bin == LAST { SEGMENT } else { 0 } }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Holes {
    some: [u64; BINS.div_ceil(WORD)],
    /// `words` words a bin.
    summary: Vec<u64>,
    words: usize,
    groups: Vec<Box<[u64; BINS]>>,
}

impl Holes {
    pub(crate) fn new() -> Self {
        Self { some: [0; BINS.div_ceil(WORD)], summary: Vec::new(), words: 0, groups: Vec::new() }
    }

    /// Bytes of the tables.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.summary.capacity() * size_of::<u64>()
            + self.groups.capacity() * size_of::<Box<[u64; BINS]>>()
            + self.groups.len() * size_of::<[u64; BINS]>()
    }

    /// Makes room for the bits of `segments` segments.
    pub(crate) fn cover(&mut self, segments: usize) {
        while self.groups.len() * WORD < segments {
            self.groups.push(Box::new([0; BINS]));
        }
        if self.words * WORD < self.groups.len() {
            self.set_words(self.groups.len().div_ceil(WORD));
        }
    }

    /// Gives back the room for others than the first `segments` segments.
    pub(crate) fn trim(&mut self, segments: usize) {
        let groups = segments.div_ceil(WORD);
        for group in groups..self.groups.len() {
            let stale = (0..BINS).filter(|&bin| self.groups[group][bin] != 0);
            for bin in stale.collect::<Vec<_>>() {
                self.groups[group][bin] = 0;
                self.clear_above(bin, group);
            }
        }
        self.groups.truncate(groups);
        self.groups.shrink_to_fit();
        if self.words > groups.div_ceil(WORD) {
            self.set_words(groups.div_ceil(WORD));
        }
    }

    /// Has the summary have `words` words a bin; those that go are zeros.
    fn set_words(&mut self, words: usize) {
        let mut summary = vec![0; words * BINS];
        let both = self.words.min(words);
        for bin in 0..BINS {
            let old = &self.summary[bin * self.words..][..both];
            summary[bin * words..][..both].copy_from_slice(old);
        }
        (self.summary, self.words) = (summary, words);
    }

    /// Notes that a segment has a hole of `bin`.
    #[inline]
    pub(crate) fn set(&mut self, bin: u16, segment: u32) {
        let (bin, group, bit) =
            (usize::from(bin), segment as usize / WORD, segment as usize % WORD);
        let word = &mut self.groups[group][bin];
        let first = *word == 0;
        *word |= 1 << bit;
        if first {
            self.summary[bin * self.words + group / WORD] |= 1 << (group % WORD);
            self.some[bin / WORD] |= 1 << (bin % WORD);
        }
    }

    /// Notes that a segment has no hole of `bin`.
    #[inline]
    pub(crate) fn clear(&mut self, bin: u16, segment: u32) {
        let (bin, group, bit) =
            (usize::from(bin), segment as usize / WORD, segment as usize % WORD);
        let word = &mut self.groups[group][bin];
        let was = std::mem::replace(word, *word & !(1 << bit));
        if was != 0 && self.groups[group][bin] == 0 {
            self.clear_above(bin, group);
        }
    }

    /// Clears the bits above a word that has become zero.
    #[inline]
    fn clear_above(&mut self, bin: usize, group: usize) {
        let words = &mut self.summary[bin * self.words..][..self.words];
        words[group / WORD] &= !(1 << (group % WORD));
        if words.iter().all(|&word| word == 0) {
            self.some[bin / WORD] &= !(1 << (bin % WORD));
        }
    }

    /// Returns the first bin from `from` on that has a bit, and the lowest segment in it.
    #[inline]
    pub(crate) fn first(&self, from: u16) -> Option<(u16, u32)> {
        let from = usize::from(from);
        let at = from / WORD;
        let here = self.some[at] & (!0 << (from % WORD));
        let (at, word) = match here {
            0 => (at + 1..self.some.len()).map(|at| (at, self.some[at])).find(|&(_, w)| w != 0)?,
            here => (at, here),
        };
        let bin = at * WORD + word.trailing_zeros() as usize;
        let words = &self.summary[bin * self.words..][..self.words];
        let (at, word) = (0..).zip(words).find(|&(_, &word)| word != 0).expect("B1: summary");
        let group = at * WORD + word.trailing_zeros() as usize;
        let word = self.groups[group][bin];
        debug_assert!(word != 0, "B1: group {group}");
        Some((bin as u16, (group * WORD) as u32 + word.trailing_zeros()))
    }

    /// Returns whether a segment's bit of `bin` is set.
    pub(crate) fn has(&self, bin: u16, segment: u32) -> bool {
        let (group, bit) = (segment as usize / WORD, segment as usize % WORD);
        self.groups[group][usize::from(bin)] >> bit & 1 == 1
    }

    /// Asserts B1.
    ///
    /// # Panics
    /// If it is broken.
    pub(crate) fn check(&self) {
        for bin in 0..BINS {
            let words = &self.summary[bin * self.words..][..self.words];
            let some = self.some[bin / WORD] >> (bin % WORD) & 1 == 1;
            assert_eq!(some, words.iter().any(|&word| word != 0), "B1: bin {bin}");
            for group in 0..self.words * WORD {
                let bit = words[group / WORD] >> (group % WORD) & 1 == 1;
                let any = self.groups.get(group).is_some_and(|group| group[bin] != 0);
                assert_eq!(bit, any, "B1: bin {bin} of group {group}");
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn config() -> ProptestConfig {
        ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() }
    }

    proptest! {
        #![proptest_config(config())]
        #[test]
        fn bits_match_a_set(
            ops in vec((any::<bool>(), 0..BINS as u16, 0..9000_u32), 1..60),
            from in 0..BINS as u16,
        ) {
            let (mut holes, mut set) = (Holes::new(), BTreeSet::new());
            for (sets, bin, segment) in ops {
                holes.cover(segment as usize + 1);
                if sets {
                    holes.set(bin, segment);
                    set.insert((bin, segment));
                } else {
                    let (bin, segment) = set.pop_first().unwrap_or((bin, segment));
                    holes.clear(bin, segment);
                }
                prop_assert_eq!(holes.first(from), set.range((from, 0)..).next().copied());
            }
            prop_assert!(set.iter().all(|&(bin, segment)| holes.has(bin, segment)));
            holes.check();
            holes.trim(4000);
            holes.check();
            set.retain(|&(_, segment)| segment < 4032);
            prop_assert_eq!(holes.first(0), set.first().copied());
        }
    }

    #[test]
    fn the_bins_from_that_of_a_length_on_have_all_holes_with_room_for_it() {
        for granules in 1..=LAST {
            let bin = bin_of(granules);
            assert!((1..=OBJECT_MAX * 2).all(|hole| (bin_of(hole) >= bin) == (hole >= granules)));
        }
        for hole in 1..=SEGMENT {
            let Lens { least, more } = lens_of(bin_of(hole));
            assert!((least..=least + more).contains(&hole));
            let others = (0..=LAST).filter(|&bin| bin != bin_of(hole)).map(lens_of);
            assert!(others.into_iter().all(|Lens { least, more }| hole.wrapping_sub(least) > more));
        }
    }

    #[test]
    fn a_trimmed_index_has_room_for_what_is_left_only() {
        let mut holes = Holes::new();
        holes.cover(10_000);
        holes.set(3, 9999);
        let full = holes.bytes();
        holes.trim(10);
        holes.check();
        assert!(holes.first(0).is_none() && holes.bytes() * 30 < full);
        holes.trim(0);
        assert_eq!(holes.bytes(), 0);
    }
}
