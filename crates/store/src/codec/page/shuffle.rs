//! The orders in which the bytes of a page may lie before they are compressed.
//!
//! In a table of numbers or pointers, bytes of the same significance resemble each other more than
//! their neighbours. A shuffled page has the first bytes of all its words first, then the second
//! ones, and so on.

/// The order of a page's bytes; its number stands in the header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Order {
    /// As they are.
    Plain = 0,
    /// First bytes of all words of four bytes, second bytes, ...
    Words4 = 1,
    /// The same with words of eight bytes.
    Words8 = 2,
}

impl Order {
    pub(super) fn from_bits(bits: u32) -> Option<Self> {
        [Self::Plain, Self::Words4, Self::Words8].get(bits as usize).copied()
    }

    /// Returns whether a page of `len` bytes can lie in this order.
    pub(super) fn suits(self, len: usize) -> bool {
        self == Self::Plain || len.is_multiple_of(64 * LANES)
    }

    /// Puts the bytes of `page` into `shuffled` in this order.
    pub(super) fn shuffle(self, page: &[u8], shuffled: &mut [u8]) {
        match self {
            Self::Plain => shuffled.copy_from_slice(page),
            Self::Words4 => shuffle::<4>(page, shuffled),
            Self::Words8 => shuffle::<8>(page, shuffled),
        }
    }

    /// Undoes [`shuffle`](Self::shuffle), byte by byte.
    pub(super) fn unshuffle_plainly(self, shuffled: &[u8], page: &mut [u8]) {
        let word = match self {
            Self::Plain => 1,
            Self::Words4 => 4,
            Self::Words8 => 8,
        };
        let words = page.len() / word;
        for (at, byte) in page.iter_mut().enumerate() {
            *byte = shuffled[at % word * words + at / word];
        }
    }

    /// Undoes [`shuffle`](Self::shuffle).
    pub(super) fn unshuffle(self, shuffled: &[u8], page: &mut [u8]) {
        match self {
            Self::Plain => page.copy_from_slice(shuffled),
            Self::Words4 => unshuffle4(shuffled, page),
            Self::Words8 => unshuffle8(shuffled, page),
        }
    }
}

fn shuffle<const WORD: usize>(page: &[u8], shuffled: &mut [u8]) {
    let words = page.as_chunks::<WORD>().0;
    for (byte, plane) in shuffled.chunks_exact_mut(words.len()).enumerate() {
        for (to, word) in plane.iter_mut().zip(words) {
            *to = word[byte];
        }
    }
}

/// Squares of bytes that are transposed at once, which is up to the compiler's vectors.
const LANES: usize = 4;

/// The same row of `LANES` squares.
type Row = [u64; LANES];

/// Returns the next eight bytes of `LANES` squares, which lie one behind the other.
#[inline(always)]
fn row(plane: &[u8; 8 * LANES]) -> Row {
    let words = plane.as_chunks().0;
    std::array::from_fn(|lane| u64::from_le_bytes(words[lane]))
}

/// Swaps the bits of `low` above `shift` with those of `high` below it, in each group of
/// `2 * shift` bits.
#[inline(always)]
fn swap(low: &mut Row, high: &mut Row, shift: u32, mask: u64) {
    for (low, high) in low.iter_mut().zip(high) {
        let different = (*low >> shift ^ *high) & mask;
        *high ^= different;
        *low ^= different << shift;
    }
}

const HALVES: u64 = 0x0000_0000_ffff_ffff;
const QUARTERS: u64 = 0x0000_ffff_0000_ffff;
const BYTES: u64 = 0x00ff_00ff_00ff_00ff;

/// Swaps parts of the rows that lie `distance` apart.
#[inline(always)]
fn swap_rows<const N: usize>(rows: &mut [Row; N], distance: usize, shift: u32, mask: u64) {
    for pair in rows.chunks_exact_mut(2 * distance) {
        let (low, high) = pair.split_at_mut(distance);
        for (low, high) in low.iter_mut().zip(high) {
            swap(low, high, shift, mask);
        }
    }
}

/// Transposes squares of eight bytes by eight.
fn unshuffle8(shuffled: &[u8], page: &mut [u8]) {
    let plane = page.len() / 8;
    for (at, words) in page.as_chunks_mut::<{ 64 * LANES }>().0.iter_mut().enumerate() {
        let mut rows: [Row; 8] = std::array::from_fn(|byte| {
            row(shuffled[byte * plane + at * 8 * LANES..].first_chunk().expect("a whole row"))
        });
        swap_rows(&mut rows, 4, 32, HALVES);
        swap_rows(&mut rows, 2, 16, QUARTERS);
        swap_rows(&mut rows, 1, 8, BYTES);
        for (at, word) in words.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = rows[at % 8][at / 8].to_le_bytes();
        }
    }
}

/// Transposes squares of four bytes by four, two in each word.
fn unshuffle4(shuffled: &[u8], page: &mut [u8]) {
    let plane = page.len() / 4;
    for (at, words) in page.as_chunks_mut::<{ 32 * LANES }>().0.iter_mut().enumerate() {
        let mut rows: [Row; 4] = std::array::from_fn(|byte| {
            row(shuffled[byte * plane + at * 8 * LANES..].first_chunk().expect("a whole row"))
        });
        swap_rows(&mut rows, 2, 16, QUARTERS);
        swap_rows(&mut rows, 1, 8, BYTES);
        for (at, word) in words.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let half = rows[at % 4][at / 8] >> (32 * (at / 4 % 2));
            *word = (half as u32).to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_undone() {
        for len in [256, 4096, 16384, 65536] {
            let page: Vec<u8> = (0..len).map(|at| (at * at / 7 + at / 256) as u8).collect();
            for order in [Order::Plain, Order::Words4, Order::Words8] {
                assert!(order.suits(len));
                let (mut shuffled, mut back, mut plainly) =
                    (vec![0; len], vec![0; len], vec![0; len]);
                order.shuffle(&page, &mut shuffled);
                order.unshuffle(&shuffled, &mut back);
                order.unshuffle_plainly(&shuffled, &mut plainly);
                assert!(back == page && plainly == page, "{order:?} of {len} bytes");
                assert_eq!(shuffled == page, order == Order::Plain);
            }
        }
    }

    #[test]
    fn bytes_of_the_same_significance_come_together() {
        let page: Vec<u8> = (0..=255).collect();
        let mut shuffled = vec![0; 256];
        Order::Words8.shuffle(&page, &mut shuffled);
        assert_eq!(shuffled[..3], [0, 8, 16]);
        assert_eq!(shuffled[32..35], [1, 9, 17]);
        Order::Words4.shuffle(&page, &mut shuffled);
        assert_eq!(shuffled[..3], [0, 4, 8]);
        assert_eq!(shuffled[64..67], [1, 5, 9]);
    }

    #[test]
    fn page_of_uneven_length_is_left_as_it_is() {
        for len in [1, 255, 4095, 4097, 4160] {
            assert!(Order::Plain.suits(len) && !Order::Words4.suits(len));
        }
    }
}
