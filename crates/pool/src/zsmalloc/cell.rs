//! The handle cell: the word that says where an object is, so that objects can move under their
//! handles.
//!
//! ```text
//!   63     62   61..54   53 ......... 26   25 .. 14   13 .. 0
//!   | live | 0 | class | zspage          | object   | slack |
//! ```
//!
//! `class` is in the word so that a free can find its class without looking at the zspage; it
//! never changes while the object lives (the idea of the kernel's 2026 zs_free series). `slack`
//! is by how much the object is shorter than its class allows. A free cell has `live` clear and
//! the link of the free list in its low half.

use crate::slab::Record;

/// A field of a word: `bits` bits from `shift` up.
#[derive(Clone, Copy)]
struct Bits {
    shift: u32,
    bits: u32,
}

impl Bits {
    const fn above(self, bits: u32) -> Self {
        Self { shift: self.shift + self.bits, bits }
    }

    const fn mask(self) -> u64 {
        (1 << self.bits) - 1
    }

    #[inline]
    const fn get(self, word: u64) -> u64 {
        word >> self.shift & self.mask()
    }

    #[inline]
    fn pack(self, value: u64) -> u64 {
        debug_assert!(value <= self.mask());
        value << self.shift
    }
}

const SLACK: Bits = Bits { shift: 0, bits: 14 };
const OBJECT: Bits = SLACK.above(12);
const ZSPAGE: Bits = OBJECT.above(28);
const CLASS: Bits = ZSPAGE.above(8);
const LIVE: u64 = 1 << 63;

const _: () = assert!(CLASS.shift + CLASS.bits == 62);

/// Most zspages of a pool.
pub(crate) const ZSPAGES_MAX: usize = 1 << ZSPAGE.bits;

/// See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Cell(u64);

impl Cell {
    #[inline]
    pub(crate) fn new(class: usize, zspage: u32, object: u32, slack: usize) -> Self {
        Self(
            LIVE | CLASS.pack(class as u64)
                | ZSPAGE.pack(zspage.into())
                | OBJECT.pack(object.into())
                | SLACK.pack(slack as u64),
        )
    }

    #[inline]
    pub(crate) fn class(self) -> usize {
        CLASS.get(self.0) as usize
    }

    #[inline]
    pub(crate) fn zspage(self) -> u32 {
        ZSPAGE.get(self.0) as u32
    }

    #[inline]
    pub(crate) fn object(self) -> u32 {
        OBJECT.get(self.0) as u32
    }

    #[inline]
    pub(crate) fn slack(self) -> usize {
        SLACK.get(self.0) as usize
    }

    /// Returns the cell of the same object at another place of its class.
    pub(crate) fn moved_to(self, zspage: u32, object: u32) -> Self {
        Self::new(self.class(), zspage, object, self.slack())
    }
}

// SAFETY: an integer: any bytes are valid, no drop, alignment 8.
unsafe impl Record for Cell {
    fn next_free(&self) -> u32 {
        self.0 as u32
    }
    fn free(next: u32) -> Self {
        Self(next.into())
    }
    fn is_live(&self) -> bool {
        self.0 & LIVE != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_come_back(
            class in 0..256_usize,
            zspage in 0..1_u32 << 28,
            object in 0..4096_u32,
            slack in 0..1_usize << 14,
        ) {
            let cell = Cell::new(class, zspage, object, slack);
            prop_assert_eq!(
                (cell.class(), cell.zspage(), cell.object(), cell.slack()),
                (class, zspage, object, slack)
            );
            prop_assert!(cell.is_live());
            let moved = cell.moved_to(zspage ^ 1, object ^ 1);
            prop_assert_eq!((moved.class(), moved.slack()), (class, slack));
            prop_assert!(!Cell::free(zspage).is_live());
            prop_assert_eq!(Cell::free(zspage).next_free(), zspage);
        }
    }
}
