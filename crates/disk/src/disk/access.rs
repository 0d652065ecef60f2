//! The end of a device.
//!
//! - A1: a change that was acknowledged was whole before the device closed, so it is in a snapshot
//!   that begins afterwards. A change looks at the gate once more when its work is done, and is
//!   refused if the gate has closed by then. The closing side sets the gate and then reads pages;
//!   a change writes pages and then reads the gate. Each has a fence between the two, so at least
//!   one sees the other.

use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Whether a device takes changes.
#[derive(Debug, Default)]
pub(crate) struct Access {
    closed: AtomicBool,
}

impl Access {
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        // A1: what follows sees every page of a change that did not see the flag.
        fence(Ordering::SeqCst);
    }

    /// Returns whether no change may begin.
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: a thread that misses it is notified at the end of the change.
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns whether the device closed before a change was done.
    pub(crate) fn has_closed(&self) -> bool {
        // A1: the pages of the change are written before the flag is read.
        fence(Ordering::SeqCst);
        self.closed.load(Ordering::Relaxed)
    }
}
