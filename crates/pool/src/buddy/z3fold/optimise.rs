//! Handles a page of z3fold that lost an object: the objects left are moved together.

use crate::buddy::chunks::CHUNKS;
use crate::buddy::pins::Pins;
use crate::buddy::z3fold::Z3fold;
use crate::buddy::z3fold::layout::Buddy;

/// Smallest gap in chunks that sliding the middle object is worth.
const SLIDE_GAP_CHUNKS: usize = 3;

impl Z3fold {
    /// Optimises the layout of a page that lost an object and is on no list; lists it or releases
    /// it.
    pub(super) fn optimise(&mut self, page: u32, pins: &Pins) {
        if self.layout.buddies(page).count() == 0 || self.move_single(page, pins) {
            self.release_page(page);
        } else {
            self.slide_middle(page, pins);
            self.list(page);
        }
    }

    fn is_pinned(&self, page: u32, place: Buddy, pins: &Pins) -> bool {
        self.layout.record(page, place).is_some_and(|index| pins.contains(self.handle(index)))
    }

    /// Moves the only object of a page into another page's gap; returns whether it did.
    fn move_single(&mut self, page: u32, pins: &Pins) -> bool {
        let mut buddies = self.layout.buddies(page);
        let (Some(place), None) = (buddies.next(), buddies.next()) else {
            return false;
        };
        drop(buddies);
        let chunks = self.layout.chunks(page, place);
        let Some((target, free)) = self.unbuddied.find(chunks) else {
            return false;
        };
        if self.is_pinned(page, place, pins) {
            return false;
        }
        self.unbuddied.remove(self.layout.headers, target, free);
        let index = self.layout.headers.get(page, place.record_field());
        let new_place = self.layout.put_object(target, chunks, index);
        self.copy_object(
            self.layout.offset(page, place),
            self.layout.offset(target, new_place),
            chunks,
        );
        self.layout.take_object(page, place);
        self.objects.records().at(index).set_place(target, new_place);
        self.list(target);
        true
    }

    /// Moves the middle object where it joins the gaps of its page.
    fn slide_middle(&mut self, page: u32, pins: &Pins) {
        let middle = self.layout.chunks(page, Buddy::Middle);
        if middle == 0 || self.is_pinned(page, Buddy::Middle, pins) {
            return;
        }
        let (first, last) =
            (self.layout.chunks(page, Buddy::First), self.layout.chunks(page, Buddy::Last));
        let start = self.layout.middle_start(page);
        let from = self.layout.offset(page, Buddy::Middle);
        let first_end = self.layout.header_chunks + first;
        if first == 0 && last == 0 {
            let index = self.layout.headers.get(page, Buddy::Middle.record_field());
            self.layout.take_object(page, Buddy::Middle);
            let place = self.layout.put_object(page, middle, index);
            self.copy_object(from, self.layout.offset(page, place), middle);
            self.objects.records().at(index).set_place(page, place);
        } else if last == 0 && start - first_end >= SLIDE_GAP_CHUNKS {
            self.layout.set_middle_start(page, first_end as u32);
            self.copy_object(from, self.layout.offset(page, Buddy::Middle), middle);
        } else if first == 0 && CHUNKS - last - start - middle >= SLIDE_GAP_CHUNKS {
            self.layout.set_middle_start(page, (CHUNKS - last - middle) as u32);
            self.copy_object(from, self.layout.offset(page, Buddy::Middle), middle);
        }
    }

    fn copy_object(&mut self, from: usize, to: usize, chunks: usize) {
        self.moved_total += 1;
        // SAFETY: frames/M1: the shell holds the lock, and callers have checked that the object is
        // not pinned; the target is a gap of the page (F3).
        unsafe { self.layout.headers.frames.copy(from, to, chunks * self.layout.chunk) };
    }
}
