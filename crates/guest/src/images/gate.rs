//! The gate to the store of images.
//!
//! - F1: whoever calls the store is within the gate, and waits for nothing but the store there. So
//!   while the gate is closed nobody is within the store, and no lock of it is held: a copy of this
//!   memory can be used, in which other threads do not exist.
//!
//! It is a lock for readers and a writer: those who go in wait while it is closed, and who closes
//! it waits for those who are in.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Gate(RwLock<()>);

impl Gate {
    /// Goes in, until the guard is dropped.
    pub(crate) fn open(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something within.
    pub(super) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _open = self.open();
        work()
    }

    /// Closes it, until the guard is dropped.
    pub(super) fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
