//! What a server and its guests have done.
//!
//! Each guest's figures have a lock of their own, which its thread takes for a moment after each
//! step, and under which nobody takes another one: figures that are read together belong together.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::core::guest::{Counts, Guest};

/// What becomes of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuestState {
    /// It gets pages as it asks for them.
    Served,
    /// Its regions were refused: it waits, and its descriptor is kept.
    Held,
    /// It has all of its pages and needs nobody.
    Released,
}

/// A guest.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GuestStats {
    /// Its number, from 1 on.
    pub number: u64,
    /// Its image.
    pub image: String,
    /// The process that connected.
    pub pid: Option<i32>,
    /// How long ago that was.
    pub age: Duration,
    /// What becomes of it.
    pub state: GuestState,
    /// Its pages, and those for which the image still counts; of its own page size.
    pub pages: u64,
    /// See `pages`.
    pub pages_left: u64,
    /// Faults that were answered.
    pub faults_total: u64,
    /// Pages of 4 KiB that were copied into it.
    pub copied_pages_total: u64,
    /// Pages of zeros that were mapped.
    pub zero_pages_total: u64,
    /// Of both, those that nobody had asked for yet.
    pub beforehand_pages_total: u64,
    /// Messages of memory that it gave up.
    pub discards_total: u64,
    /// Times that the kernel took nothing while memory was given up.
    pub retries_total: u64,
    /// Faults outside of the regions that it named, which nobody answers.
    pub strays_total: u64,
    /// Whether a fault has waited for long.
    pub is_late: bool,
}

#[derive(Clone, Copy, Debug)]
struct Changing {
    state: GuestState,
    pages: u64,
    left: u64,
    counts: Counts,
    strays: u64,
    late: bool,
}

/// A guest's figures, which its thread changes and others read.
#[derive(Debug)]
pub(super) struct Figures {
    number: u64,
    image: String,
    pid: Option<i32>,
    began: Instant,
    changing: Mutex<Changing>,
}

impl Figures {
    /// Returns those of a guest that is served, until its thread says something else.
    pub(super) fn new(number: u64, image: &str, pid: Option<i32>) -> Self {
        let (state, counts, strays, late) = (GuestState::Served, Counts::default(), 0, false);
        let changing = Changing { state, pages: 0, left: 0, counts, strays, late };
        let (image, began) = (image.to_owned(), Instant::now());
        Self { number, image, pid, began, changing: Mutex::new(changing) }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn image(&self) -> &str {
        &self.image
    }

    fn changing(&self) -> MutexGuard<'_, Changing> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what a guest has counted.
    pub(super) fn set(&self, guest: &Guest) {
        let mut changing = self.changing();
        (changing.pages, changing.left) = guest.pages();
        changing.counts = guest.counts;
        changing.strays = guest.strays;
    }

    pub(super) fn say(&self, state: GuestState) {
        self.changing().state = state;
    }

    pub(super) fn late(&self, late: bool) {
        self.changing().late = late;
    }

    /// Returns the guest for people.
    pub(super) fn who(&self) -> String {
        match self.pid {
            Some(pid) => format!("guest {} (process {pid})", self.number),
            None => format!("guest {}", self.number),
        }
    }

    pub(super) fn stats(&self) -> GuestStats {
        let Changing { state, pages, left, counts, strays, late } = *self.changing();
        GuestStats {
            number: self.number,
            image: self.image.clone(),
            pid: self.pid,
            age: self.began.elapsed(),
            state,
            pages,
            pages_left: left,
            faults_total: counts.faults,
            copied_pages_total: counts.copied,
            zero_pages_total: counts.zeroed,
            beforehand_pages_total: counts.beforehand,
            discards_total: counts.discards,
            retries_total: counts.retries,
            strays_total: strays,
            is_late: late,
        }
    }
}

/// A server.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ServerStats {
    /// Guests that were served or held, those of now included.
    pub guests_total: u64,
    /// Guests that were held.
    pub held_total: u64,
    /// Connections that came to nothing.
    pub failed_handshakes_total: u64,
    /// Faults that were answered.
    pub faults_total: u64,
    /// Pages of 4 KiB that were copied.
    pub copied_pages_total: u64,
    /// Pages of zeros that were mapped.
    pub zero_pages_total: u64,
    /// Of both, those that nobody had asked for yet.
    pub beforehand_pages_total: u64,
    /// Time between the reading of a fault and its answer.
    pub fault_p50_ns: u64,
    /// See `fault_p50_ns`.
    pub fault_p99_ns: u64,
    /// The guests of now.
    pub guests: Vec<GuestStats>,
}

impl ServerStats {
    /// Adds what a guest has done.
    pub(super) fn add(&mut self, guest: &GuestStats) {
        self.faults_total += guest.faults_total;
        self.copied_pages_total += guest.copied_pages_total;
        self.zero_pages_total += guest.zero_pages_total;
        self.beforehand_pages_total += guest.beforehand_pages_total;
    }
}
