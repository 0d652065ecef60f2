//! Reads the kernel's messages about an address space, and processes them at once.
//!
//! Any thread that holds a space's lock may read its messages. It puts the faults among them in the
//! space's box.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::core::ranges::{Pages, page_of};
use crate::core::space::Space;
use crate::link::SpaceId;
use crate::shared::Shared;
use crate::spaces::access::Access;
use crate::spaces::mailbox::Fault;
use crate::spaces::managed::{Held, Managed, lock};
use zfold_uffd::Event;

/// Reads all messages and processes them, except faults, which the caller answers when it has let
/// the lock go ([`answer_faults`](super::answer::answer_faults)).
pub(crate) fn drain(shared: &Shared, managed: &Arc<Managed>, space: &mut Held<'_>) {
    while read(shared, managed, space).is_some() {}
}

/// The same for some messages. Returns whether they changed the space; `None` if there were none.
pub(crate) fn read(shared: &Shared, managed: &Arc<Managed>, space: &mut Held<'_>) -> Option<bool> {
    let access = managed.access()?;
    let mut events = Vec::new();
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
    let mut is_changed = false;
    for (at, event) in events.into_iter().enumerate() {
        if births.front().is_some_and(|(birth, _)| *birth == at)
            && let Some((_, mut child)) = births.pop_front()
        {
            flush(shared, managed.id, space);
            *child = copy_of(shared, space);
        }
        is_changed |= !matches!(event, Event::Missing { .. });
        match event {
            Event::Missing { address, thread, writes } => {
                let free = managed.is_helper(thread);
                managed.faults.add(Fault {
                    page: page_of(address),
                    thread,
                    writes,
                    free,
                    since: now,
                });
            }
            Event::Unmapped(range) => {
                let pages = pages(&range);
                space.unmapped(&pages);
                access.wake(&pages);
            }
            Event::Moved { from, to, len } => {
                let from = pages(&(from..from + len));
                let cache = lock(&shared.cold.swap_cache);
                space.moved(&from, page_of(to), |slot, to| cache.moved(slot, to));
                drop(cache);
                access.wake(&from);
                access.wake(&(page_of(to)..page_of(to) + from.len()));
            }
            Event::Discarded(range) => space.doomed(&pages(&range)),
            Event::Forked(_) => unreachable!("taken out above"),
            // Nothing is registered for these.
            Event::Protected { .. } | Event::Other => {}
        }
    }
    (count > 0).then_some(is_changed)
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
    let mut keys = shared.cold.stock.keys();
    space.fork(|key| keys.share(key))
}
