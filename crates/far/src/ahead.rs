//! Read-ahead: pieces of objects that a get fetches beyond the requested units, kept for the next
//! reader.
//!
//! Some engines bring a hundred KiB in the time of a page. Units that left memory together lie
//! together in an object, and are often needed together. So a reader fetches a whole *piece* and
//! keeps it, sealed as it came.
//!
//! - Q1: a piece holds bytes of an object by its number. Objects never change and numbers are not
//!   used again (engine/N1), so a piece is as good as what the engine would answer, however old it
//!   is. Opening it shows whether it is what was sent (seal/A3).
//! - Q2: all pieces together take as much memory as the options say, at most.
//! - Q3: a piece of which a unit does not open is forgotten, and the engine is asked.
//!
//! The lock is a leaf, held while a piece is looked for and bytes are copied from it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use zfold_store::pool::Lock;

use crate::log::Spot;
use crate::seal::SEALED;

/// How many pieces there is room for at least; with less memory they are shorter.
const PIECES_MIN: usize = 8;

/// A piece that is shorter than this is not worth it: 16 KiB.
const UNITS_MIN: usize = (16 << 10) / SEALED;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Length of a piece in units; 0 if nothing is kept.
    units: u32,
    /// How many pieces are kept.
    most: usize,
    /// The one that was used last is the last one.
    pieces: Lock<VecDeque<Piece>>,
    bytes: AtomicU64,
}

#[derive(Debug)]
struct Piece {
    number: u64,
    units: Range<u32>,
    sealed: Vec<u8>,
}

impl Piece {
    /// Returns whether it has the `len` units from `spot` on.
    fn has(&self, spot: Spot, len: u32) -> bool {
        let Range { start, end } = self.units;
        self.number == spot.number && start <= spot.index && spot.index + len <= end
    }
}

impl Ahead {
    /// Returns room of `memory` bytes for pieces of an engine that likes to bring `liked` bytes at
    /// a time. There is none if either is too little.
    pub(crate) fn new(liked: usize, memory: u64) -> Self {
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        let units = liked.min(memory / PIECES_MIN) / SEALED;
        let units = if units < UNITS_MIN { 0 } else { units };
        Self {
            units: units as u32,
            most: memory.checked_div(units * SEALED).unwrap_or(0),
            pieces: Lock::default(),
            bytes: AtomicU64::new(0),
        }
    }

    /// Returns which units of an object to fetch when the `len` units from `spot` on are needed.
    pub(crate) fn range(&self, spot: Spot, len: u32) -> Range<u32> {
        let (wanted, end) = (spot.index..spot.index + len, spot.index + len);
        if len > self.units {
            return wanted;
        }
        let whole = spot.index - spot.index % self.units;
        let start = if end <= whole + self.units { whole } else { spot.index };
        // The object's end is never before what lies there.
        start..(start + self.units).min(spot.units).max(end)
    }

    /// Fills `sealed` with the units from `spot` on if a piece has all of them.
    pub(crate) fn copy(&self, spot: Spot, sealed: &mut [u8]) -> bool {
        if self.units == 0 {
            return false;
        }
        let len = (sealed.len() / SEALED) as u32;
        let mut pieces = self.pieces.lock();
        let Some(at) = pieces.iter().rposition(|piece| piece.has(spot, len)) else { return false };
        let piece = pieces.remove(at).expect("found");
        let start = (spot.index - piece.units.start) as usize * SEALED;
        sealed.copy_from_slice(&piece.sealed[start..][..sealed.len()]);
        pieces.push_back(piece);
        true
    }

    /// Keeps what came of these units of an object, if it is a piece (Q2).
    pub(crate) fn keep(&self, number: u64, units: Range<u32>, sealed: Vec<u8>) {
        if units.len() > self.units as usize {
            return;
        }
        let mut pieces = self.pieces.lock();
        // Another reader may have fetched the same.
        pieces.retain(|piece| piece.number != number || piece.units != units);
        pieces.push_back(Piece { number, units, sealed });
        if pieces.len() > self.most {
            pieces.pop_front();
        }
        self.count(&pieces);
    }

    /// Forgets the pieces that have the unit at `spot` (Q3).
    pub(crate) fn forget(&self, spot: Spot) {
        let mut pieces = self.pieces.lock();
        pieces.retain(|piece| !piece.has(spot, 1));
        self.count(&pieces);
    }

    fn count(&self, pieces: &VecDeque<Piece>) {
        let bytes = pieces.iter().map(|piece| piece.sealed.len() as u64).sum();
        // Relaxed: a gauge, stored under the lock.
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of memory that the pieces take, without the lock.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = UNITS_MIN * SEALED;

    fn spot(number: u64, index: u32) -> Spot {
        Spot { number, index, units: 1000 }
    }

    /// Keeps the piece that a reader of `len` units at `spot` fetched; all bytes are the number.
    fn fetch(ahead: &Ahead, spot: Spot, len: u32) -> Range<u32> {
        let range = ahead.range(spot, len);
        ahead.keep(spot.number, range.clone(), vec![spot.number as u8; range.len() * SEALED]);
        range
    }

    #[test]
    fn a_reader_asks_for_the_piece_around_what_it_needs() {
        let ahead = Ahead::new(PIECE, 64 * PIECE as u64);
        let units = UNITS_MIN as u32;
        assert_eq!(ahead.range(spot(1, units + 3), 3), units..2 * units);
        assert_eq!(ahead.range(spot(1, units - 1), 3), units - 1..2 * units - 1, "across two");
        assert_eq!(ahead.range(spot(1, 5), units + 1), 5..units + 6, "longer than a piece");
        let end = Spot { number: 1, index: units + 1, units: units + 4 };
        assert_eq!(ahead.range(end, 3), units..units + 4, "the object ends");
    }

    #[test]
    fn what_was_brought_is_found_until_others_need_the_room() {
        let ahead = Ahead::new(PIECE, PIECES_MIN as u64 * PIECE as u64);
        let mut out = vec![0; 2 * SEALED];
        for number in 0..PIECES_MIN as u64 {
            fetch(&ahead, spot(number, 0), 2);
        }
        assert!(ahead.copy(spot(0, 4), &mut out) && out.iter().all(|byte| *byte == 0));
        fetch(&ahead, spot(99, 0), 2);
        assert!(ahead.copy(spot(0, 4), &mut out), "it was used last");
        assert!(!ahead.copy(spot(1, 4), &mut out), "it was not");
        assert!(!ahead.copy(spot(0, UNITS_MIN as u32 - 1), &mut out), "a part is not enough");
        assert_eq!(ahead.bytes(), (PIECES_MIN * PIECE) as u64);
        ahead.forget(spot(0, 4));
        assert!(!ahead.copy(spot(0, 4), &mut out));
    }

    #[test]
    fn with_little_memory_pieces_are_shorter_and_then_there_are_none() {
        let all = Ahead::new(4 * PIECE, 100 * PIECE as u64);
        assert_eq!((all.units as usize, all.most), (4 * UNITS_MIN, 25));
        let few = Ahead::new(4 * PIECE, 16 * PIECE as u64);
        assert_eq!((few.units as usize, few.most), (2 * UNITS_MIN, PIECES_MIN));
        for none in [Ahead::new(0, u64::MAX), Ahead::new(PIECE, PIECE as u64)] {
            assert_eq!(none.range(spot(1, 7), 3), 7..10);
            assert_eq!(fetch(&none, spot(1, 7), 3), 7..10);
            assert!(!none.copy(spot(1, 7), &mut vec![0; SEALED]) && none.bytes() == 0);
        }
    }
}
