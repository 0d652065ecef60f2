//! The record of an object of z3fold: what its handle stands for.

use crate::buddy::z3fold::layout::Buddy;
use crate::memory::slab::Record;
use crate::sync::plain::Plain32;

/// The object behind a handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) serial: u32,
    pub(super) len: u32,
    pub(super) page: u32,
    pub(super) place: Buddy,
}

/// The record of an object; its serial is zero while it is free.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct ObjectRecord {
    pub(super) serial: Plain32,
    len: Plain32,
    page: Plain32,
    place: Plain32,
}

impl ObjectRecord {
    pub(super) fn get(&self) -> Object {
        let place = match self.place.get() {
            0 => Buddy::First,
            1 => Buddy::Middle,
            2 => Buddy::Last,
            _ => Buddy::Headless,
        };
        let (serial, len, page) = (self.serial.get(), self.len.get(), self.page.get());
        Object { serial, len, page, place }
    }

    pub(super) fn set(&self, object: Object) {
        self.serial.set(object.serial);
        self.len.set(object.len);
        self.set_place(object.page, object.place);
    }

    pub(super) fn set_place(&self, page: u32, place: Buddy) {
        self.page.set(page);
        self.place.set(place as u32);
    }
}

// SAFETY: atomics only; zeros are a free record; no drop; alignment 4, 16 bytes.
unsafe impl Record for ObjectRecord {
    fn next_free(&self) -> u32 {
        self.len.get()
    }
    fn set_free(&self, next: u32) {
        self.serial.set(0);
        self.len.set(next);
    }
    fn is_live(&self) -> bool {
        self.serial.get() != 0
    }
}
