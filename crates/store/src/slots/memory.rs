//! Where slots and group words lie: address space reserved from the system.
//!
//! - M1: a [`Place`] is that of a slot of the memory it is given to, which made it.

use std::ptr::NonNull;
use std::sync::Arc;

use zfold_pool::source::{Reservation, SourceError};

use super::form::{Form, GROUP_BYTES, Place};
use crate::reserve::reserve;
use crate::sync::atomic::{AtomicU32, AtomicU64};

#[derive(Debug)]
pub(super) struct Memory {
    form: Form,
    slots: u64,
    range: Arc<dyn Reservation>,
    /// The values beside the groups of narrow slots.
    beside: Option<Arc<dyn Reservation>>,
    groups: Arc<dyn Reservation>,
}

impl Memory {
    pub(super) fn new(slots: u64, form: Form) -> Result<Self, SourceError> {
        let groups = slots / form.group_slots() + 1;
        let narrow = form == Form::Narrow;
        Ok(Self {
            form,
            slots,
            range: reserve(groups, GROUP_BYTES)?,
            beside: narrow.then(|| reserve(groups, GROUP_BYTES)).transpose()?,
            groups: reserve(groups, size_of::<AtomicU32>())?,
        })
    }

    #[inline]
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Returns where a slot is (M1).
    #[inline]
    pub(super) fn place(&self, index: u64) -> Place {
        assert!(index < self.slots);
        self.form.place(index)
    }

    #[inline]
    pub(super) fn word(&self, place: Place) -> &AtomicU64 {
        let bytes = if self.form == Form::Wide { 16 } else { 8 };
        // SAFETY: the words of a group's slots are at its beginning, with the values in between if
        // there are any: 256 times 16 bytes, or 341 times 8.
        unsafe { self.at(&self.range, place, 0, bytes) }
    }

    /// Returns where the value of a slot lies, if its word does not contain it.
    #[inline]
    pub(super) fn value(&self, place: Place) -> &AtomicU64 {
        match &self.beside {
            // SAFETY: after the word of a wide slot: 256 times 16 bytes.
            None => unsafe { self.at(&self.range, place, 8, 16) },
            // SAFETY: 341 times 8 bytes.
            Some(beside) => unsafe { self.at(beside, place, 0, 8) },
        }
    }

    /// Returns where the stamp of a narrow slot lies.
    #[inline]
    pub(super) fn stamp(&self, place: Place) -> &AtomicU32 {
        debug_assert_eq!(self.form, Form::Narrow);
        // SAFETY: after the 341 words, 341 times 4 bytes.
        unsafe { self.at(&self.range, place, 8 * Form::Narrow.group_slots() as usize, 4) }
    }

    /// Returns what lies `first` bytes into the group of a slot, and `bytes` for each slot before
    /// it there.
    ///
    /// # Safety
    /// A group has as many bytes, and all that lies there is of this type, an atomic.
    #[inline]
    unsafe fn at<'a, T>(
        &self,
        range: &'a Arc<dyn Reservation>,
        Place { group, at }: Place,
        first: usize,
        bytes: usize,
    ) -> &'a T {
        let offset = group as usize * GROUP_BYTES + first + at as usize * bytes;
        // SAFETY: the slot is one of the table's (M1), and the range was made to hold their groups.
        let value = unsafe { range.base().byte_add(offset) }.cast::<T>();
        // SAFETY: committed when the table was made, aligned (groups are page aligned), only ever
        // accessed as atomics, zero-initialised which is a valid slot (T2); it lives as long as
        // the range.
        unsafe { value.as_ref() }
    }

    #[inline]
    pub(super) fn group(&self, group: u64) -> &AtomicU32 {
        assert!(group <= self.slots / self.form.group_slots());
        let groups: NonNull<AtomicU32> = self.groups.base().cast();
        // SAFETY: one word was reserved for each group.
        let word = unsafe { groups.add(group as usize) };
        // SAFETY: as in `at`.
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

    /// Gives the page of the values beside a group back.
    ///
    /// # Safety
    /// The slots of the group are empty and locked.
    pub(super) unsafe fn release_beside(&self, group: u64) {
        let beside = self.beside.as_ref().expect("there are values beside narrow slots only");
        // SAFETY: committed when the table was made, page aligned; the rest is the caller's.
        unsafe { beside.release(group as usize * GROUP_BYTES, GROUP_BYTES) };
    }
}
