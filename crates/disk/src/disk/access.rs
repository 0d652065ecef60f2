//! Access to a device: its users, exclusive claims, and its end.
//!
//! - A1: while a device is claimed it has no user. Users that come meanwhile wait, so no write of a
//!   client falls into the claimed work.
//! - A2: a change that was acknowledged was whole before the device closed, so it is in a snapshot
//!   that begins afterwards. A change looks at the gate once more when its work is done, and is
//!   refused if the gate has closed by then. The closing side sets the gate and then reads pages;
//!   a change writes pages and then reads the gate. Each has a fence between the two, so at least
//!   one sees the other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Condvar, MutexGuard};

use zfold_pool::{Lock, sound};

/// The users of a device, and whether it takes changes.
#[derive(Debug, Default)]
pub(crate) struct Access {
    state: Lock<Users>,
    unclaimed: Condvar,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Users {
    /// How many there are of each kind.
    kinds: BTreeMap<&'static str, usize>,
    claimed: bool,
}

/// A user of a device, from [`Disk::attach`](crate::Disk::attach) until it is dropped.
#[derive(Debug)]
pub struct User {
    access: Arc<Access>,
    kind: &'static str,
}

/// A device without users, from [`Disk::claim`](crate::Disk::claim) until it is dropped.
#[derive(Debug)]
pub struct Claim<'a>(&'a Access);

impl User {
    /// Waits while the device is claimed.
    pub(crate) fn attach(access: Arc<Access>, kind: &'static str) -> Self {
        let mut state = access.unclaimed();
        *state.kinds.entry(kind).or_default() += 1;
        drop(state);
        Self { access, kind }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut state = self.access.state.lock();
        let count = state.kinds.get_mut(self.kind).expect("it was counted");
        *count -= 1;
        if *count == 0 {
            state.kinds.remove(self.kind);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.state.lock().claimed = false;
        self.0.unclaimed.notify_all();
    }
}

impl Access {
    /// Claims the device; the error names its users.
    pub(crate) fn claim(&self) -> Result<Claim<'_>, Vec<&'static str>> {
        let mut state = self.unclaimed();
        if !state.kinds.is_empty() {
            return Err(state.kinds.keys().copied().collect());
        }
        state.claimed = true;
        Ok(Claim(self))
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        // A2: what follows sees every page of a change that did not see the flag.
        fence(Ordering::SeqCst);
    }

    /// Returns whether no change may begin.
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: a thread that misses it is notified at the end of the change.
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns whether the device closed before a change was done.
    pub(crate) fn has_closed(&self) -> bool {
        // A2: the pages of the change are written before the flag is read.
        fence(Ordering::SeqCst);
        self.closed.load(Ordering::Relaxed)
    }

    /// Waits while the device is claimed.
    fn unclaimed(&self) -> MutexGuard<'_, Users> {
        let claimed = |state: &mut Users| state.claimed;
        sound(self.unclaimed.wait_while(self.state.lock(), claimed))
    }
}
