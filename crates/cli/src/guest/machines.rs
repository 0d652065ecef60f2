//! Machines of cloud-hypervisor that are to come, each with a socket until it has come.
//!
//! The command that asked for a machine asks again and again whether it is there; if it no longer
//! does before a VMM has connected, the socket goes.
//!
//! Locks: the list of machines, then what is known of one; both held for moments, and with no other
//! lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use zfold_guest::OnDemand;
use zfold_pool::Lock;

use super::places::{Bound, Places};

/// How long a socket stays for which nobody asks.
const PATIENCE: Duration = Duration::from_secs(15);

/// The machines of a server that come and go.
pub(super) struct Machines {
    places: Places,
    coming: Lock<BTreeMap<String, Arc<Coming>>>,
    /// Those that get pages on demand.
    pub(super) demand: OnDemand,
}

/// A machine that is to come: when somebody asked for it last, and how it ended.
pub(super) struct Coming(Lock<(Instant, Option<Ended>)>);

/// What was saved, or why nothing was.
pub(super) type Ended = Result<Value, String>;

impl Coming {
    /// Returns whether nobody asks for it any longer.
    pub(super) fn is_forgotten(&self) -> bool {
        self.0.lock().0.elapsed() > PATIENCE
    }

    /// Notes how it ended.
    pub(super) fn ends(&self, end: Ended) {
        self.0.lock().1 = Some(end);
    }
}

impl Machines {
    pub(super) fn new(places: Places) -> Self {
        Self { places, coming: Lock::default(), demand: OnDemand::default() }
    }

    /// Makes the socket of a machine that is to come.
    ///
    /// # Errors
    /// One is awaited under that name, or there is no socket.
    pub(super) fn begin(&self, name: &str) -> Result<(Bound, Arc<Coming>), String> {
        let mut coming = self.coming.lock();
        // Of those that ended while nobody asked, this is all that is left.
        coming.retain(|_, one| one.0.lock().1.is_none() || !one.is_forgotten());
        if coming.get(name).is_some_and(|one| one.0.lock().1.is_none()) {
            return Err(format!("a machine {name} is awaited already: choose another name"));
        }
        let bound = self.places.machine(name)?;
        let one = Arc::new(Coming(Lock::new((Instant::now(), None))));
        coming.insert(name.to_owned(), Arc::clone(&one));
        Ok((bound, one))
    }

    /// Returns how a machine that is to come has ended, once, for somebody who asks for it; nothing
    /// if none is to come under that name.
    pub(super) fn ask(&self, name: &str) -> Option<Option<Ended>> {
        let mut coming = self.coming.lock();
        let one = coming.get(name).cloned()?;
        let mut known = one.0.lock();
        known.0 = Instant::now();
        let end = known.1.take();
        if end.is_some() {
            coming.remove(name);
        }
        Some(end)
    }
}
