//! The quick encoder: at each position it looks at the two offsets used last and at one earlier
//! place with the same four bytes, and takes the first match it finds.
//!
//! - Q1: every position looked at, but in `common`, has at least `TAIL` bytes of the page from it
//!   on, and at least the larger one of the recent offsets before it.

use super::format::{OFFSET_MIN, is_short};
use super::raw::load;
use super::streams::Streams;

/// Matches begin at least this many bytes before the end of a page.
const TAIL: usize = 16;
/// Bits of a hash of four bytes.
const HASH_BITS: u32 = 12;
/// After this many positions without a match (as a power of two), steps become longer by one.
const PATIENCE: u32 = 5;
/// The shortest match for which a general offset is written.
const GENERAL_MIN: usize = 5;

/// The table of the quick encoder.
pub(super) struct Quick {
    /// By hash of four bytes, where they were seen last: `base` more than the position. What is
    /// below `base` is of an earlier page and as good as 0.
    table: Box<[u16; 1 << HASH_BITS]>,
    base: usize,
    /// The `base` of the next page.
    next_base: usize,
}

impl Quick {
    pub(super) fn new() -> Self {
        Self { table: Box::new([0; 1 << HASH_BITS]), base: 0, next_base: 0 }
    }

    /// Puts the sequences of `page`, which is at most 64 KiB long, into `streams`.
    pub(super) fn encode(&mut self, page: &[u8], streams: &mut Streams) {
        streams.begin(page.len());
        if self.next_base + page.len() > 1 << 16 {
            self.table.fill(0);
            self.next_base = 0;
        }
        self.base = self.next_base;
        self.next_base += page.len();
        let covered = self.matches(page, streams);
        if covered < page.len() {
            streams.last(page, covered..page.len());
        }
    }

    /// Adds all sequences with a match and returns where the last one ends.
    fn matches(&mut self, page: &[u8], streams: &mut Streams) -> usize {
        let mut anchor = 0;
        let Some(limit) = page.len().checked_sub(TAIL) else { return anchor };
        // SAFETY: Q1: four bytes are there.
        let word = |at: usize| u32::from_le_bytes(unsafe { load(page, at) });
        let base = self.base;
        let mut at = OFFSET_MIN;
        let mut step = 1 << PATIENCE;
        while at < limit {
            let here = word(at);
            let entry = &mut self.table[hash(here, HASH_BITS)];
            let seen = usize::from(*entry).saturating_sub(base).min(at - OFFSET_MIN);
            *entry = (base + at) as u16;

            let [last, last_but_one] = streams.recent;
            let places = [at - last, at - last_but_one, seen];
            let differs = places.map(|place| word(place) ^ here);
            if (differs[0] != 0) & (differs[1] != 0) & (differs[2] != 0) {
                at += step >> PATIENCE;
                step += 1;
                continue;
            }
            step = 1 << PATIENCE;
            let (mut offset, mut len) = (0, 0);
            if differs[0] == 0 {
                (offset, len) = (last, 4 + common(page, at + 4 - last, at + 4));
            } else if differs[1] == 0 {
                (offset, len) = (last_but_one, 4 + common(page, at + 4 - last_but_one, at + 4));
            }
            let distance = at - seen;
            if differs[2] == 0 && distance != offset {
                let longer = 4 + common(page, seen + 4, at + 4);
                let short = is_short(distance);
                let (cost, least) = if short { (1, 4) } else { (2, GENERAL_MIN) };
                if longer > len + cost && (len > 0 || longer >= least) {
                    (offset, len) = (distance, longer);
                }
            }
            if len == 0 {
                at += 1;
                continue;
            }
            let before = common_before(page, anchor, at, offset);
            let end = at + len;
            streams.sequence(page, anchor..at - before, offset, len + before);
            let near = (end - 2).min(limit);
            self.table[hash(word(near), HASH_BITS)] = (base + near) as u16;
            (at, anchor) = (end, end);
        }
        anchor
    }

    pub(super) fn working_bytes(&self) -> usize {
        size_of_val(&*self.table)
    }
}

/// Returns `bits` bits that depend on all of `word` (multiplicative hashing, Knuth).
#[inline(always)]
pub(super) fn hash(word: u32, bits: u32) -> usize {
    (word.wrapping_mul(0x9e37_79b1) >> (32 - bits)) as usize
}

/// Returns how many bytes are the same from `earlier` and from `later` on.
#[inline(always)]
pub(super) fn common(page: &[u8], earlier: usize, later: usize) -> usize {
    debug_assert!(earlier <= later && later <= page.len());
    let mut len = 0;
    while later + len + 8 <= page.len() {
        // SAFETY: `earlier` is not behind `later`, and from there on eight bytes are checked.
        let a = u64::from_le_bytes(unsafe { load(page, earlier + len) });
        // SAFETY: eight bytes are checked.
        let b = u64::from_le_bytes(unsafe { load(page, later + len) });
        if a != b {
            return len + ((a ^ b).trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    let rest = page[earlier + len..].iter().zip(&page[later + len..]);
    len + rest.take_while(|(a, b)| a == b).count()
}

/// Returns how many bytes before `at`, from `anchor` on, are the same `offset` bytes earlier.
#[inline(always)]
fn common_before(page: &[u8], anchor: usize, at: usize, offset: usize) -> usize {
    let mut from = at;
    while from > anchor.max(offset) && page[from - 1] == page[from - 1 - offset] {
        from -= 1;
    }
    at - from
}
