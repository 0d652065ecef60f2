//! Takes a batch of pages out of a space: they are moved under its lock, and read after it
//! (mover/M4).

use std::io;
use std::sync::Arc;

use crate::cold::swap_cache::Batch;
use crate::core::ranges::PageNo;
use crate::core::space::Space;
use crate::faults::answer::answer_told;
use crate::faults::messages::drain;
use crate::reclaim::evictor::Evictor;
use crate::reclaim::keep::settle;
use crate::spaces::access::Access;
use crate::spaces::bytes::Bytes;
use crate::spaces::managed::{Held, Managed, lock};
use crate::spaces::mover::{Moved, Mover, Stays};
use crate::sys::process::is_there;
use crate::sys::remote;

/// Pages that are out, and have not been read.
struct Out {
    batch: Arc<Batch>,
    /// Where each lies; see [`Moved`].
    places: Vec<(usize, usize)>,
    /// Their helper has ended.
    orphaned: bool,
}

impl Evictor {
    /// Picks pages and moves them out; returns how many are out and where to continue.
    pub(crate) fn move_out(
        &mut self,
        managed: &Arc<Managed>,
        pick: impl FnOnce(&mut Space, &dyn Fn(PageNo) -> bool, &mut Vec<PageNo>) -> Option<PageNo>,
    ) -> (usize, Option<PageNo>) {
        let shared = Arc::clone(&self.shared);
        let mut mover = managed.mover();
        if mover.is_none() || managed.is_dead() {
            return (0, None);
        }
        lock(&managed.kept).look(is_there);
        let mut space = managed.lock();
        if space.is_unsure() {
            return (0, None);
        }
        drain(&shared, managed, &mut space, &mut self.answers.told);
        self.victims.clear();
        let next = {
            let kept = lock(&managed.kept);
            pick(&mut space, &|page| kept.has(page), &mut self.victims)
        };
        // A wait for a frozen helper would not end.
        if !self.victims.is_empty() && managed.is_frozen() {
            self.victims.clear();
        }
        let mut taken = self.take(managed, &mut mover, space, false);
        self.shared_out.clear();
        if taken.is_ok() && !self.victims.is_empty() {
            // Pages that a fork shares become the space's own, and are tried once more.
            taken = taken.and_then(|out| {
                self.ask(managed, &mut mover, |mover| mover.make_own(&self.victims));
                self.shared_out.clone_from(&self.victims);
                let mut space = managed.lock();
                drain(&shared, managed, &mut space, &mut self.answers.told);
                // A fork may have begun meanwhile, or a thread whose number lies in one of these
                // pages.
                let kept = lock(&managed.kept);
                self.victims.retain(|&page| space.may_leave(page) && !kept.has(page));
                drop(kept);
                Ok(out + self.take(managed, &mut mover, space, true)?)
            });
        }
        drop(mover);
        let out = taken.unwrap_or_else(|error| {
            shared.lost(managed, &error);
            0
        });
        answer_told(&shared, managed, &mut self.answers);
        (out, next)
    }

    /// Moves out the victims, releases the lock, reads them, and frees their memory; returns how
    /// many are out. Afterwards the victims are the shared ones.
    ///
    /// # Errors
    /// The space is lost, with the pages that were on their way out.
    pub(crate) fn take(
        &mut self,
        managed: &Managed,
        current: &mut Option<Mover>,
        mut space: Held<'_>,
        own: bool,
    ) -> io::Result<usize> {
        let out = self.move_victims(managed, current, &mut space, own)?;
        drop(space);
        let read = out.map_or(Ok(0), |out| self.read(managed, current, &out));
        self.ask(managed, current, Mover::clean);
        read
    }

    /// Asks the helper for what moves nothing out; gives it up if it fails.
    fn ask(
        &self,
        managed: &Managed,
        current: &mut Option<Mover>,
        what: impl FnOnce(&mut Mover) -> io::Result<()>,
    ) {
        if let Some(Err(error)) = current.as_mut().map(what) {
            self.shared.end_helper(managed, &error);
            managed.drop_mover(current);
        }
    }

    /// Moves out the victims. Afterwards the victims are the shared ones.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    fn move_victims(
        &mut self,
        managed: &Managed,
        current: &mut Option<Mover>,
        space: &mut Space,
        own: bool,
    ) -> io::Result<Option<Out>> {
        let Some(mover) = current.as_mut().filter(|_| !self.victims.is_empty()) else {
            return Ok(None);
        };
        let mut moved = Moved::default();
        let taken = mover.take(&self.victims, own, &mut moved);
        let orphaned = taken.is_err();
        if let Err(error) = taken {
            // Some may be out; which ones is found out before the lock is released.
            let found = self.end_helper(managed, &error).and_then(|access| {
                mover.salvage(access, &self.victims, &mut moved, reader_of(managed))
            });
            found.inspect_err(|_| managed.die())?;
        }
        let busy = moved.stay.iter().filter(|(_, stays)| *stays == Stays::Busy);
        self.victims = busy.map(|(page, _)| *page).collect();
        let places = std::mem::take(&mut moved.places);
        let released = &mut self.answers.told.released;
        let batch = settle(&self.shared, managed, space, moved, own, released);
        if batch.is_none() && orphaned {
            managed.drop_mover(current);
        }
        Ok(batch.map(|batch| Out { batch, places, orphaned }))
    }

    /// Reads pages that are out, without the lock of the space (mover/M4); returns how many.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    fn read(
        &mut self,
        managed: &Managed,
        current: &mut Option<Mover>,
        out: &Out,
    ) -> io::Result<usize> {
        let bytes = self.bytes_of(managed, current, out).inspect_err(|_| {
            // Before a fault that waits for them goes on.
            managed.die();
            out.batch.set_bytes(Bytes::default());
        })?;
        out.batch.set_bytes(bytes);
        Ok(out.batch.len())
    }

    fn bytes_of(
        &self,
        managed: &Managed,
        current: &mut Option<Mover>,
        Out { batch: _, places, orphaned }: &Out,
    ) -> io::Result<Bytes> {
        let mover = current.as_mut().expect("what has moved pages out is not dropped before");
        let mut bytes = lock(&self.shared.swap_cache).buffer();
        let mut ended = Ok(());
        if !orphaned {
            match mover.read(places, &mut bytes) {
                Ok(()) => return Ok(bytes),
                Err(error) => ended = self.end_helper(managed, &error).map(drop),
            }
        }
        bytes.truncate(0);
        let access = managed.access().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        let read =
            ended.and_then(|()| mover.read_by(access?, places, &mut bytes, reader_of(managed)));
        managed.drop_mover(current);
        read.map(|()| bytes)
    }

    /// A helper has failed in the middle of a batch: waits until it has ended. Returns what the
    /// stagings are taken off the registration by.
    fn end_helper<'a>(&self, managed: &'a Managed, error: &io::Error) -> io::Result<&'a Access> {
        let has_ended = self.shared.end_helper(managed, error);
        let access = managed.access().filter(|_| has_ended);
        access.ok_or_else(|| io::Error::new(error.kind(), error.to_string()))
    }
}

/// Returns what reads memory of a space through any of its processes.
fn reader_of(managed: &Managed) -> impl FnMut(usize, &mut [u8]) -> io::Result<()> {
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
