//! Where objects are: places in segments, counted in granules, and what these are in bytes.
//!
//! ```text
//!   spot:  47 .............. 13   12 ............ 0
//!          | segment           | first granule   |
//!   address: the same, and below it the shard, in as many bits as the shards of the pool need:
//!            so the addresses of a pool that is not huge are small numbers
//! ```
//!
//! In front of each object is a header of four bytes: the index of its cell, or with the highest
//! bit set the key of its owner.
//!
//! A page has 512 granules whatever its size, so that the rest of the heap is the same for every
//! page size: with pages of 4 KiB, a granule has 8 bytes and a segment 64 KiB.

use crate::cell::{Bits, Spot};
use crate::owned::{Address, KEYS_MAX};
use crate::units::PageSize;

/// See [`crate::cell`].
pub(crate) type Cell = crate::cell::Cell<Place>;

/// Granules of a page.
pub(crate) const PAGE: u16 = 1 << 9;

/// Pages of a segment.
pub(crate) const SEGMENT_PAGES: u16 = 16;

/// Granules of a segment.
pub(crate) const SEGMENT: u16 = PAGE * SEGMENT_PAGES;

/// Bytes before an object's payload: its header.
pub(crate) const HEADER_BYTES: usize = size_of::<u32>();

/// Granules of the longest object: a page of payload, and its header.
pub(crate) const OBJECT_MAX: u16 = PAGE + 1;

/// The bit of a header that distinguishes an owner's key from a cell's index.
pub(crate) const OWNED: u32 = 1 << 31;

const _: () = assert!(KEYS_MAX == OWNED as u64);

/// Most shards of a pool that an address can tell apart.
pub(crate) const SHARDS_MAX: usize = 1 << SHARD_BITS;

const SHARD_BITS: u32 = 6;
const AT: Bits = Bits::lowest(SEGMENT.ilog2());
const IN_SEGMENT: Bits = AT.above(48 - AT.end());

/// The place of an object: its segment and its first granule there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) at: u16,
}

impl Place {
    /// Returns the address of the object at this place of a shard, in a pool whose shards take
    /// `shard_bits`.
    #[inline]
    pub(crate) fn address(self, shard: usize, shard_bits: u32) -> Address {
        Address::from_bits(self.pack() << shard_bits | shard as u64)
    }

    /// Returns the shard and the place there of an address, in the same pool.
    #[inline]
    pub(crate) fn of(address: Address, shard_bits: u32) -> (usize, Self) {
        let bits = address.to_bits();
        ((bits & ((1 << shard_bits) - 1)) as usize, Self::unpack(bits >> shard_bits))
    }
}

impl Spot for Place {
    #[inline]
    fn pack(self) -> u64 {
        IN_SEGMENT.pack(self.segment.into()) | AT.pack(self.at.into())
    }

    #[inline]
    fn unpack(word: u64) -> Self {
        Self { segment: IN_SEGMENT.get(word) as u32, at: AT.get(word) as u16 }
    }
}

/// The size of a granule in bytes, as a power of two; at least eight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    shift: u32,
}

impl Scale {
    /// Returns the scale of pools with pages of this size.
    pub(crate) fn new(page_size: PageSize) -> Self {
        Self { shift: page_size.bytes().ilog2() - PAGE.ilog2() }
    }

    /// Returns the granules of an object of `len` bytes, which is at most a page.
    #[inline]
    pub(crate) fn granules(self, len: usize) -> u16 {
        debug_assert!(len <= usize::from(PAGE) << self.shift);
        (len + HEADER_BYTES).div_ceil(1 << self.shift) as u16
    }

    /// Returns how many bytes of payload as many granules have room for.
    #[inline]
    pub(crate) fn room(self, granules: u16) -> usize {
        (usize::from(granules) << self.shift) - HEADER_BYTES
    }

    /// Returns the byte of the arena at which the object at `place` has its header.
    #[inline]
    pub(crate) fn header(self, place: Place) -> usize {
        (place.segment as usize * usize::from(SEGMENT) + usize::from(place.at)) << self.shift
    }

    /// Returns the byte of the arena at which the object at `place` has its payload.
    #[inline]
    pub(crate) fn payload(self, place: Place) -> usize {
        self.header(place) + HEADER_BYTES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_come_back(segment in any::<u32>(), at in 0..SEGMENT, above in any::<u16>()) {
            let place = Place { segment, at };
            prop_assert!(place.pack() < 1 << 48);
            prop_assert_eq!(Place::unpack(place.pack() | u64::from(above) << 48), place);
            let shard = usize::from(above) % SHARDS_MAX;
            let address = place.address(shard, SHARD_BITS);
            prop_assert_eq!(Place::of(address, SHARD_BITS), (shard, place));
            prop_assert!(address.to_bits() < 1 << 54);
        }
    }

    #[test]
    fn objects_of_every_length_fit_their_granules_and_no_fewer() {
        for page_size in [PageSize::KIB4, PageSize::KIB16, PageSize::KIB64] {
            let scale = Scale::new(page_size);
            let granule = 1 << scale.shift;
            for len in 1..=page_size.bytes() {
                let bytes = usize::from(scale.granules(len)) * granule;
                assert!((len + HEADER_BYTES..len + HEADER_BYTES + granule).contains(&bytes));
                assert_eq!(scale.room(scale.granules(len)) + HEADER_BYTES, bytes);
            }
            assert_eq!(scale.granules(page_size.bytes()), OBJECT_MAX);
            let place = Place { segment: 3, at: 5 };
            let pages = 3 * usize::from(SEGMENT_PAGES);
            assert_eq!(scale.header(place), pages * page_size.bytes() + 5 * granule);
        }
    }
}
