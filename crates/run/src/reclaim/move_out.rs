//! Takes a batch of pages out of a space: they are moved under its lock, and read after it
//! (mover/M4).

use std::io;
use std::sync::Arc;

use crate::core::ranges::{PageNo, Pages, Ranges};
use crate::core::space::Space;
use crate::faults::answer::answer_faults;
use crate::faults::messages::drain;
use crate::reclaim::evictor::Evictor;
use crate::reclaim::keep::settle;
use crate::reclaim::marks::mark;
use crate::reclaim::mover::{Moved, Mover, make_own, salvage};
use crate::reclaim::read::{Out, access_after, read, reader_of};
use crate::spaces::books::RELATIVES;
use crate::spaces::helper::Helper;
use crate::spaces::managed::{Held, Managed, lock};
use crate::spaces::staging::Stays;
use crate::sys::process::is_there;
use crate::sys::procmap::WRITE;

impl Evictor {
    /// Picks pages and moves them out; returns how many are out and where to continue. `protected`:
    /// they are picked from this range, a mapping that has this protection and is not writable
    /// (mover/M3).
    pub(crate) fn move_out(
        &mut self,
        managed: &Arc<Managed>,
        protected: Option<(&Pages, u8)>,
        pick: impl FnOnce(&mut Space, &dyn Fn(PageNo) -> bool, &mut Vec<PageNo>) -> Option<PageNo>,
    ) -> (usize, Option<PageNo>) {
        let shared = Arc::clone(&self.shared);
        let mut helper = managed.helper();
        let protection = protected.map(|(_, protection)| protection);
        let moves = |helper: &Helper| {
            protection.is_none_or(|may| helper.stagings.of(may | WRITE).is_some())
        };
        if !helper.as_ref().is_some_and(moves) || managed.is_dead() {
            return (0, None);
        }
        lock(&managed.kept).look(is_there);
        let mut space = managed.lock();
        if space.is_unsure() {
            return (0, None);
        }
        drain(&shared, managed, &mut space);
        mark(managed, &mut space);
        self.victims.clear();
        let next = {
            let kept = lock(&managed.kept);
            pick(&mut space, &|page| kept.has(page), &mut self.victims)
        };
        mark(managed, &mut space);
        if shared.budget.sharers() > RELATIVES {
            leave_shared(managed, &mut space, &mut self.victims);
        }
        // A wait for a frozen helper would not end.
        if !self.victims.is_empty() && managed.is_frozen() {
            self.victims.clear();
        }
        let mut taken = self.take(managed, &mut helper, protection, space, protected.is_some());
        self.shared_out.clear();
        if protected.is_none() && taken.is_ok() && !self.victims.is_empty() {
            // Pages that a fork shares become the space's own, and are tried once more.
            taken = taken.and_then(|out| {
                self.ask(managed, &mut helper, |helper| make_own(helper, &self.victims));
                self.shared_out.clone_from(&self.victims);
                let mut space = managed.lock();
                drain(&shared, managed, &mut space);
                // A fork may have begun meanwhile, or a thread whose number lies in one of these
                // pages.
                let kept = lock(&managed.kept);
                self.victims.retain(|&page| space.may_leave(page) && !kept.has(page));
                drop(kept);
                Ok(out + self.take(managed, &mut helper, None, space, true)?)
            });
        }
        if let (Some((range, _)), None) = (protected, &*helper) {
            self.end_if_writable(managed, range);
        }
        drop(helper);
        let out = taken.unwrap_or_else(|error| {
            self.lost.add(managed, &error);
            0
        });
        answer_faults(&shared, managed);
        (out, next)
    }

    /// Moves out the victims, releases the lock, reads them, and frees their memory; returns how
    /// many are out. Afterwards the victims are the shared ones.
    ///
    /// # Errors
    /// The space is lost, with the pages that were on their way out.
    fn take(
        &mut self,
        managed: &Managed,
        current: &mut Option<Helper>,
        protection: Option<u8>,
        mut space: Held<'_>,
        own: bool,
    ) -> io::Result<usize> {
        let out = self.move_victims(managed, current, protection, &mut space, own)?;
        drop(space);
        let read = out.map_or(Ok(0), |out| read(&self.shared, managed, current, &out));
        self.ask(managed, current, Helper::clean);
        read
    }

    /// Asks the helper for what moves nothing out; gives it up if it fails.
    fn ask(
        &self,
        managed: &Managed,
        current: &mut Option<Helper>,
        what: impl FnOnce(&mut Helper) -> io::Result<()>,
    ) {
        if let Some(Err(error)) = current.as_mut().map(what) {
            self.shared.end_helper(managed, &error);
            managed.drop_helper(current);
        }
    }

    /// Moves out the victims. Afterwards the victims are the shared ones.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    fn move_victims(
        &mut self,
        managed: &Managed,
        current: &mut Option<Helper>,
        protection: Option<u8>,
        space: &mut Space,
        own: bool,
    ) -> io::Result<Option<Out>> {
        let Some(helper) = current.as_mut().filter(|_| !self.victims.is_empty()) else {
            return Ok(None);
        };
        let mut moved = Moved::default();
        let taken = Mover { helper, protection }.take(&self.victims, own, &mut moved);
        let orphaned = taken.is_err();
        if let Err(error) = taken {
            // Some may be out; which ones is found out before the lock is released.
            let found = access_after(&self.shared, managed, &error).and_then(|access| {
                salvage(helper, access, &self.victims, &mut moved, reader_of(managed))
            });
            found.inspect_err(|_| managed.die())?;
        }
        let busy = moved.stay.iter().filter(|(_, stays)| *stays == Stays::Busy);
        self.victims = busy.map(|(page, _)| *page).collect();
        let places = std::mem::take(&mut moved.places);
        let batch = settle(&self.shared, managed, space, moved, own);
        if batch.is_none() && orphaned {
            managed.drop_helper(current);
        }
        Ok(batch.map(|batch| Out { batch, places, orphaned }))
    }
}

/// Takes pages off the victims that other spaces have, too. Their memory would be free only when
/// they had left all of these, and among so many, most have no helper.
fn leave_shared(managed: &Managed, space: &mut Held<'_>, victims: &mut Vec<PageNo>) {
    /// Victims so near to each other are asked about by one call: it takes two microseconds.
    const NEAR: usize = 64;
    let Some(access) = managed.access() else { return };
    let mut own = Ranges::default();
    for part in victims.chunk_by(|one, next| (*one..=one + NEAR).contains(next)) {
        let range = part[0]..part[part.len() - 1] + 1;
        let Ok(found) = access.exclusive(managed.pid(), &range) else { return };
        found.into_iter().for_each(|pages| own.insert(pages));
    }
    victims.retain(|&page| {
        let is_own = own.around(page).is_some();
        if !is_own {
            space.set(page, Space::BUSY);
        }
        is_own
    });
}
