//! What the two that look at marks of pages tell each other (seen/A7), where accesses are seen.
//!
//! The hand of the clock looks at pages that it passes, and the sample of [`crate::seen`] from time
//! to time at some. Whoever sets a mark anew takes the other's evidence away, so it says what it
//! saw.

use crate::core::ranges::{PageNo, Pages};

/// Pages of a chunk, and those of a part of it, a word of bits.
pub(crate) const CHUNK: usize = 512;
pub(crate) const PART: usize = u32::BITS as usize;

/// The pages of a chunk, a bit for each.
pub(crate) type Bits = [u32; CHUNK / PART];

/// Returns the bits of pages of the same chunk.
pub(crate) fn bits_of(parts: impl IntoIterator<Item = Pages>) -> Bits {
    let mut bits = Bits::default();
    parts.into_iter().flatten().for_each(|page| set(&mut bits, page, true));
    bits
}

/// Returns whether the bit of a page is set.
pub(crate) fn has(bits: &Bits, page: PageNo) -> bool {
    bits[page % CHUNK / PART] >> (page % PART) & 1 == 1
}

fn set(bits: &mut Bits, page: PageNo, to: bool) {
    let (word, bit) = (&mut bits[page % CHUNK / PART], 1 << (page % PART));
    *word = if to { *word | bit } else { *word & !bit };
}

/// Pages that were accessed before their last mark, as far as the one that did not set it does not
/// know yet.
#[derive(Clone)]
pub(crate) struct Told {
    hand: Bits,
    sample: Bits,
}

impl Told {
    pub(crate) const NOTHING: Self = Self { hand: [0; CHUNK / PART], sample: [0; CHUNK / PART] };

    /// A page comes: it counts as accessed for the sample, and is new to the hand.
    pub(crate) fn came(&mut self, page: PageNo) {
        self.marked(page, true);
    }

    /// The hand marks a page, which was `accessed` since the last mark.
    pub(crate) fn marked(&mut self, page: PageNo, accessed: bool) {
        self.begins(page);
        if accessed {
            set(&mut self.sample, page, true);
        }
    }

    /// The hand is about to look at a page that it has just had marked.
    pub(crate) fn begins(&mut self, page: PageNo) {
        set(&mut self.hand, page, false);
    }

    /// The sample has marked a part of a chunk, of which these pages were accessed; returns those
    /// of which the hand has said so since the last time.
    pub(crate) fn sampled(&mut self, first: PageNo, accessed: u32) -> u32 {
        self.hand[first % CHUNK / PART] |= accessed;
        std::mem::take(&mut self.sample[first % CHUNK / PART])
    }

    /// Returns whether the sample found a page accessed.
    pub(crate) fn hand(&self, page: PageNo) -> bool {
        has(&self.hand, page)
    }
}
