//! The memory that guests whose pages can leave share.
//!
//! - M1: after each look, a guest's thread reports how many of its pages are resident. While the
//!   sum is above the limit, guests are asked for pages, one after the other, until the rest is
//!   below it. No thread waits for room: pages that were asked for and have not left yet exceed the
//!   limit.
//! - M2: a guest is not asked again before it has reported the result. A guest that has nowhere to
//!   keep pages is left alone for a while.
//!
//! The lock is held for moments, and no thread waits for anything with it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use zfold_uffd::policy::{Clock, Era};

/// Most pages that a guest is asked for at once.
const PORTION: u64 = 512;

/// How long a guest that has nowhere to keep pages is left alone.
const BREAK: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Guest {
    resident: u64,
    asked: u64,
    until: Option<Instant>,
    bell: Arc<OwnedFd>,
}

#[derive(Debug, Default)]
struct State {
    /// Resident pages of all guests, and pages that are asked for.
    resident: u64,
    asked: u64,
    guests: BTreeMap<u64, Guest>,
    /// The guest that was asked last, and the newest one.
    hand: u64,
    last: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Room {
    /// In pages.
    limit: u64,
    clock: Clock,
    state: Mutex<State>,
}

impl Room {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, clock: Clock::default(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Asks guests for the pages above the limit.
    fn press(&mut self, limit: u64) {
        if self.resident <= limit {
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
                guest.asked = portion;
                (self.asked, self.hand, more) = (self.asked + portion, *number, more - portion);
                // It fails only if the counter would exceed 64 bits.
                let _ = rustix::io::write(&guest.bell, &1_u64.to_ne_bytes());
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
    /// # Errors
    /// There is no number for a descriptor.
    pub(super) fn new(room: &Arc<Room>) -> io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut state = room.state();
        state.last += 1;
        let number = state.last;
        let guest = Guest { resident: 0, asked: 0, until: None, bell: Arc::clone(&bell) };
        state.guests.insert(number, guest);
        drop(state);
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
        }
        state.press(self.room.limit);
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
        let room = Arc::new(Room::new(1000));
        let seats: Vec<_> = (0..3).map(|_| Seat::new(&room).expect("a descriptor")).collect();
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
        let room = Arc::new(Room::new(100));
        let seat = Seat::new(&room).expect("a descriptor");
        assert_eq!(seat.say(300, false, false), 201);
        assert_eq!(seat.say(300, true, true), 0);
        assert_eq!(seat.say(301, false, false), 0);
    }
}
