//! Reclaim: pages leave when their owner has evicted the objects in them, the least recently used
//! pages first. The part that is the same for every allocator is here.

use crate::handle::Handle;
use crate::pool::{ReclaimError, Refused};
use crate::units::PageCount;

/// Pages tried in a row without success before reclaim gives up (the kernel's retries).
const RECLAIM_RETRIES: u32 = 8;

/// A page or zspage under reclaim.
#[derive(Debug)]
pub(crate) struct Victim {
    /// The core's name for it.
    pub(crate) id: u32,
    /// Its live objects.
    pub(crate) handles: Vec<Handle>,
}

/// Reclaims victims one after the other until `pages` are freed, or the owner has refused too often
/// in a row: `begin` takes one out of allocation, `end` ends its reclaim and returns the pages that
/// it freed. No lock is held while `evict` is called.
pub(crate) fn reclaim_until(
    pages: PageCount,
    evict: &mut dyn FnMut(Handle) -> Result<(), Refused>,
    begin: impl Fn() -> Result<Option<Victim>, ReclaimError>,
    end: impl Fn(&Victim) -> u64,
) -> Result<PageCount, ReclaimError> {
    let (mut freed, mut refused) = (0, 0);
    while freed < pages.0 {
        let victim = begin()?.ok_or(ReclaimError::Empty)?;
        let mut gone = 0;
        let reclaiming = Reclaiming { victim, end: &end, gone: &mut gone };
        let _ = reclaiming.victim.handles.iter().try_for_each(|&handle| evict(handle));
        drop(reclaiming);
        freed += gone;
        refused = if gone == 0 { refused + 1 } else { 0 };
        if refused == RECLAIM_RETRIES {
            return Err(ReclaimError::Refused);
        }
    }
    Ok(PageCount(freed))
}

/// A page under reclaim; dropped, also by a panic of the hook, it goes back or leaves.
struct Reclaiming<'a, E: Fn(&Victim) -> u64> {
    victim: Victim,
    end: &'a E,
    gone: &'a mut u64,
}

impl<E: Fn(&Victim) -> u64> Drop for Reclaiming<'_, E> {
    fn drop(&mut self) {
        *self.gone = (self.end)(&self.victim);
    }
}
