//! Which keys of the store belong to which image.

use std::ops::Range;

/// Keys of the store: 16 TiB of memory files. They cost only address space.
pub const KEYS: u64 = 1 << 32;

/// Pages whose bits of a working set fit into one page.
pub(crate) const BITS: u64 = 8 * 4096;

/// Images begin at multiples of it, because the slots of a store come and go in groups of this
/// many: so the groups that one image frees hold nothing of another.
const ALIGN: u64 = 256;

/// Returns how many keys an image of `pages` pages, and `more` behind them, has.
pub(crate) fn keys_of(pages: u64, more: u64) -> u64 {
    (pages + pages.div_ceil(BITS) + more).next_multiple_of(ALIGN)
}

/// Returns the first range of `len` keys that overlaps none of `taken`, which are sorted.
pub(crate) fn free(taken: impl Iterator<Item = Range<u64>>, len: u64) -> Option<u64> {
    let mut first = 0;
    for range in taken {
        if range.start.saturating_sub(first) >= len {
            return Some(first);
        }
        first = first.max(range.end);
    }
    (KEYS.checked_sub(first)? >= len).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_gap_that_fits_is_used() {
        let taken = [0..256, 512..768, 1024..2048];
        let free = |len| free(taken.iter().cloned(), len);
        assert_eq!((free(256), free(512)), (Some(256), Some(2048)));
        assert_eq!(free(KEYS - 2048), Some(2048));
        assert_eq!(free(KEYS - 2047), None);
        assert_eq!(super::free(std::iter::once(0..KEYS), 1), None);
        assert_eq!(super::free(std::iter::empty(), 1), Some(0));
    }

    #[test]
    fn an_image_has_keys_for_its_pages_and_a_bit_for_each() {
        assert_eq!(keys_of(1, 0), 256);
        assert_eq!(keys_of(65_536, 0), 65_536 + 256);
        assert_eq!(keys_of(256 - 1, 0), 256);
        assert_eq!((keys_of(256 - 2, 1), keys_of(256 - 1, 1)), (256, 512));
        assert_eq!(keys_of(256, 0), 512);
    }
}
