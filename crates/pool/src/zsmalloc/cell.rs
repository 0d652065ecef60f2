//! The contents of zsmalloc's cells: class, zspage and object.
//!
//! ```text
//!   spot:  47 ... 40   39 .......... 12   11 ... 0
//!          | class     | zspage           | object |
//! ```
//!
//! `class` never changes while the object lives, so a free finds its class in the word, without a
//! lock (the idea of the kernel's zs_free series of 2026).

use crate::cell::{Bits, Spot};

/// See [`crate::cell`].
pub(crate) type Cell = crate::cell::Cell<Place>;

const ZSPAGE_BITS: u32 = 28;

const OBJECT: Bits = Bits::lowest(12);
const ZSPAGE: Bits = OBJECT.above(ZSPAGE_BITS);
const CLASS: Bits = ZSPAGE.above(8);

const _: () = assert!(CLASS.end() == 48);

/// Most zspages of a pool.
pub(crate) const ZSPAGES_MAX: usize = 1 << ZSPAGE_BITS;

/// Where an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) class: usize,
    pub(crate) zspage: u32,
    pub(crate) object: u32,
}

impl Spot for Place {
    #[inline]
    fn pack(self) -> u64 {
        CLASS.pack(self.class as u64)
            | ZSPAGE.pack(self.zspage.into())
            | OBJECT.pack(self.object.into())
    }

    #[inline]
    fn unpack(word: u64) -> Self {
        Self {
            class: CLASS.get(word) as usize,
            zspage: ZSPAGE.get(word) as u32,
            object: OBJECT.get(word) as u32,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_come_back(
            class in 0..256_usize,
            zspage in 0..1_u32 << ZSPAGE_BITS,
            object in 0..4096_u32,
            above in 0..1_u64 << 16,
        ) {
            let place = Place { class, zspage, object };
            prop_assert_eq!(Place::unpack(place.pack() | above << CLASS.end()), place);
        }
    }
}
