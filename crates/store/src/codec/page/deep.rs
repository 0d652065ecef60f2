//! The deep encoder: of all ways to write a page with the matches it finds, about the cheapest.
//!
//! For each position it keeps the cheapest way to get there and goes on from it: by a literal, or
//! by each match it finds, at each of its lengths. This is dynamic programming as encoders of the
//! LZ77 family have done it since the 1990s (`lzma`, for one). It is not exact: what is best on the
//! way to a position decides which offsets are recent there, and another way might have had better
//! ones.

use std::ops::ControlFlow;

use super::format::{
    FIRST_RECENT, LENGTH_ESCAPE, LITERALS_FULL, MATCH_FULL, MATCH_MIN, OFFSET_MIN, is_short,
};
use super::quick::{common, hash};
use super::streams::Streams;

/// Costs are counted in quarters of a byte.
const BYTE: u32 = 4;
/// What a sequence costs besides its bytes, because it takes time to decode: one byte.
const SEQUENCE: u32 = 4;
/// Earlier places that are looked at for each position.
const PLACES: usize = 8;
/// A match as long as this is taken without looking for others.
const ENOUGH: usize = 32;
/// Bits of a hash of three bytes.
const HASH_BITS: u32 = 14;
/// No place: no match begins at the last byte of a page.
const NOWHERE: u16 = u16::MAX;

/// The cheapest way found to one position of a page.
#[derive(Clone, Copy)]
struct Way {
    cost: u32,
    /// Literals since the last match.
    literals: u32,
    /// The last offset and the last but one.
    recent: [u16; 2],
    /// The match with which it ends, or 0 if that is a literal.
    len: u16,
    offset: u16,
}

const UNREACHED: Way = Way { cost: u32::MAX, literals: 0, recent: [0; 2], len: 0, offset: 0 };

/// The tables of the deep encoder.
pub(super) struct Deep {
    /// By hash of three bytes, where they were seen last; and for each position the place before.
    heads: Box<[u16; 1 << HASH_BITS]>,
    earlier: Box<[u16]>,
    /// One for each position, and one for the end.
    ways: Box<[Way]>,
    /// Where the matches of the cheapest way end, from the last to the first.
    ends: Vec<usize>,
}

impl Deep {
    /// Returns tables for pages of up to `page_len` bytes.
    pub(super) fn new(page_len: usize) -> Self {
        Self {
            heads: Box::new([NOWHERE; 1 << HASH_BITS]),
            earlier: vec![NOWHERE; page_len].into(),
            ways: vec![UNREACHED; page_len + 1].into(),
            ends: Vec::with_capacity(page_len / MATCH_MIN + 1),
        }
    }

    /// Puts the sequences of `page`, which is at most 64 KiB long, into `streams`.
    pub(super) fn encode(&mut self, page: &[u8], streams: &mut Streams) {
        if self.earlier.len() < page.len() {
            *self = Self::new(page.len());
        }
        streams.begin(page.len());
        self.find_ways(page);
        self.ends.clear();
        let mut at = page.len();
        while at > 0 {
            let len = usize::from(self.ways[at].len);
            if len > 0 {
                self.ends.push(at);
            }
            at -= len.max(1);
        }
        let mut anchor = 0;
        for &end in self.ends.iter().rev() {
            let Way { len, offset, .. } = self.ways[end];
            let (len, offset) = (usize::from(len), usize::from(offset));
            streams.sequence(page, anchor..end - len, offset, len);
            anchor = end;
        }
        if anchor < page.len() {
            streams.last(page, anchor..page.len());
        }
    }

    fn find_ways(&mut self, page: &[u8]) {
        self.heads.fill(NOWHERE);
        self.ways[..=page.len()].fill(UNREACHED);
        let recent = FIRST_RECENT.map(|offset| offset as u16);
        self.ways[0] = Way { cost: 0, recent, ..UNREACHED };
        let mut taken = 0;
        for at in 0..page.len() {
            if at >= taken {
                self.add_literal(at);
                if let ControlFlow::Break(end) = self.add_matches(page, at) {
                    taken = end;
                }
            }
            self.remember(page, at);
        }
    }

    /// Goes on from `at` by a literal.
    fn add_literal(&mut self, at: usize) {
        let way = self.ways[at];
        let literals = way.literals + 1;
        let cost = way.cost + BYTE + length_cost(literals as usize, LITERALS_FULL)
            - length_cost(way.literals as usize, LITERALS_FULL);
        if cost < self.ways[at + 1].cost {
            self.ways[at + 1] = Way { cost, literals, recent: way.recent, len: 0, offset: 0 };
        }
    }

    /// Goes on from `at` by the matches found; breaks with the end of one that is long enough.
    fn add_matches(&mut self, page: &[u8], at: usize) -> ControlFlow<usize> {
        let [last, last_but_one] = self.ways[at].recent;
        // The longest match so far whose offset costs at most no, one, and two bytes.
        let mut longest = [MATCH_MIN - 1; 3];
        for recent in [[last, last_but_one], [last_but_one, last]] {
            self.add_match(page, at, recent, 0, &mut longest)?;
        }
        let Some(hash) = hash_at(page, at) else { return ControlFlow::Continue(()) };
        let mut place = self.heads[hash];
        for _ in 0..PLACES {
            if place == NOWHERE {
                break;
            }
            let offset = at - usize::from(place);
            if offset >= OFFSET_MIN {
                let short = is_short(offset);
                let bytes = if short { 1 } else { 2 };
                self.add_match(page, at, [offset as u16, last], bytes, &mut longest)?;
            }
            place = self.earlier[usize::from(place)];
        }
        ControlFlow::Continue(())
    }

    /// Goes on from `at` by a match after which `recent` are the recent offsets, if it is longer
    /// than those which cost no more.
    #[inline(always)]
    fn add_match(
        &mut self,
        page: &[u8],
        at: usize,
        recent: [u16; 2],
        offset_bytes: usize,
        longest: &mut [usize; 3],
    ) -> ControlFlow<usize> {
        let offset = usize::from(recent[0]);
        let known = longest[offset_bytes];
        if offset > at || at + known >= page.len() || page[at + known] != page[at + known - offset]
        {
            return ControlFlow::Continue(());
        }
        let len = common(page, at - offset, at);
        if len <= known {
            return ControlFlow::Continue(());
        }
        for longest in &mut longest[offset_bytes..] {
            *longest = len.max(*longest);
        }
        let enough = len >= ENOUGH;
        let base = self.ways[at].cost + SEQUENCE + BYTE * (1 + offset_bytes as u32);
        for len in if enough { len..=len } else { known + 1..=len } {
            let cost = base + length_cost(len - MATCH_MIN, MATCH_FULL);
            let way = &mut self.ways[at + len];
            if cost < way.cost {
                *way = Way { cost, literals: 0, recent, len: len as u16, offset: recent[0] };
            }
        }
        if enough { ControlFlow::Break(at + len) } else { ControlFlow::Continue(()) }
    }

    /// Puts `at` in front of the places with the same hash.
    fn remember(&mut self, page: &[u8], at: usize) {
        if let Some(hash) = hash_at(page, at) {
            self.earlier[at] = self.heads[hash];
            self.heads[hash] = at as u16;
        }
    }

    pub(super) fn working_bytes(&self) -> usize {
        size_of_val(&*self.heads)
            + size_of_val(&*self.earlier)
            + size_of_val(&*self.ways)
            + self.ends.capacity() * size_of::<usize>()
    }
}

/// Returns the cost of the field for a length, if it needs one.
#[inline(always)]
fn length_cost(len: usize, full: usize) -> u32 {
    let bytes = if len < full {
        0
    } else if len < full + LENGTH_ESCAPE {
        1
    } else {
        3
    };
    bytes * BYTE
}

/// Returns the hash of three bytes, if there are as many.
#[inline(always)]
fn hash_at(page: &[u8], at: usize) -> Option<usize> {
    let &[a, b, c] = page[at..].first_chunk()?;
    let word = u32::from_le_bytes([a, b, c, 0]);
    Some(hash(word, HASH_BITS))
}
