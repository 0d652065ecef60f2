//! The memory that guests whose pages can leave share.
//!
//! - M1: after each look, a guest's thread reports how many of its pages are resident. While the
//!   sum is above the limit and that is not paused, guests are asked for pages, one after the
//!   other, until the rest is below it. No thread waits for room: pages that were asked for and
//!   have not left yet exceed the limit.
//! - M2: a guest is not asked again before it has reported the result. A guest that has nowhere to
//!   keep pages is left alone for a while.
//! - M3: a guest that is told to page out is asked for all of its pages, whatever the limit, until
//!   it has none or was asked as often as it takes for no page to be spared (policy/P1).
//!
//! The lock is held for moments, and no thread waits for anything with it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use zfold_uffd::policy::{Clock, Era, Haste};

/// Most pages that a guest is asked for at once.
const PORTION: u64 = 512;

/// How long a guest that has nowhere to keep pages is left alone.
const BREAK: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Guest {
    resident: u64,
    asked: u64,
    until: Option<Instant>,
    /// How often it is still to be asked for all of its pages (M3).
    all: usize,
    bell: Arc<OwnedFd>,
}

impl Guest {
    fn ask(&mut self, pages: u64) {
        self.asked = pages;
        // It fails only if the counter would exceed 64 bits.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

#[derive(Debug, Default)]
struct State {
    /// In pages; without a limit, no pages leave to meet it.
    limit: Option<u64>,
    is_paused: bool,
    /// Resident pages of all guests, and pages that are asked for.
    resident: u64,
    asked: u64,
    guests: BTreeMap<u64, Guest>,
    /// The guest that was asked last to meet the limit.
    hand: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Room {
    clock: Clock,
    state: Mutex<State>,
}

impl Room {
    /// Returns a room with a limit in pages.
    pub(super) fn new(limit: Option<u64>, is_paused: bool) -> Self {
        let state = State { limit, is_paused, ..State::default() };
        Self { state: Mutex::new(state), ..Self::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_limit(&self) -> bool {
        self.state().limit.is_some()
    }

    /// Changes the limit, in pages.
    pub(super) fn set_limit(&self, limit: Option<u64>) {
        let mut state = self.state();
        state.limit = limit;
        state.press();
    }

    /// Lets no pages leave to meet the limit, or lets them leave again.
    pub(super) fn pause(&self, is_paused: bool) {
        let mut state = self.state();
        state.is_paused = is_paused;
        state.press();
    }

    /// Tells a guest to page out (M3); returns whether its pages can leave.
    pub(super) fn page_out(&self, number: u64) -> bool {
        let mut state = self.state();
        let Some(guest) = state.guests.get_mut(&number) else { return false };
        // What it was asked for before does not count.
        guest.all = Haste::ROUNDS + usize::from(guest.asked > 0);
        state.press();
        true
    }

    /// Returns whether a guest is still to page out.
    pub(super) fn is_paging_out(&self, number: u64) -> bool {
        let state = self.state();
        state.guests.get(&number).is_some_and(|guest| guest.all > 0)
    }
}

impl State {
    /// Asks guests for their pages (M3), and for the pages above the limit.
    fn press(&mut self) {
        for guest in self.guests.values_mut().filter(|guest| guest.all > 0 && guest.asked == 0) {
            if guest.resident == 0 {
                guest.all = 0;
                continue;
            }
            guest.ask(guest.resident);
            self.asked += guest.asked;
        }
        let Some(limit) = self.limit else { return };
        if self.is_paused || self.resident <= limit {
            return;
        }
        let mut more = (self.resident - (limit - limit / 64)).saturating_sub(self.asked);
        let now = Instant::now();
        let hand = self.hand;
        let (before, behind): (Vec<_>, Vec<_>) =
            self.guests.iter_mut().partition(|(number, _)| **number <= hand);
        for (number, guest) in behind.into_iter().chain(before) {
            if more == 0 {
                return;
            }
            let can = guest.asked == 0 && guest.until.is_none_or(|until| until <= now);
            let portion = guest.resident.min(PORTION).min(more);
            if can && portion > 0 {
                guest.ask(portion);
                (self.asked, self.hand, more) = (self.asked + portion, *number, more - portion);
            }
        }
    }
}

/// A guest's seat in the room; dropping it leaves the room.
#[derive(Debug)]
pub(super) struct Seat {
    room: Arc<Room>,
    number: u64,
    bell: Arc<OwnedFd>,
}

impl Seat {
    /// Returns the seat of the guest with this number.
    ///
    /// # Errors
    /// There is no number for a descriptor.
    pub(super) fn new(room: &Arc<Room>, number: u64) -> io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let guest = Guest { resident: 0, asked: 0, until: None, all: 0, bell: Arc::clone(&bell) };
        room.state().guests.insert(number, guest);
        Ok(Self { room: Arc::clone(room), number, bell })
    }

    /// Reports how many pages are resident; `done` if the pages asked for have left or cannot
    /// leave, and `stuck` if there is nowhere to keep them. Returns how many pages are asked for.
    pub(super) fn say(&self, resident: u64, done: bool, stuck: bool) -> u64 {
        let mut state = self.room.state();
        let state = &mut *state;
        let Some(guest) = state.guests.get_mut(&self.number) else { return 0 };
        state.resident = state.resident - guest.resident + resident;
        guest.resident = resident;
        if done {
            state.asked -= std::mem::take(&mut guest.asked);
            guest.until = stuck.then(|| Instant::now() + BREAK);
            // What could not leave now stays.
            guest.all = if stuck { 0 } else { guest.all.saturating_sub(1) };
        }
        state.press();
        state.guests[&self.number].asked
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Clears the wake-up.
    pub(super) fn heard(&self) {
        // There may have been none.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    pub(super) fn era(&self) -> Era {
        self.room.clock.now()
    }

    /// Records that pages have left.
    pub(super) fn left(&self, pages: u64) {
        let resident = self.room.state().resident;
        self.room.clock.advance(pages as usize, resident as usize);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.room.state();
        if let Some(guest) = state.guests.remove(&self.number) {
            state.resident -= guest.resident;
            state.asked -= guest.asked;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(seat: &Seat) -> bool {
        rustix::io::read(seat.bell(), &mut [0; 8]).is_ok()
    }

    #[test]
    fn guests_are_asked_one_after_the_other_for_what_is_too_much() {
        let room = Arc::new(Room::new(Some(1000), false));
        let seats = [1, 2, 3].map(|number| Seat::new(&room, number).expect("a descriptor"));
        assert_eq!(seats[0].say(900, false, false), 0);
        assert_eq!(seats[1].say(100, false, false), 0);
        // 16 more than 1,000, and 15 so that it is not the same again at once.
        assert_eq!(seats[2].say(16, false, false), 0);
        assert!(rings(&seats[0]) && !rings(&seats[1]) && !rings(&seats[2]));
        assert_eq!(seats[0].say(900, false, false), 31, "once (M2)");
        assert_eq!(seats[1].say(700, false, false), 512);
        assert_eq!(seats[0].say(869, true, false), 72, "the others are asked already");
        assert!(rings(&seats[2]), "whose turn it is");
        // What has left is no longer asked for.
        assert_eq!(seats[1].say(188, true, false), 0);
        assert_eq!(seats[2].say(16, false, false), 16);
        drop(seats);
        let state = room.state();
        assert_eq!((state.resident, state.asked), (0, 0));
    }

    #[test]
    fn who_has_nowhere_to_keep_pages_is_left_alone() {
        let room = Arc::new(Room::new(Some(100), false));
        let seat = Seat::new(&room, 1).expect("a descriptor");
        assert_eq!(seat.say(300, false, false), 201);
        assert_eq!(seat.say(300, true, true), 0);
        assert_eq!(seat.say(301, false, false), 0);
    }

    #[test]
    fn a_limit_can_change_and_pause() {
        let room = Arc::new(Room::new(Some(100), true));
        let seat = Seat::new(&room, 1).expect("a descriptor");
        assert_eq!(seat.say(300, false, false), 0);
        room.pause(false);
        assert!(rings(&seat));
        assert_eq!(seat.say(300, false, false), 201);
        room.pause(true);
        assert_eq!(seat.say(99, true, false), 0);
        room.set_limit(Some(50));
        assert_eq!(seat.say(99, false, false), 0, "it is paused");
        room.pause(false);
        assert_eq!(seat.say(99, false, false), 49);
        room.set_limit(None);
        assert_eq!(seat.say(90, true, false), 0);
    }

    #[test]
    fn who_is_told_to_page_out_is_asked_for_all_until_none_is_spared() {
        let room = Arc::new(Room::new(None, true));
        let seats = [7, 9].map(|number| Seat::new(&room, number).expect("a descriptor"));
        assert_eq!(seats.each_ref().map(|seat| seat.say(2000, false, false)), [0, 0]);
        assert!(!room.page_out(8) && room.page_out(7) && !room.is_paging_out(9));
        assert!(rings(&seats[0]) && !rings(&seats[1]));
        assert_eq!(seats[0].say(2000, false, false), 2000);
        assert_eq!(seats[0].say(30, true, false), 30, "which were spared");
        assert!(room.is_paging_out(7));
        assert_eq!(seats[0].say(0, true, false), 0);
        assert!(!room.is_paging_out(7));
        // Pages come back as fast as they leave.
        assert!(room.page_out(9));
        let mut rounds = 0;
        while seats[1].say(2000, rounds > 0, false) > 0 {
            rounds += 1;
        }
        assert!(!room.is_paging_out(9) && rounds == Haste::ROUNDS);
        assert!(room.page_out(9));
        assert_eq!(seats[1].say(2000, false, false), 2000);
        assert_eq!(seats[1].say(2000, true, true), 0, "there is nowhere to keep them");
        drop(seats);
        let state = room.state();
        assert_eq!((state.resident, state.asked), (0, 0));
    }
}
