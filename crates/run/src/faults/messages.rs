//! Reads the kernel's messages about an address space, and processes them at once.
//!
//! Any thread that holds a space's lock may read its messages; it must answer the faults among
//! them, or pass them on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::core::ranges::{Pages, page_of};
use crate::core::space::{Released, Space};
use crate::link::SpaceId;
use crate::shared::Shared;
use crate::spaces::access::Access;
use crate::spaces::asked::Fault;
use crate::spaces::managed::{Held, Managed, lock};
use zfold_uffd::Event;

/// Messages that were read under the lock and are to be finished without it.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Faults to be answered.
    pub faults: Vec<Fault>,
    /// What was given up.
    pub released: Released,
    /// The space was changed.
    pub changed: bool,
    events: Vec<Event>,
}

impl Told {
    /// Finishes all but the faults; without the lock of the space.
    pub(crate) fn finish(&mut self, shared: &Shared) {
        if !self.released.is_empty() {
            shared.cold.release(&self.released);
            self.released.clear();
        }
    }
}

/// Reads all messages and processes them, except faults.
pub(crate) fn drain(
    shared: &Shared,
    managed: &Arc<Managed>,
    space: &mut Held<'_>,
    told: &mut Told,
) {
    while read(shared, managed, space, told) {}
}

/// Reads some messages; returns whether there may be more.
pub(crate) fn read(
    shared: &Shared,
    managed: &Arc<Managed>,
    space: &mut Held<'_>,
    told: &mut Told,
) -> bool {
    let Some(access) = managed.access() else { return false };
    let mut events = std::mem::take(&mut told.events);
    let mut born: Vec<(usize, Arc<Managed>)> = Vec::new();
    let (count, mut births) = {
        // The parent continues when its message is read, and then the tracer finds the child. It
        // must find all of it, except the pages, which would have to be waited for.
        let mut unclaimed = lock(&managed.unclaimed);
        let count = access.read(&mut events).unwrap_or(0);
        for (at, event) in events.iter_mut().enumerate() {
            if matches!(event, Event::Forked(_))
                && let Event::Forked(uffd) = std::mem::replace(event, Event::Other)
            {
                let child = shared.books.new_space(0);
                child.set_access(Access::new(uffd));
                born.push((at, child));
            }
        }
        let births: VecDeque<_> = born.iter().map(|(at, child)| (*at, child.lock())).collect();
        for (_, child) in &born {
            shared.books.insert(Arc::clone(child));
            unclaimed.push(Arc::clone(child));
        }
        (count, births)
    };
    let now = Instant::now();
    for (at, event) in events.drain(..).enumerate() {
        if births.front().is_some_and(|(birth, _)| *birth == at)
            && let Some((_, mut child)) = births.pop_front()
        {
            flush(shared, managed.id, space);
            *child = copy_of(shared, space);
            shared.counters.forks_total.add(1);
        }
        told.changed |= !matches!(event, Event::Missing { .. });
        match event {
            Event::Missing { address, thread, writes } => {
                told.faults.push(Fault { page: page_of(address), thread, writes, since: now });
            }
            Event::Unmapped(range) => {
                let pages = pages(&range);
                told.released.extend(space.unmapped(&pages));
                access.wake(&pages);
            }
            Event::Moved { from, to, len } => {
                let from = pages(&(from..from + len));
                let cache = lock(&shared.cold.swap_cache);
                let released = space.moved(&from, page_of(to), |slot, to| cache.moved(slot, to));
                drop(cache);
                told.released.extend(released);
                access.wake(&from);
                access.wake(&(page_of(to)..page_of(to) + from.len()));
            }
            Event::Discarded(range) => told.released.extend(space.doomed(&pages(&range))),
            Event::Forked(_) => unreachable!("taken out above"),
            // Nothing is registered for these.
            Event::Protected { .. } | Event::Other => {}
        }
    }
    told.events = events;
    count > 0
}

fn pages(range: &std::ops::Range<usize>) -> Pages {
    page_of(range.start)..range.end.div_ceil(zfold_uffd::page::page_len())
}

/// Stores the pages that the swap cache has of a space, before a child shares them.
pub(crate) fn flush(shared: &Shared, id: SpaceId, space: &mut Held<'_>) {
    if let Err(why) = shared.cold.flush(id, space) {
        shared.end(why);
    }
}

/// The space of a child, as it is now. Its keys are shared.
pub(crate) fn copy_of(shared: &Shared, space: &Held<'_>) -> Space {
    let mut keys = lock(&shared.cold.keys);
    space.fork(|key| keys.share(key))
}
