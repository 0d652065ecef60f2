//! For models: slots and group words that loom watches.

use zfold_pool::source::SourceError;

use super::slot::{GROUP_SLOTS, Slot};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct Memory {
    slots: Vec<Slot>,
    groups: Vec<AtomicU32>,
}

impl Memory {
    pub(super) fn new(slots: u64) -> Result<Self, SourceError> {
        let slot = |_| Slot { value: AtomicU64::new(0), state: AtomicU64::new(0) };
        let groups = (0..=slots / GROUP_SLOTS).map(|_| AtomicU32::new(0)).collect();
        Ok(Self { slots: (0..slots).map(slot).collect(), groups })
    }

    pub(super) fn slot(&self, index: u64) -> &Slot {
        &self.slots[index as usize]
    }

    pub(super) fn group(&self, group: u64) -> &AtomicU32 {
        &self.groups[group as usize]
    }

    /// As the system does it: the whole page becomes zeros, in no particular order; Release, as
    /// I4 of the source says.
    pub(super) unsafe fn release(&self, group: u64) {
        self.clear(group, Ordering::Release);
    }

    pub(super) fn clear(&self, group: u64, order: Ordering) {
        let first = (group * GROUP_SLOTS) as usize;
        for slot in &self.slots[first..first + GROUP_SLOTS as usize] {
            slot.value.store(0, Ordering::Relaxed);
            slot.state.store(0, order);
        }
    }
}
