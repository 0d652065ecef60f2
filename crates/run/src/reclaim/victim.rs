//! Which process ends when a page that must leave finds no room.
//!
//! A full machine ends one process, the largest, and not all of them; so does a full store. The
//! process that is ended is the *victim*.
//!
//! - V1: only the evictor chooses, and none while another victim is about to end: until the pages
//!   of that are gone from the store, or it has taken too long ([`Starving`]). A page that was
//!   tried before they were gone chooses nobody.
//! - V2: it is the process whose end frees the most, and of equals the newest: what is resident of
//!   it, and what the store holds for it alone.
//! - V3: SIGKILL ends it, as its parent sees, and nothing else is done to it: until the tracer has
//!   received its end, it is a space like others. So its faults are answered, the messages of its
//!   forks are read, and a child that it was just making has all its pages and goes on.
//! - V4: while it ends, no fault is answered above the limit: the evictor waits. Pages that found
//!   no room stay in the swap cache, from where faults take them, and are tried again afterwards.
//! - V5: the whole tree ends instead if the victim is the program itself, if there is none, and
//!   where it was asked for (`Shared::whole`).
//!
//! [`Starving`]: crate::cold::starving::Starving

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::core::pages::Page;
use crate::link::SpaceId;
use crate::reclaim::evictor::Evictor;
use crate::shared::Shared;
use crate::spaces::managed::{Managed, lock};
use zfold_uffd::page::page_len;

/// Between two looks at a victim.
const MOMENT: Duration = Duration::from_millis(1);

impl Evictor {
    /// Chooses a victim, if a page found no room; returns whether one is about to end, after a
    /// moment's wait.
    pub(super) fn starves(&self) -> bool {
        let shared = &self.shared;
        let wanted = lock(&shared.cold.starving).take();
        if let Some((why, but)) = wanted {
            match largest(shared, &but) {
                Some(victim) => {
                    lock(&shared.cold.starving).chosen(victim.id);
                    shared.tracing.end_victim(victim.id, why);
                }
                None => shared.end(why),
            }
        }
        let waits = lock(&shared.cold.starving).is_waiting();
        if waits {
            thread::sleep(MOMENT);
        }
        waits
    }
}

/// Returns the space of the process whose end frees the most, except these.
fn largest(shared: &Shared, but: &[SpaceId]) -> Option<Arc<Managed>> {
    let lives = |managed: &&Arc<Managed>| {
        !managed.is_dead() && !but.contains(&managed.id) && !lock(&managed.tasks).is_empty()
    };
    shared.books.all().iter().filter(lives).max_by_key(|managed| frees(shared, managed)).cloned()
}

/// Returns about how many bytes the end of a space frees.
///
/// # Cost
/// Some nanoseconds for each page that has left.
fn frees(shared: &Shared, managed: &Managed) -> usize {
    let (mut pages, mut bytes) = (managed.charged().saturating_sub(managed.credit()), 0);
    let space = managed.lock();
    let keys = shared.cold.stock.keys();
    space.for_each(|_, state| match state {
        Page::Stored(key) if !keys.is_shared(key) => {
            bytes += shared.cold.store.payload_len(u64::from(key));
        }
        Page::Cached(_) => pages += 1,
        _ => {}
    });
    pages * page_len() + bytes
}
