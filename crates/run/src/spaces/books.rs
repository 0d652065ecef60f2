//! Which address spaces there are, and which processes cannot be managed.
//!
//! The table and its list are leaves in the lock order ([`crate::shared`]): the table is taken
//! under the list, and no lock of a space under either.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use zfold_pool::sound;

use crate::link::SpaceId;
use crate::options::Unmanaged;
use crate::spaces::budget::Budget;
use crate::spaces::keys::Stock;
use crate::spaces::managed::{Managed, lock};
use crate::spaces::polls::Polls;
use crate::spaces::refusals::Refusals;
use crate::sys::proc;

/// Most spaces in which pages that forks share are looked for.
pub(crate) const RELATIVES: usize = 64;

/// The spaces of a run.
pub(crate) struct Books {
    budget: Arc<Budget>,
    stock: Arc<Stock>,
    spaces: RwLock<BTreeMap<SpaceId, Arc<Managed>>>,
    /// The same as a list, as long as it does not change: thousands are not copied at each step.
    listed: Mutex<Option<Arc<[Arc<Managed>]>>>,
    ids: AtomicU64,
    /// Who reads their messages.
    pub polls: Polls,
    /// Processes that could not be attached.
    pub unmanaged: Mutex<Refusals>,
}

impl Books {
    /// Returns books without spaces.
    ///
    /// # Errors
    /// The process has no descriptors for the polls.
    pub(crate) fn new(budget: Arc<Budget>, stock: Arc<Stock>) -> io::Result<Self> {
        Ok(Self {
            budget,
            stock,
            spaces: RwLock::default(),
            listed: Mutex::default(),
            ids: AtomicU64::new(0),
            polls: Polls::new()?,
            unmanaged: Mutex::default(),
        })
    }

    /// Returns a new space that is not in the table.
    pub(crate) fn new_space(&self, pid: i32) -> Arc<Managed> {
        let id = SpaceId(self.ids.fetch_add(1, Ordering::Relaxed) + 1);
        Arc::new(Managed::new(id, pid, &self.budget, &self.stock))
    }

    /// Adds a space to the table, and has its messages read if there may be any.
    pub(crate) fn insert(&self, managed: Arc<Managed>) {
        let mut spaces = sound(self.spaces.write());
        spaces.insert(managed.id, Arc::clone(&managed));
        drop(spaces);
        *lock(&self.listed) = None;
        if managed.access().is_some() {
            self.polls.add(&managed);
        }
    }

    /// Returns a space.
    pub(crate) fn find(&self, id: SpaceId) -> Option<Arc<Managed>> {
        let spaces = sound(self.spaces.read());
        spaces.get(&id).cloned()
    }

    /// Takes a space out of the table.
    pub(crate) fn take(&self, id: SpaceId) -> Option<Arc<Managed>> {
        let mut spaces = sound(self.spaces.write());
        let taken = spaces.remove(&id);
        drop(spaces);
        *lock(&self.listed) = None;
        taken
    }

    /// Returns all spaces in the order of their numbers. While a caller has the list, no space of
    /// it gives up its descriptors.
    pub(crate) fn all(&self) -> Arc<[Arc<Managed>]> {
        let list = || {
            let spaces = sound(self.spaces.read());
            spaces.values().cloned().collect()
        };
        // A change is made before the list is dropped: one that is made now is no change of it.
        Arc::clone(lock(&self.listed).get_or_insert_with(list))
    }

    /// Returns the other spaces that share pages since a fork, of any space, and that `is_meant`
    /// accepts, in the order of their numbers; [`RELATIVES`] of them at most.
    pub(crate) fn sharing_with(
        &self,
        id: SpaceId,
        is_meant: impl Fn(&Managed) -> bool,
    ) -> Vec<Arc<Managed>> {
        let shares = |other: &&Arc<Managed>| other.id != id && is_meant(other) && other.shares();
        let spaces = sound(self.spaces.read());
        spaces.values().filter(shares).take(RELATIVES).cloned().collect()
    }

    /// Returns how many spaces there have been.
    pub(crate) fn total(&self) -> u64 {
        self.ids.load(Ordering::Relaxed)
    }

    /// Records why a space cannot be attached.
    pub(crate) fn cannot_attach(&self, managed: &Managed, reason: String) {
        managed.refused.store(true, Ordering::Relaxed);
        // A process that has ended meanwhile has nothing to manage.
        if lock(&managed.tasks).iter().any(|&task| proc::lives(task)) {
            self.does_without(managed.pid(), reason);
        }
    }

    /// Records why a process is not managed.
    pub(crate) fn does_without(&self, pid: i32, reason: String) {
        lock(&self.unmanaged).add(Unmanaged { pid, program: proc::name(pid), reason });
    }
}
