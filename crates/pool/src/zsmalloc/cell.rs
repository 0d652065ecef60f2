//! The handle cell: the word that says where an object is, so that objects can move under their
//! handles.
//!
//! ```text
//!   word:  63     62 .. 48   47 ... 40   39 .......... 12   11 ... 0
//!          | live | 0      | class     | zspage           | object |
//!   serial: that of the handle, so a stale handle is told without a look at the object
//!   slack:  by how many bytes the object is shorter than its class allows
//! ```
//!
//! `class` is in the word so that a free can find its class without looking at the zspage; it
//! never changes while the object lives (the idea of the kernel's 2026 zs_free series). A free
//! cell has `live` clear and the link of the free list in the word's low half.
//!
//! Cost: 16 bytes an object, where the kernel has 8. For these a free looks at the cell and the
//! zspage's record only, both in small and dense tables; it never waits for the object's memory.

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

const OBJECT: Bits = Bits { shift: 0, bits: 12 };
const ZSPAGE: Bits = OBJECT.above(28);
const CLASS: Bits = ZSPAGE.above(8);
const LIVE: u64 = 1 << 63;

const _: () = assert!(CLASS.shift + CLASS.bits <= 63);

/// Most zspages of a pool.
pub(crate) const ZSPAGES_MAX: usize = 1 << ZSPAGE.bits;

/// See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    word: u64,
    serial: u32,
    slack: u32,
}

impl Cell {
    #[inline]
    pub(crate) fn new(serial: u32, slack: usize, class: usize, zspage: u32, object: u32) -> Self {
        let place = ZSPAGE.pack(zspage.into()) | OBJECT.pack(object.into());
        Self { word: LIVE | CLASS.pack(class as u64) | place, serial, slack: slack as u32 }
    }

    #[inline]
    pub(crate) fn class(&self) -> usize {
        CLASS.get(self.word) as usize
    }

    #[inline]
    pub(crate) fn zspage(&self) -> u32 {
        ZSPAGE.get(self.word) as u32
    }

    #[inline]
    pub(crate) fn object(&self) -> u32 {
        OBJECT.get(self.word) as u32
    }

    #[inline]
    pub(crate) fn serial(&self) -> u32 {
        self.serial
    }

    #[inline]
    pub(crate) fn slack(&self) -> usize {
        self.slack as usize
    }

    /// Returns the cell of the same object at another place of its class.
    pub(crate) fn moved_to(&self, zspage: u32, object: u32) -> Self {
        Self::new(self.serial, self.slack(), self.class(), zspage, object)
    }
}

// SAFETY: integers: any bytes are valid, no drop, alignment 8.
unsafe impl Record for Cell {
    fn next_free(&self) -> u32 {
        self.word as u32
    }
    fn free(next: u32) -> Self {
        Self { word: next.into(), serial: 0, slack: 0 }
    }
    #[inline]
    fn is_live(&self) -> bool {
        self.word & LIVE != 0
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
            slack in 0..1_usize << 16,
            serial in any::<u32>(),
        ) {
            let cell = Cell::new(serial, slack, class, zspage, object);
            prop_assert_eq!(
                (cell.class(), cell.zspage(), cell.object(), cell.slack(), cell.serial()),
                (class, zspage, object, slack, serial)
            );
            prop_assert!(cell.is_live());
            let moved = cell.moved_to(zspage ^ 1, object ^ 1);
            prop_assert_eq!((moved.class(), moved.slack()), (class, slack));
            prop_assert_eq!((moved.zspage(), moved.object()), (zspage ^ 1, object ^ 1));
            prop_assert!(!Cell::free(zspage).is_live());
            prop_assert_eq!(Cell::free(zspage).next_free(), zspage);
        }
    }
}
