//! Objects with an owner instead of a handle: found by where they are, so that nothing need say so
//! in between.
//!
//! A handle names a cell, which says where the object is and is its lock. An owner that has a word
//! and a lock for each of its objects anyway keeps the [`Address`] itself, and its lock is the
//! object's: that saves the cell, and with it the memory access between the owner and the object.
//! In front of the object lies its owner's key, by which a mover finds the owner.
//!
//! ```text
//!   owner:   insert -> address | lock, read, unlock | lock, take the address out, unlock, free
//!   mover:   key before the object -> try_hold -> copy -> publish
//! ```
//!
//! - O1: an owner *names* an address while its word says so and until, under its lock, it says
//!   something else. At most one owner names an address, and the key before the object is its.
//! - O2: bytes are written only by `insert`, which has the place for itself, and by a mover in the
//!   new place. They are read under the lock of the owner that names them, or by a thread with an
//!   address that no owner names: one that is not in its owner yet, or was taken out.
//! - O3: an object moves only while its owner is held, which named this very address when it was;
//!   the key is a hint, and whatever else lies there instead is no harm. So what no owner names
//!   stays where it is until it is freed.
//! - O4: a mover tries an owner's lock and does not wait for it, and waits for nothing while it
//!   holds owners, eight at most. So a thread with an owner's lock may wait for the pool's.
//! - O5: an address is freed once, when no owner names it. Its place is not reused before that,
//!   since the pool's lock is taken in between.

use std::fmt;

/// Keys of owners are smaller: half a word in front of each object has room for no more.
pub const KEYS_MAX: u64 = 1 << 31;

/// The address of an object that has an owner. Plain data: it is true only as O1 to O3 say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address(u64);

impl Address {
    /// Returns the address as a number less than 2^63.
    #[must_use]
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the address of which `bits` came from [`Address::to_bits`].
    #[must_use]
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        debug_assert!(bits < 1 << 63);
        Self(bits)
    }
}

/// The owners of a pool's objects, as a compaction sees them.
///
/// # Safety
/// From a [`try_hold`](Self::try_hold) that returned true to the [`publish`](Self::publish) of this
/// key no thread reads or frees the object, and none changes what the owner names. Everything done
/// under the owner's lock before the one happened before it, and everything done after the other
/// comes after it (Acquire and Release).
pub unsafe trait Owners: Sync + fmt::Debug {
    /// Locks the owner `key`, which there need not be, if it names `at` and is free; never waits.
    /// Returns whether it did. Is called under the pool's lock.
    fn try_hold(&self, key: u32, at: Address) -> bool;

    /// Has an owner that is held name `at` from now on, and unlocks it.
    fn publish(&self, key: u32, at: Address);
}

/// Owners of which none lets an object go.
#[derive(Debug)]
pub(crate) struct Nobody;

// SAFETY: it never returns true.
unsafe impl Owners for Nobody {
    fn try_hold(&self, _: u32, _: Address) -> bool {
        false
    }

    fn publish(&self, _: u32, _: Address) {}
}
