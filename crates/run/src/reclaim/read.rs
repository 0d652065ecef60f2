//! Reads pages that were moved out, from the stagings of their space and without its lock
//! ([`mover`](super::mover)/M4).

use std::io;
use std::sync::Arc;

use crate::cold::swap_cache::Batch;
use crate::reclaim::mover::unregister;
use crate::shared::Shared;
use crate::spaces::access::Access;
use crate::spaces::bytes::Bytes;
use crate::spaces::helper::Helper;
use crate::spaces::managed::{Managed, lock};
use crate::sys::remote;
use zfold_uffd::page::page_len;

/// Pages that are out, and have not been read.
pub(super) struct Out {
    pub batch: Arc<Batch>,
    /// Where each lies; see [`Moved`](super::mover::Moved).
    pub places: Vec<(usize, usize)>,
    /// Their helper has ended.
    pub orphaned: bool,
}

/// Reads pages that are out; returns how many.
///
/// # Errors
/// The space is lost, and these pages with it.
pub(super) fn read(
    shared: &Shared,
    managed: &Managed,
    current: &mut Option<Helper>,
    out: &Out,
) -> io::Result<usize> {
    let mut bytes = bytes_of(shared, managed, current, out).inspect_err(|_| {
        // Before a fault that waits for them goes on.
        managed.die();
        out.batch.set_bytes(Bytes::default());
    })?;
    // Parts that were used for more pages would keep their memory as long as this batch lasts.
    if shared.budget.is_tight() {
        bytes.trim();
    }
    out.batch.set_bytes(bytes);
    Ok(out.batch.len())
}

fn bytes_of(
    shared: &Shared,
    managed: &Managed,
    current: &mut Option<Helper>,
    Out { batch: _, places, orphaned }: &Out,
) -> io::Result<Bytes> {
    let helper = current.as_mut().expect("what has moved pages out is not dropped before");
    let mut bytes = lock(&shared.cold.swap_cache).buffer(places.len());
    let mut ended = Ok(());
    if !orphaned {
        match by_helper(helper, places, &mut bytes) {
            Ok(()) => return Ok(bytes),
            Err(error) => ended = access_after(shared, managed, &error).map(drop),
        }
    }
    bytes.clear();
    let access = managed.access().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
    let read = ended.and_then(|()| {
        unregister(helper, access?)?;
        let mut read = reader_of(managed);
        let slots = places.iter().map(|&(into, at)| helper.stagings.slot(into, at));
        slots.into_iter().try_for_each(|slot| read(slot, bytes.grow(page_len())))
    });
    managed.drop_helper(current);
    read.map(|()| bytes)
}

/// Appends the bytes of the pages at these places.
///
/// # Errors
/// The helper is gone; the pages are still there.
fn by_helper(helper: &mut Helper, places: &[(usize, usize)], bytes: &mut Bytes) -> io::Result<()> {
    let is_next = |a: &(usize, usize), b: &(usize, usize)| (a.0, a.1 + 1) == *b;
    for part in places.chunk_by(is_next) {
        let (into, at) = part[0];
        let (mut from, mut left) = (helper.stagings.slot(into, at), part.len() * page_len());
        while left > 0 {
            let bytes = bytes.grow(left);
            helper.inside.read(from, bytes)?;
            (from, left) = (from + bytes.len(), left - bytes.len());
        }
    }
    Ok(())
}

/// A helper has failed in the middle of a batch: waits until it has ended. Returns what the
/// stagings are taken off the registration by.
///
/// # Errors
/// The space is lost.
pub(super) fn access_after<'a>(
    shared: &Shared,
    managed: &'a Managed,
    error: &io::Error,
) -> io::Result<&'a Access> {
    let has_ended = shared.end_helper(managed, error);
    let access = managed.access().filter(|_| has_ended);
    access.ok_or_else(|| io::Error::new(error.kind(), error.to_string()))
}

/// Returns what reads memory of a space through any of its processes.
pub(super) fn reader_of(managed: &Managed) -> impl FnMut(usize, &mut [u8]) -> io::Result<()> {
    let tasks = lock(&managed.tasks).clone();
    // Any of them has the memory, except those that have just ended.
    move |from, into| {
        // A staging may be for memory that can only be written to.
        let mut reads = tasks.iter().map(|&task| {
            remote::read(task, from, into).or_else(|_| remote::read_forced(task, from, into))
        });
        let lost = || Err(io::Error::other("no process of its address space can be read"));
        reads.find(Result::is_ok).unwrap_or_else(lost)
    }
}
