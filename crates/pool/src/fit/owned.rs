//! Objects of a shard that have an owner instead of a cell: owned/O1 to O5.
//!
//! Such an object is a place and a header with its owner's key. The place is taken and given back
//! as any other, under the lock; the owners decide which thread may touch the bytes.

use super::place::{OWNED, Place, Scale};
use super::shard::{Shard, State, Take};
use crate::owned::Address;
use crate::pool::{AllocError, HandleError};

/// An object that will have an owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenOwned {
    place: Place,
}

impl Take for TakenOwned {
    #[inline]
    fn take(
        state: &mut State,
        scale: Scale,
        len: usize,
        grow: impl FnOnce() -> bool,
    ) -> Result<Option<Self>, AllocError> {
        let place = state.take_place(scale, len, grow)?;
        state.owned += u64::from(place.is_some());
        Ok(place.map(|place| Self { place }))
    }
}

impl Shard {
    /// Writes the payload of an object taken for the owner `key`, which has as many bytes; returns
    /// where it is.
    #[inline]
    pub(super) fn fill_owned(&self, taken: TakenOwned, key: u32, bytes: &[u8]) -> Address {
        let TakenOwned { place } = taken;
        self.frames.store_u32(self.scale.header(place), OWNED | key);
        // SAFETY: the place has room for that many bytes, and no other thread knows it: its owner
        // does not name it yet (owned/O2).
        unsafe { self.copy_in(place, bytes) };
        self.address(place)
    }

    /// Returns the address of the owned object at a place.
    #[inline]
    pub(super) fn address(&self, place: Place) -> Address {
        place.address(self.number, self.shard_bits)
    }

    /// Returns the bytes of an owned object, if `key` is before them.
    ///
    /// # Safety
    /// As [`Fit::read_owned`](crate::Fit::read_owned).
    #[inline]
    pub(super) unsafe fn read_owned(
        &self,
        key: u32,
        place: Place,
        len: usize,
    ) -> Result<&[u8], HandleError> {
        if self.frames.load_u32(self.scale.header(place)) != OWNED | key {
            return Err(HandleError::Stale);
        }
        let bytes = self.payload(place, len);
        // SAFETY: the bytes are those of a live object, initialised, and by the caller's promise no
        // thread writes or moves them (owned/O2, O3). The arena lives as long as `self`.
        Ok(unsafe { bytes.as_ref() })
    }

    /// Frees an owned object, which no owner names any longer (owned/O5).
    #[inline]
    pub(super) fn free_owned(&self, place: Place, len: usize) -> Result<(), HandleError> {
        let mut state = self.lock()?;
        state.give_place(len, place);
        state.owned -= 1;
        self.unlock_soon(state);
        self.release_due();
        Ok(())
    }

    /// See [`Fit::is_owned_at`](crate::Fit::is_owned_at).
    pub(super) fn is_owned_at(&self, key: u32, place: Place, len: usize) -> bool {
        let Ok(state) = self.lock() else { return false };
        let granules = state.heap.granules_at(place);
        granules.is_some_and(|granules| granules >= self.scale.granules(len))
            && self.frames.load_u32(self.scale.header(place)) == OWNED | key
    }
}
