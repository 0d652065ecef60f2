//! Pages leave a guest whose memory is a file that zfold has, too, and come back.
//!
//! A unit that is there is frozen: protected from writes. What it holds is read from the file and
//! kept, unless it is what the image has there. If it is frozen still, it is taken out of the file.
//!
//! - L1: a unit is taken out only if nothing has let a write to it go on since before it was read:
//!   whatever does takes it out of the batch first. Letting go is one of these things, and mapping
//!   what is in the file another, since the kernel forgets the protection there.
//! - L2: where a unit is, once it left, is written down before it leaves: it is out and kept, or
//!   it is unsettled, where the image has the same and the guest never gave it up (G1).
//! - L3: who waits to write to a page is woken when it is let go. Who is woken after the page has
//!   left asks for it as one that is missing.
//! - L4: what is found in the file where a unit has left is somebody else's, who maps the file,
//!   too. What was kept is written over it before the guest has it, and nothing leaves any more.
//! - L5: what the guest gave up is neither frozen nor out: nothing of before comes back.
//! - L6: a unit that is out and not in the file is with the server that took it out, and nowhere
//!   else. One that is in the file is what the guest has, whatever the bits say: a server ended in
//!   between. (Of somebody else's page a successor knows nothing: L4 holds as long as a server.)

use std::ops::Range;

use rustix::io::Errno;
use zfold_uffd::page::PAGE;

use super::fault::{Filled, Put, Why};
use super::guest::{Guest, PIECE};
use super::leaving::{Batch, Found, Leaving, RUN};
use super::space::{Image, Space, load};

/// A step that is broken.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    Nothing,
    /// What is let go is taken out all the same.
    LetGoLeaves,
    /// What is mapped anew is taken out all the same.
    LinkedLeaves,
    /// Pages are taken out before it is written down.
    PunchFirst,
    /// What was found in the place of a page that left is taken for it.
    OthersAreOurs,
    /// What is given up is still out.
    GivenUpIsOut,
}

impl Guest {
    /// Lets pages leave from now on: the guest's memory is a file, in which the pages at these
    /// addresses are. Returns how many of them are lost: they were out, with a server that was lost
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
        // Where a server was lost, pages may be protected; who waits looks again.
        for region in self.table.regions() {
            // A write to what is protected still is let go when it is told.
            let _ = space.protect(region.at.clone(), false);
        }
        self.leaving = Some(leaving);
        self.table.outs()
    }

    /// Returns what is known of pages that leave, if they can.
    pub(crate) fn leaving(&mut self) -> Option<&mut Leaving> {
        self.leaving.as_mut()
    }

    /// Returns how many pages have left and are something else than the image has.
    pub(crate) fn outs(&self) -> u64 {
        self.table.outs()
    }

    #[cfg(test)]
    fn is_broken(&self, broken: Broken) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.broken == broken)
    }

    /// Notes that a unit is there.
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

    /// Takes in that units were given up (L5).
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

    /// Returns whether what is in the file in the place of a unit is somebody else's (L4).
    pub(super) fn is_others(&self, unit: u64) -> bool {
        #[cfg(test)]
        if self.is_broken(Broken::OthersAreOurs) {
            return false;
        }
        self.leaving.is_some() && (self.table.is_out(unit) || !self.table.is_settled(unit))
    }

    /// Lets a write go on (L3).
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

    /// Maps what is in the file.
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

    /// Writes what a unit was over what somebody else has put there, and maps it (L4).
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
            // It is mapped no longer.
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

    /// Brings back a piece of all that is out.
    pub(super) fn bring_back(&mut self, space: &mut impl Space, image: &impl Image) -> Filled {
        let (mut from, mut is_more) = (0, false);
        for _ in 0..PIECE {
            let Some(unit) = self.table.next_out(from) else { return Filled::To(0) };
            match self.bring(unit, space, image) {
                Put::Done => is_more = true,
                Put::Waits(_, Why::Discard) => return Filled::Again(0),
                // The others can come back.
                Put::Waits(..) => from = unit + 1,
                Put::Gone => return Filled::Gone,
            }
        }
        // Perhaps more is left.
        self.wanted = is_more.then(|| self.table.units());
        Filled::To(0)
    }

    /// Does a piece of what is to be done for pages that leave: `To` 1 where more is left.
    pub(super) fn evict(&mut self, space: &mut impl Space, image: &impl Image) -> Filled {
        let Some(leaving) = &mut self.leaving else { return Filled::To(0) };
        if self.all || leaving.is_shared {
            leaving.ask(0);
            return self.let_all_go(space);
        }
        let Some(batch) = &leaving.batch else { return self.freeze(space) };
        if let Some(units) = batch.run(batch.next, PIECE) {
            return self.copy_out(units, space, image);
        }
        let batch = leaving.batch.take().expect("as above");
        self.take_out(&batch, space);
        Filled::To(1)
    }

    /// Gives up the batch.
    fn let_all_go(&mut self, space: &mut impl Space) -> Filled {
        let batch = self.leaving.as_ref().and_then(|leaving| leaving.batch.clone());
        let Some(Batch { units, .. }) = batch else { return Filled::To(0) };
        for unit in units {
            if self.leaving.as_ref().is_some_and(|leaving| leaving.is_frozen(unit)) {
                // Who writes to what is protected still is let go then.
                let _ = self.let_write(unit, space);
            }
        }
        if let Some(leaving) = &mut self.leaving {
            leaving.batch = None;
        }
        Filled::To(0)
    }

    /// Freezes the next units that leave.
    fn freeze(&mut self, space: &mut impl Space) -> Filled {
        let (table, now) = (&self.table, space.era());
        let Some(leaving) = &mut self.leaving else { return Filled::To(0) };
        let units = match leaving.search(|unit| table.region(unit).units().end, now) {
            Found::Units(units) => units,
            Found::More => return Filled::To(1),
            Found::Nothing => return Filled::To(0),
        };
        let of = table.place(units.start).at..table.place(units.end - 1).at + PAGE;
        match space.protect(of.clone(), true) {
            Ok(()) => leaving.freeze(units),
            Err(Errno::SRCH) => return Filled::Gone,
            Err(Errno::AGAIN) => return Filled::Again(0),
            Err(_) => {
                // A part of it is mapped no longer.
                let _ = space.protect(of, false);
                units.for_each(|unit| leaving.gone(unit));
            }
        }
        Filled::To(1)
    }

    /// Reads a piece of the batch, and keeps what is not the image's.
    fn copy_out(
        &mut self,
        units: Range<u64>,
        space: &mut impl Space,
        image: &impl Image,
    ) -> Filled {
        let first = self.table.place(units.start);
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        bytes.resize((units.end - units.start) as usize * PAGE, 0);
        let read = space.fetch(first.at, &mut bytes);
        for (unit, page) in units.clone().zip(bytes.chunks_exact(PAGE)) {
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
                    return Filled::Gone;
                }
            }
        }
        self.buffer = bytes;
        if let Some(batch) = self.leaving.as_mut().and_then(|leaving| leaving.batch.as_mut()) {
            batch.next = units.end;
        }
        Filled::To(1)
    }

    /// Returns whether a page is what the image has there, so that nothing is to be kept (L2).
    fn is_image(&self, unit: u64, page: &[u8], image: &impl Image) -> bool {
        // What was given up is zeros in a difference of the guest that does not have it.
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

    /// Takes what is frozen still out of the file.
    fn take_out(&mut self, batch: &Batch, space: &mut impl Space) {
        let (mut from, mut left) = (batch.units.start, 0);
        while let Some(units) = batch.run(from, RUN) {
            from = units.end;
            let of = self.table.place(units.start).at..self.table.place(units.end - 1).at + PAGE;
            #[cfg(test)]
            if self.is_broken(Broken::PunchFirst) {
                space.punch(of.clone());
            }
            for unit in units.clone() {
                match batch.is_kept(unit) {
                    true => self.table.set_out(unit, true),
                    false => self.table.unsettle(unit),
                }
            }
            if space.punch(of.clone()) {
                left += units.end - units.start;
                let (leaving, now) =
                    (self.leaving.as_mut().expect("there is a batch"), space.era());
                units.for_each(|unit| leaving.left(unit, now));
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

/// Returns what becomes of a fault where the kernel did not do what it asked for. Nobody waits for
/// what is mapped or let go already; who does looks again.
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
