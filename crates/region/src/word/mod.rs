//! The state of a page: one atomic word, and its transitions.
//!
//! ```text
//!   31 ........ 8   7           6        5         4        3        2 .. 0
//!   | slot or pins | protected | listed | storing | copied | waited | state |
//! ```
//!
//! | state | the page is | charged | value |
//! |:--|:--|:--|:--|
//! | Missing | nowhere: zeros | no | |
//! | Resident | in its place | yes | |
//! | Leaving | on its way to the staging area; others wait | yes | |
//! | Staged | in the staging area | yes | its slot |
//! | Stored | compressed in the store | no | |
//! | Arriving | being brought by one thread, or given up by its owner; others wait | yes | |
//! | Pinned | in its place, and stays | yes | how often |
//!
//! ```text
//!   Missing, Stored, Staged --arriving--> Arriving --settle--> Resident
//!   Resident --leaving--> Leaving --settle--> Staged (or back, if it cannot leave)
//!   Resident --dropping--> Leaving --settle--> Stored (or back, if it cannot leave)
//!   Resident --claimed--> Arriving --settle--> Resident (writes are allowed)
//!   Staged --storing--> Staged + storing --stored--> Stored
//!   Resident, Pinned --pinned--> Pinned --unpinned--> Pinned, Resident
//!   Missing, Resident, Stored, Staged --arriving--> Arriving --settle--> Missing (discard)
//! ```
//!
//! - W1: between `arriving` or `leaving` and `settle`, the thread that won the exchange is in
//!   charge of the page; no other thread moves, fills or drops it.
//! - W2: *copied*: the store still holds the page's contents of when it came from there, or when it
//!   was last in the staging area, and their digest; only if the page is not Stored. It may have
//!   changed since: digests are compared before the copy becomes the page (W4). Such a page is
//!   *listed*, so that its copy can be dropped for room, or *storing*, or about to be listed.
//! - W3: *storing*: one background thread changes what the store holds for this page. While it is
//!   set the page may be touched and arrive, but does not leave again and no other thread changes
//!   its entry.
//! - W4: a background thread makes a page Stored only if the page has been in the same slot,
//!   untouched, since the thread set *storing*, and the store holds the bytes of that slot, stored
//!   or found equal by its digest since. Otherwise the stored bytes are a copy.
//! - W5: *protected*: the page is in its place and came there protected: a thread that writes to it
//!   faults, until a thread in charge of it allows writes, or the kernel forgets the protection
//!   (leave/L1). So one that is also copied, and not storing, and that the kernel still protects
//!   equals its copy: it has been protected since it came from there. It may be dropped where it
//!   is, and the copy is the page from `dropping` on, unless the page stays.
//! - W6: *waited*: a thread sleeps until the word changes; `settle` clears it and returns that.

use crate::sync::atomic::{AtomicU32, Ordering};

/// See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    Missing,
    Resident,
    Leaving,
    Staged,
    Stored,
    Arriving,
    Pinned,
}

const STATES: [State; 7] = [
    State::Missing,
    State::Resident,
    State::Leaving,
    State::Staged,
    State::Stored,
    State::Arriving,
    State::Pinned,
];

const STATE_BITS: u32 = 3;
const STATE_MASK: u32 = (1 << STATE_BITS) - 1;
const WAITED: u32 = 1 << STATE_BITS;
const COPIED: u32 = WAITED << 1;
const STORING: u32 = COPIED << 1;
const LISTED: u32 = STORING << 1;
const PROTECTED: u32 = LISTED << 1;
const VALUE_SHIFT: u32 = STATE_BITS + 5;
const FLAGS: u32 = WAITED | COPIED | STORING | LISTED | PROTECTED;

/// Most slots of a staging area, and most pins of a page.
pub(crate) const VALUE_MAX: u32 = u32::MAX >> VALUE_SHIFT;

/// A word as it was read. Each method that returns an `Option` returns the new word, or `None` if
/// that step cannot be taken from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u32);

impl Word {
    /// State of the page.
    pub(crate) fn state(self) -> State {
        STATES.get((self.0 & STATE_MASK) as usize).copied().unwrap_or(State::Missing)
    }

    /// Slot of a Staged page, pins of a Pinned one.
    pub(crate) fn value(self) -> u32 {
        self.0 >> VALUE_SHIFT
    }

    /// A word for models.
    #[cfg(all(test, loom))]
    pub(crate) fn from_parts(state: State, value: u32, storing: bool) -> Self {
        Self(0).to(state, value).with(if storing { STORING } else { 0 })
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn is_copied(self) -> bool {
        self.0 & COPIED != 0
    }

    pub(crate) fn is_storing(self) -> bool {
        self.0 & STORING != 0
    }

    /// Whether writes to the page, which is in its place, may fault (W5).
    pub(crate) fn is_protected(self) -> bool {
        self.0 & PROTECTED != 0
    }

    /// Whether it is on the list of pages with copies, or about to be.
    pub(crate) fn is_listed(self) -> bool {
        self.0 & LISTED != 0
    }

    pub(crate) fn is_waited(self) -> bool {
        self.0 & WAITED != 0
    }

    /// The same flags with another state and value.
    fn to(self, state: State, value: u32) -> Self {
        debug_assert!(value <= VALUE_MAX);
        let flags = self.0 & FLAGS;
        Self(value << VALUE_SHIFT | flags | state as u32)
    }

    fn with(self, flags: u32) -> Self {
        Self(self.0 | flags)
    }

    fn without(self, flags: u32) -> Self {
        Self(self.0 & !flags)
    }

    /// Whether the page is in its place and may be touched.
    pub(crate) fn is_there(self) -> bool {
        matches!(self.state(), State::Resident | State::Pinned)
    }

    /// Whether the page has contents that are not in its place.
    pub(crate) fn is_away(self) -> bool {
        matches!(self.state(), State::Staged | State::Stored)
    }

    /// A thread begins to bring the page.
    pub(crate) fn arriving(self) -> Option<Self> {
        let absent = matches!(self.state(), State::Missing | State::Staged | State::Stored);
        absent.then(|| self.to(State::Arriving, 0))
    }

    /// The thread that brings the page protects it.
    pub(crate) fn protected(self) -> Option<Self> {
        (self.state() == State::Arriving).then(|| self.with(PROTECTED))
    }

    /// A thread takes charge of a page that is there, without moving it, to drop it or to allow
    /// writes.
    pub(crate) fn claimed(self) -> Option<Self> {
        let there = self.state() == State::Resident;
        there.then(|| self.to(State::Arriving, 0).without(PROTECTED))
    }

    /// A thread begins to drop a page that equals its copy, where it is, if the kernel protects it
    /// still (W5).
    pub(crate) fn dropping(self) -> Option<Self> {
        let is_copy = self.is_protected() && self.is_copied() && !self.is_storing();
        let may = self.state() == State::Resident && is_copy;
        may.then(|| self.to(State::Leaving, 0).without(COPIED))
    }

    /// A thread begins to take the page away. Not while its entry is worked on (W3).
    pub(crate) fn leaving(self) -> Option<Self> {
        let may = self.state() == State::Resident && !self.is_storing();
        may.then(|| self.to(State::Leaving, 0))
    }

    /// A background thread begins to store the page of `slot`.
    pub(crate) fn storing(self, slot: u32) -> Option<Self> {
        let may = self.state() == State::Staged && self.value() == slot && !self.is_storing();
        may.then(|| self.with(STORING))
    }

    /// The store holds the page, which was not touched meanwhile (W4).
    pub(crate) fn stored(self, slot: u32) -> Option<Self> {
        let same = self.state() == State::Staged && self.value() == slot && self.is_storing();
        same.then(|| self.to(State::Stored, 0).without(STORING | COPIED))
    }

    /// The store holds the contents that the page had in the staging area, which it has left since:
    /// a copy, unless the page was given up.
    pub(crate) fn kept(self) -> Option<Self> {
        let kept = self.is_storing() && self.state() != State::Missing;
        kept.then(|| self.without(STORING).with(COPIED | LISTED))
    }

    /// Same as `stored`, for a page of zeros, for which the store holds nothing.
    pub(crate) fn emptied(self, slot: u32) -> Option<Self> {
        self.stored(slot).map(|word| word.to(State::Missing, 0))
    }

    /// A background thread begins to drop a copy.
    pub(crate) fn freeing(self) -> Option<Self> {
        (self.is_copied() && !self.is_storing()).then(|| self.with(STORING))
    }

    /// The store no longer holds anything for the page.
    pub(crate) fn freed(self) -> Self {
        self.without(STORING | COPIED)
    }

    /// One pin more. Pinned pages can be written.
    pub(crate) fn pinned(self) -> Option<Self> {
        match self.state() {
            State::Resident if !self.is_protected() => Some(self.to(State::Pinned, 1)),
            State::Pinned if self.value() < VALUE_MAX => {
                Some(self.to(State::Pinned, self.value() + 1))
            }
            _ => None,
        }
    }

    /// One pin less.
    pub(crate) fn unpinned(self) -> Option<Self> {
        match (self.state(), self.value()) {
            (State::Pinned, 1) => Some(self.to(State::Resident, 0)),
            (State::Pinned, pins) => Some(self.to(State::Pinned, pins - 1)),
            _ => None,
        }
    }

    /// A thread is about to wait.
    pub(crate) fn waited(self) -> Option<Self> {
        let busy = matches!(self.state(), State::Leaving | State::Arriving);
        busy.then(|| self.with(WAITED))
    }

    /// The thread in charge is done (W1).
    fn settled(self, state: State, value: u32, copied: bool) -> Self {
        let word = self.to(state, value).without(WAITED);
        let word = if copied { word.with(COPIED | LISTED) } else { word };
        if state == State::Resident { word } else { word.without(PROTECTED) }
    }
}

/// The word of one page: every change is one exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a>(pub(crate) &'a AtomicU32);

/// The work that `settle` leaves to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Wake the threads that sleep on the word.
    pub wake: bool,
    /// The page was not listed before; the caller lists it.
    pub list: bool,
}

impl Page<'_> {
    /// Returns the word as it is now.
    pub(crate) fn load(self) -> Word {
        // Acquire pairs with the Release of all changes: what the one that settled the page did
        // before (bytes in place, an entry in the store) is seen.
        Word(self.0.load(Ordering::Acquire))
    }

    /// Takes a step from the word that was read; returns false if the step is impossible, or the
    /// word has changed.
    pub(crate) fn step(self, from: Word, to: Option<Word>) -> bool {
        let Some(to) = to else { return false };
        // Release pairs with the Acquire in `load`.
        let done = self.0.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed);
        done.is_ok()
    }

    /// Takes a step from the current word; returns the old word, or as an error the word from which
    /// the step is impossible.
    pub(crate) fn change(self, step: impl Fn(Word) -> Option<Word>) -> Result<Word, Word> {
        loop {
            let word = self.load();
            let Some(to) = step(word) else { return Err(word) };
            if self.step(word, Some(to)) {
                return Ok(word);
            }
        }
    }

    /// Ends this thread's charge of the page; `copied` if the store keeps its contents.
    pub(crate) fn settle(self, state: State, value: u32, copied: bool) -> Settled {
        let before = self.change(|word| Some(word.settled(state, value, copied)));
        let before = before.unwrap_or_else(|word| word);
        debug_assert!(matches!(before.state(), State::Leaving | State::Arriving), "{before:?}");
        Settled { wake: before.is_waited(), list: copied && !before.is_listed() }
    }

    /// Takes the page off the list of those with copies.
    pub(crate) fn unlist(self) {
        let _ = self.change(|word| Some(word.without(LISTED)));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
