//! Handles: what a pool issues for an object, and how wrong ones are recognised.
//!
//! ```text
//!   63        62 ............ 32 31 .............. 0
//!   | 0 | serial (1 .. 2^31 - 1) | index            |
//! ```
//!
//! `index` says where the pool looks; `serial` is drawn for every object and stored with it, so a
//! handle whose object is gone, or which another pool issued, does not match the stored one. Serial
//! 0 is no object's: places without an object have it, or none at all.
//!
//! A handle is a number and carries no right. One that equals that of a live object *is* that
//! object's, wherever it came from: the call does to the object what it would do for its owner.
//! Every other one is stale. So a wrong handle reads or frees at most an object that another owner
//! still wants; memory stays safe, each page is freed once, and the counters are right. By chance
//! that is rare: serials of one pool repeat after 2^31 allocations, so a stale handle passes for a
//! live one only if its index was reused exactly then; a handle of another pool passes with a
//! probability of 2^-31.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, Ordering};

const SERIAL_BITS: u32 = 31;
const SERIAL_MASK: u32 = (1 << SERIAL_BITS) - 1;
const INDEX_BITS: u32 = 32;

/// Names an object of a pool. Plain data: copying it copies no object, dropping it frees none.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Handle(NonZeroU64);

impl Handle {
    /// Packs a handle; `serial` comes from [`Serials`].
    #[inline]
    pub(crate) fn new(index: u32, serial: u32) -> Self {
        debug_assert!(serial != 0 && serial <= SERIAL_MASK);
        let bits = u64::from(serial) << INDEX_BITS | u64::from(index);
        Self(NonZeroU64::new(bits).expect("serials are not zero"))
    }

    #[inline]
    pub(crate) fn index(self) -> u32 {
        self.0.get() as u32
    }

    #[inline]
    pub(crate) fn serial(self) -> u32 {
        (self.0.get() >> INDEX_BITS) as u32
    }

    /// Returns whether this names the object that has `serial`, which is 0 where there is none.
    #[inline]
    pub(crate) fn is_of(self, serial: u32) -> bool {
        serial != 0 && self.serial() == serial
    }

    /// Returns the handle with the same serial and another index; `None` if that is no handle.
    #[inline]
    pub(crate) fn with_index(self, index: u32) -> Option<Self> {
        let serial = self.0.get() >> INDEX_BITS << INDEX_BITS;
        NonZeroU64::new(serial | u64::from(index)).map(Self)
    }

    /// Returns the handle as a number that is not zero and less than 2^63, for tables that pack
    /// it.
    #[must_use]
    #[inline]
    pub fn to_bits(self) -> NonZeroU64 {
        self.0
    }

    /// Returns the handle of which `bits` came from [`Handle::to_bits`]. Any other number is a
    /// handle that every pool refuses as stale, unless it is by chance the number of one of its
    /// live objects: then it names that object, as any copy of that object's handle does. Neither
    /// harms the pool or its other objects.
    #[must_use]
    #[inline]
    pub fn from_bits(bits: NonZeroU64) -> Self {
        Self(bits)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({}#{})", self.index(), self.serial())
    }
}

/// How the index of a handle names one of a pool's parts and an index there.
///
/// ```text
///   index:   | index in the part | part |
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    part_bits: u32,
}

impl Split {
    /// Returns how `parts` parts, at least one, are distinguished.
    pub(crate) const fn among(parts: usize) -> Self {
        Self { part_bits: parts.next_power_of_two().trailing_zeros() }
    }

    /// Returns how many indices each part may use.
    pub(crate) const fn indices(self) -> usize {
        1 << (INDEX_BITS - self.part_bits)
    }

    /// Returns the pool's handle for that of a part.
    #[inline]
    pub(crate) fn outer(self, part: usize, handle: Handle) -> Handle {
        let index = handle.index() << self.part_bits;
        debug_assert_eq!(index >> self.part_bits, handle.index(), "the index leaves room");
        handle.with_index(index | part as u32).expect("a serial is not zero")
    }

    /// Returns the part that a handle names, if it exists, and its handle there; `None` if that is
    /// no handle.
    #[inline]
    pub(crate) fn inner(self, handle: Handle) -> Option<(usize, Handle)> {
        let index = handle.index();
        let part = index & ((1 << self.part_bits) - 1);
        Some((part as usize, handle.with_index(index >> self.part_bits)?))
    }
}

/// Draws the serial numbers of one pool: a full-period congruential sequence, of which start and
/// step differ from pool to pool.
#[derive(Debug)]
pub(crate) struct Serials {
    next: u32,
    step: u32,
}

impl Serials {
    pub(crate) fn new() -> Self {
        static POOLS: AtomicU32 = AtomicU32::new(1);
        // Relaxed: only distinctness matters.
        let pool = POOLS.fetch_add(1, Ordering::Relaxed);
        let mixed = pool.wrapping_mul(0x9E37_79B9);
        // Odd step and a multiplier of 4k + 1: full period modulo any power of two (Hull and
        // Dobell).
        Self { next: mixed.rotate_left(16) & SERIAL_MASK, step: mixed | 1 }
    }

    #[inline]
    pub(crate) fn draw(&mut self) -> u32 {
        loop {
            self.next = self.next.wrapping_mul(0x0019_660D).wrapping_add(self.step) & SERIAL_MASK;
            if self.next != 0 {
                return self.next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn handle_packs_and_unpacks() {
        for (index, serial) in [(0, 1), (u32::MAX, SERIAL_MASK), (77, 12345)] {
            let handle = Handle::new(index, serial);
            assert_eq!((handle.index(), handle.serial()), (index, serial));
            assert_eq!(Handle::from_bits(handle.to_bits()), handle);
            assert!(handle.to_bits().get() < 1 << 63);
            assert_eq!(handle.with_index(5), Some(Handle::new(5, serial)));
            assert!(handle.is_of(serial) && !handle.is_of(serial ^ 2) && !handle.is_of(0));
        }
        let made_up = Handle::from_bits(1.try_into().expect("not zero"));
        assert_eq!(made_up.with_index(0), None);
        assert!(!made_up.is_of(0), "serial 0 is no object's");
    }

    #[test]
    fn a_split_index_names_the_part_and_the_index_there() {
        for parts in [1, 2, 3, 64, 256] {
            let split = Split::among(parts);
            for (part, index) in [(0, 0), (parts - 1, split.indices() - 1), (parts / 2, 77)] {
                let handle = Handle::new(index as u32, 5);
                let outer = split.outer(part, handle);
                assert_eq!(split.inner(outer), Some((part, handle)), "{parts} parts");
            }
        }
        let made_up = Handle::from_bits(1.try_into().expect("not zero"));
        assert_eq!(Split::among(2).inner(made_up), None);
    }

    #[test]
    fn serials_of_one_pool_do_not_repeat_soon_and_pools_differ() {
        let (mut a, mut b) = (Serials::new(), Serials::new());
        let first: Vec<_> = (0..100_000).map(|_| a.draw()).collect();
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), first.len());
        assert!(!first.contains(&0));
        let equal = first.iter().filter(|&&serial| serial == b.draw()).count();
        assert!(equal < 5, "{equal} of 100,000 serials agree at the same position");
    }
}
