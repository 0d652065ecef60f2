//! Where slots and group words lie: address space reserved from the system.

use std::ptr::NonNull;
use std::sync::Arc;

use zfold_pool::source::{PageSource, Reservation, SourceError, SystemPages};

use super::slot::{GROUP_BYTES, GROUP_SLOTS, Slot};
use crate::sync::atomic::AtomicU32;

#[derive(Debug)]
pub(super) struct Memory {
    slots: u64,
    range: Arc<dyn Reservation>,
    groups: Arc<dyn Reservation>,
}

impl Memory {
    pub(super) fn new(slots: u64) -> Result<Self, SourceError> {
        let groups = slots / GROUP_SLOTS + 1;
        Ok(Self {
            slots,
            range: reserve(slots.max(1), size_of::<Slot>())?,
            groups: reserve(groups, size_of::<AtomicU32>())?,
        })
    }

    #[inline]
    pub(super) fn slot(&self, index: u64) -> &Slot {
        assert!(index < self.slots);
        let slots: NonNull<Slot> = self.range.base().cast();
        // SAFETY: index < slots, and the range was made to hold that many.
        let slot = unsafe { slots.add(index as usize) };
        // SAFETY: committed when the table was made, aligned (the base is page aligned),
        // only ever accessed as atomics, zero-initialised which is a valid slot (T2); it
        // lives as long as `self`.
        unsafe { slot.as_ref() }
    }

    #[inline]
    pub(super) fn group(&self, group: u64) -> &AtomicU32 {
        assert!(group <= self.slots / GROUP_SLOTS);
        let groups: NonNull<AtomicU32> = self.groups.base().cast();
        // SAFETY: one word was reserved for each of slots / GROUP_SLOTS + 1 groups.
        let word = unsafe { groups.add(group as usize) };
        // SAFETY: as in `slot`.
        unsafe { word.as_ref() }
    }

    /// Gives the page of a group back; its slots read as zeros afterwards.
    ///
    /// # Safety
    /// The slots' contents are given up, and other threads reach them only through atomics
    /// that cope with the old value and with zero.
    pub(super) unsafe fn release(&self, group: u64) {
        // SAFETY: committed when the table was made, page aligned; the rest is the caller's.
        unsafe { self.range.release(group as usize * GROUP_BYTES, GROUP_BYTES) };
    }
}

fn reserve(count: u64, size: usize) -> Result<Arc<dyn Reservation>, SourceError> {
    let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
    let bytes = bytes.and_then(|bytes| bytes.checked_next_multiple_of(64 << 10));
    let bytes = bytes.ok_or(SourceError::AddressSpace { bytes: usize::MAX })?;
    let range = SystemPages.reserve(bytes)?;
    range.commit(0, bytes)?;
    Ok(range)
}
