//! The gate to the store of images.
//!
//! - F1: a thread that calls the store is within the gate, and waits there for nothing but the
//!   store: it makes no call on a descriptor of a peer, which the peer can let it wait for. While
//!   the gate is closed, no thread is within the store and none of its locks is held: a copy of
//!   this memory, in which other threads do not exist, can be used.
//!
//! It is a reader-writer lock: threads that enter wait while it is closed, and a thread that closes
//! it waits for those within.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Gate(RwLock<()>);

impl Gate {
    /// Enters, until the guard is dropped.
    pub(crate) fn open(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `work` within the gate.
    pub(crate) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _open = self.open();
        work()
    }

    /// Closes it, until the guard is dropped.
    pub(super) fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
