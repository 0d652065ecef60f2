//! Pages leave and return to a guest whose memory is a file that zfold has open, too.
//!
//! A resident unit is first frozen: protected from writes. Its contents are read from the file and
//! kept, unless they equal those of the image. If it is still frozen then, it is taken out of the
//! file. Units near each other are protected and taken out together, over absent units between them
//! (L7).
//!
//! - L1: a unit is taken out only if no write to it was allowed since before it was read: every
//!   step that allows one removes the unit from the batch first. There are two such steps: lifting
//!   the protection, and mapping a page that is in the file, since the kernel then forgets the
//!   protection.
//! - L2: before a unit leaves, the bits record where it will be: out and kept, or unsettled if the
//!   image has the same contents and the guest never gave the unit up (G1).
//! - L3: a thread that waits to write to a page is woken when the protection is lifted. If it is
//!   woken after the page has left, it faults on a missing page.
//! - L4: a page found in the file where a unit has left was put there by another process that maps
//!   the file, too. The kept contents are written over it before the guest gets it, and from then
//!   on nothing leaves.
//! - L5: a unit that the guest gave up is neither frozen nor out: old contents never come back.
//! - L6: the contents of a unit that is out and not in the file are held by the server that took it
//!   out, and by nobody else. A unit that is in the file is the guest's, whatever the bits say: a
//!   server ended in between. (A successor cannot recognize another process's page: L4 holds as
//!   long as one server lives.)
//! - L7: a unit between two that are taken out together is not resident, and out or unsettled: what
//!   is in the file there is another process's, and not what the guest gets (L4). A unit that was
//!   given up can still be in the file.

use std::ops::Range;

use rustix::io::Errno;
use zfold_uffd::page::PAGE;

use super::fault::{Filled, Put, Why};
use super::guest::{Guest, PIECE};
use super::leaving::{Batch, Found, Leaving, stretches};
use super::space::{Image, Space, load};

/// A step that is broken.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    Nothing,
    /// A unit is taken out although its protection was lifted.
    LetGoLeaves,
    /// A unit is taken out although it was mapped again.
    LinkedLeaves,
    /// Pages are taken out before the bits record it.
    PunchFirst,
    /// A page found in the place of one that left is taken for it.
    OthersAreOurs,
    /// A unit that was given up is still out.
    GivenUpIsOut,
    /// Whatever lies between two units is taken out with them.
    GapsAreAbsent,
}

impl Guest {
    /// Lets pages leave from now on: the guest's memory is a file, which has pages at these
    /// addresses. Returns how many pages are lost: those that were out, with a server that was lost
    /// (L6).
    pub(crate) fn begin_leaving(
        &mut self,
        present: &[Range<usize>],
        space: &mut impl Space,
    ) -> u64 {
        let mut leaving = Leaving::new(self.table.units());
        let now = space.era();
        for of in present {
            for at in of.clone().step_by(PAGE) {
                let Some(place) = self.table.find(at) else { continue };
                self.table.settle(place.unit);
                self.table.set_out(place.unit, false);
                leaving.came(place.unit, now);
            }
        }
        // A server that was lost may have left pages protected; waiting threads look again.
        for region in self.table.regions() {
            // A write to a page that is still protected is allowed when it is reported.
            let _ = space.protect(region.at.clone(), false);
        }
        self.leaving = Some(leaving);
        self.table.outs()
    }

    /// Returns the state of pages that leave, if they can leave.
    pub(crate) fn leaving(&mut self) -> Option<&mut Leaving> {
        self.leaving.as_mut()
    }

    /// Returns how many pages have left and differ from the image.
    pub(crate) fn outs(&self) -> u64 {
        self.table.outs()
    }

    #[cfg(test)]
    fn is_broken(&self, broken: Broken) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.broken == broken)
    }

    /// Records that a unit is resident.
    pub(super) fn came(&mut self, unit: u64, space: &impl Space) {
        self.table.settle(unit);
        if let Some(leaving) = &mut self.leaving {
            leaving.came(unit, space.era());
        }
    }

    /// Takes a unit out of the batch (L1).
    pub(super) fn stay(&mut self, unit: u64, space: &mut impl Space) {
        let Some(kept) = self.leaving.as_mut().and_then(|leaving| leaving.stay(unit)) else {
            return;
        };
        self.counts.stayed += 1;
        if kept {
            space.forget(unit);
        }
    }

    /// Records that units were given up (L5).
    pub(super) fn given_up(&mut self, of: Vec<Range<u64>>, space: &mut impl Space) {
        #[cfg(test)]
        if self.is_broken(Broken::GivenUpIsOut) {
            return;
        }
        for unit in of.into_iter().flatten() {
            self.stay(unit, space);
            if self.table.is_out(unit) {
                self.table.set_out(unit, false);
                space.forget(unit);
            }
            if let Some(leaving) = &mut self.leaving {
                leaving.gone(unit);
            }
        }
    }

    /// Returns whether another process put the page there that the file has in a unit's place (L4).
    pub(super) fn is_others(&self, unit: u64) -> bool {
        #[cfg(test)]
        if self.is_broken(Broken::OthersAreOurs) {
            return false;
        }
        self.leaving.is_some() && (self.table.is_out(unit) || !self.table.is_settled(unit))
    }

    /// Allows a write (L3).
    pub(super) fn let_write(&mut self, unit: u64, space: &mut impl Space) -> Put {
        let place = self.table.place(unit);
        let of = place.at..place.at + place.len;
        #[cfg(test)]
        if self.is_broken(Broken::LetGoLeaves) {
            let _ = space.protect(of, false);
            return Put::Done;
        }
        self.stay(unit, space);
        match space.protect(of.clone(), false) {
            Ok(()) => Put::Done,
            Err(error) => refused(error, of, space),
        }
    }

    /// Maps a page that is in the file.
    pub(super) fn link(&mut self, unit: u64, space: &mut impl Space, image: &impl Image) -> Put {
        #[cfg(test)]
        let stays = !self.is_broken(Broken::LinkedLeaves);
        #[cfg(not(test))]
        let stays = true;
        if stays {
            self.stay(unit, space);
        }
        let place = self.table.place(unit);
        let of = place.at..place.at + place.len;
        if self.is_others(unit) {
            // It may have left since this was asked.
            if !space.fetch(place.at, &mut [0; PAGE]) {
                space.wake(of);
                return Put::Done;
            }
            return self.repair(unit, space, image);
        }
        match space.link(of.clone()) {
            Ok(()) => self.came(unit, space),
            Err(error) => return refused(error, of, space),
        }
        Put::Done
    }

    /// Writes a unit's kept contents over another process's page, and maps it (L4).
    pub(super) fn repair(&mut self, unit: u64, space: &mut impl Space, image: &impl Image) -> Put {
        let place = self.table.place(unit);
        let mut page = [0; PAGE];
        let out = self.table.is_out(unit);
        let loaded =
            if out { space.recall(unit, &mut page) } else { load(image, place.page, &mut page) };
        if let Err(error) = loaded {
            return Put::Waits(0, Why::Load(error));
        }
        if let Some(leaving) = &mut self.leaving {
            leaving.is_shared = true;
        }
        if !space.patch(place.at, &page) {
            return Put::Waits(0, Why::Kernel(Errno::IO));
        }
        let of = place.at..place.at + PAGE;
        match space.link(of.clone()) {
            Ok(()) => self.returned(unit, out, space),
            Err(error) => return refused(error, of, space),
        }
        Put::Done
    }

    fn returned(&mut self, unit: u64, was_out: bool, space: &mut impl Space) {
        if was_out {
            self.table.set_out(unit, false);
            space.forget(unit);
            self.counts.returned += 1;
        }
        self.came(unit, space);
    }

    /// Brings back a unit that is out.
    pub(super) fn bring(&mut self, unit: u64, space: &mut impl Space, image: &impl Image) -> Put {
        let place = self.table.place(unit);
        let mut page = [0; PAGE];
        if let Err(error) = space.recall(unit, &mut page) {
            return Put::Waits(0, Why::Load(error));
        }
        match space.copy(place.at, &page).map_err(|partial| partial.error) {
            Ok(()) => {}
            Err(Errno::SRCH) => return Put::Gone,
            Err(Errno::AGAIN) => return Put::Waits(0, Why::Discard),
            Err(Errno::EXIST) if self.is_others(unit) => return self.repair(unit, space, image),
            Err(Errno::EXIST) => space.wake(place.at..place.at + PAGE),
            // It is no longer mapped.
            Err(Errno::NOENT) => {
                space.wake(place.at..place.at + PAGE);
                self.given_up(std::iter::once(unit..unit + 1).collect(), space);
                self.table.settle(unit);
                return Put::Done;
            }
            Err(error) => return Put::Waits(0, Why::Kernel(error)),
        }
        self.returned(unit, true, space);
        Put::Done
    }

    /// Brings back some of the units that are out.
    pub(super) fn bring_back(&mut self, space: &mut impl Space, image: &impl Image) -> Filled {
        let (mut from, mut is_more) = (0, false);
        for _ in 0..PIECE {
            let Some(unit) = self.table.next_out(from) else { return Filled::To(0) };
            match self.bring(unit, space, image) {
                Put::Done => is_more = true,
                Put::Waits(_, Why::Discard) => return Filled::Again(0),
                // The other units can come back.
                Put::Waits(..) => from = unit + 1,
                Put::Gone => return Filled::Gone,
            }
        }
        // There may be more.
        self.wanted = is_more.then(|| self.table.units());
        Filled::To(0)
    }

    /// Does some of the work for pages that leave; returns `To` 1 if more is left.
    pub(super) fn evict(&mut self, space: &mut impl Space, image: &impl Image) -> Filled {
        let Some(leaving) = &mut self.leaving else { return Filled::To(0) };
        if self.all || leaving.is_shared {
            leaving.ask(0);
            return self.let_all_go(space);
        }
        let Some(batch) = &leaving.batch else { return self.freeze(space) };
        if batch.run(1).is_some() {
            return self.copy_out(space, image);
        }
        let batch = leaving.batch.take().expect("as above");
        self.take_out(&batch, space);
        Filled::To(1)
    }

    /// Abandons the batch.
    fn let_all_go(&mut self, space: &mut impl Space) -> Filled {
        let batch = self.leaving.as_ref().and_then(|leaving| leaving.batch.clone());
        let Some(batch) = batch else { return Filled::To(0) };
        for unit in batch.frozen() {
            // Who writes to what is protected still is let go then.
            let _ = self.let_write(unit, space);
        }
        if let Some(leaving) = &mut self.leaving {
            leaving.batch = None;
        }
        Filled::To(0)
    }

    /// Returns whether nothing of a unit is in the file, but for another process's page (L7).
    fn is_absent(&self, unit: u64) -> bool {
        #[cfg(test)]
        if self.is_broken(Broken::GapsAreAbsent) {
            return true;
        }
        let is_resident = self.leaving.as_ref().is_some_and(|leaving| leaving.is_resident(unit));
        !is_resident && self.is_others(unit)
    }

    /// Freezes the next units that leave.
    fn freeze(&mut self, space: &mut impl Space) -> Filled {
        let (table, now) = (&self.table, space.era());
        let Some(leaving) = &mut self.leaving else { return Filled::To(0) };
        let is_absent = |unit| table.is_out(unit) || !table.is_settled(unit);
        let units = match leaving.search(|unit| table.region(unit).units().end, is_absent, now) {
            Found::Units(units) => units,
            Found::More => return Filled::To(1),
            Found::Nothing => return Filled::To(0),
        };
        let mut frozen = Vec::with_capacity(units.len());
        for units in stretches(units.into_iter(), |unit| self.is_absent(unit)) {
            let of = self.range(&units);
            match space.protect(of.clone(), true) {
                Ok(()) => frozen.extend(units),
                Err(Errno::SRCH) => return Filled::Gone,
                Err(Errno::AGAIN) if frozen.is_empty() => return Filled::Again(0),
                // The others will be found another time.
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    // A part of it is no longer mapped.
                    let _ = space.protect(of, false);
                    let leaving = self.leaving.as_mut().expect("as above");
                    units.into_iter().for_each(|unit| leaving.gone(unit));
                }
            }
        }
        if !frozen.is_empty() {
            self.leaving.as_mut().expect("as above").freeze(frozen);
        }
        Filled::To(1)
    }

    /// Returns the addresses from the first to the last of some units.
    fn range(&self, units: &[u64]) -> Range<usize> {
        self.table.place(units[0]).at..self.table.place(units[units.len() - 1]).at + PAGE
    }

    /// Reads a part of the batch, and keeps pages that differ from the image.
    fn copy_out(&mut self, space: &mut impl Space, image: &impl Image) -> Filled {
        let mut most = PIECE as usize;
        while most > 0 {
            let batch = self.leaving.as_ref().and_then(|leaving| leaving.batch.as_ref());
            let found = batch.and_then(|batch| Some((batch, batch.run(most)?)));
            let Some((batch, places)) = found else { break };
            let units = batch.units[places.clone()].to_vec();
            most -= places.len();
            if self.copy_run(&units, space, image).is_err() {
                return Filled::Gone;
            }
            if let Some(batch) = self.leaving.as_mut().and_then(|leaving| leaving.batch.as_mut()) {
                batch.next = places.end;
            }
        }
        Filled::To(1)
    }

    /// Reads adjacent units of the batch, and keeps pages that differ from the image; fails if the
    /// guest is gone.
    fn copy_run(
        &mut self,
        units: &[u64],
        space: &mut impl Space,
        image: &impl Image,
    ) -> Result<(), ()> {
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.resize(units.len() * PAGE, 0);
        let read = space.fetch(self.range(units).start, &mut bytes);
        for (&unit, page) in units.iter().zip(bytes.chunks_exact(PAGE)) {
            let is_kept = read && !self.is_image(unit, page, image);
            let has_room = read && (!is_kept || space.keep(unit, page));
            let leaving = self.leaving.as_mut().expect("there is a batch");
            if let Some(batch) = leaving.batch.as_mut().filter(|_| is_kept && has_room) {
                batch.keep(unit);
                leaving.change(unit);
            }
            if !has_room {
                leaving.stuck();
                if let Put::Gone = self.let_write(unit, space) {
                    return Err(());
                }
            }
        }
        self.buffer = bytes;
        Ok(())
    }

    /// Returns whether a page equals the image's, so that it need not be kept (L2).
    fn is_image(&self, unit: u64, page: &[u8], image: &impl Image) -> bool {
        // A unit that was given up is zeros in a Diff snapshot that lacks it.
        let given_up = self.table.was_given_up(unit);
        if given_up || self.leaving.as_ref().is_some_and(|leaving| leaving.is_changed(unit)) {
            return false;
        }
        let place = self.table.place(unit);
        if image.is_zero(place.page) {
            return zfold_uffd::page::is_zero(page);
        }
        let mut of_image = [0; PAGE];
        image.load(place.page, &mut of_image).is_ok() && of_image == page
    }

    /// Takes units that are still frozen out of the file.
    fn take_out(&mut self, batch: &Batch, space: &mut impl Space) {
        let mut left = 0;
        for units in stretches(batch.frozen(), |unit| self.is_absent(unit)) {
            let of = self.range(&units);
            #[cfg(test)]
            if self.is_broken(Broken::PunchFirst) {
                space.punch(of.clone());
            }
            for &unit in &units {
                match batch.is_kept(unit) {
                    true => self.table.set_out(unit, true),
                    false => self.table.unsettle(unit),
                }
            }
            if space.punch(of.clone()) {
                left += units.len() as u64;
                let (leaving, now) =
                    (self.leaving.as_mut().expect("there is a batch"), space.era());
                units.into_iter().for_each(|unit| leaving.left(unit, now));
                continue;
            }
            // Nothing was taken out.
            for unit in units {
                self.table.settle(unit);
                if batch.is_kept(unit) {
                    self.table.set_out(unit, false);
                    space.forget(unit);
                }
            }
            self.leaving.as_mut().expect("as above").stuck();
            // Who writes to what is protected still is let go then.
            let _ = space.protect(of, false);
        }
        self.counts.left += left;
        space.left(left);
    }
}

/// Returns what becomes of a fault after the kernel refused a call for it. Nobody waits for a page
/// that is already mapped or unprotected; a waiting thread looks again.
fn refused(error: Errno, of: Range<usize>, space: &mut impl Space) -> Put {
    match error {
        Errno::SRCH => Put::Gone,
        Errno::AGAIN => Put::Waits(0, Why::Discard),
        _ => {
            space.wake(of);
            Put::Done
        }
    }
}
