//! Figures of a server and its guests.
//!
//! Each guest's figures have a lock of their own, which its thread takes for a moment after each
//! step, and under which no other lock is taken. So figures that are read together are consistent.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use zfold_figures::{figures, metric, state};
use zfold_store::pool::Lock;

use super::journal::Settled;
use crate::core::fault::{Given, TABLE};
use crate::core::guest::Guest;
use crate::core::regions::Region;
use crate::core::table;
use crate::images::{Image, Origin};
use crate::sys::Bell;

figures! {
    /// The guests that a server has served.
    #[non_exhaustive]
    pub struct Served;

    total guests_total: Count, "guests served or held so far",
        [state(TABLE), metric("guests_begun_total")];
    total held_total: Count, "of these, guests whose regions were refused",
        [state(TABLE), metric("guests_held_total")];
    total failed_handshakes_total: Count, "connections that failed before a guest was served",
        [state(TABLE).row("failed_handshakes"), metric("guest_failed_handshakes_total")];
    gauge fault_p50_ns: Nanoseconds, "half of the faults were answered within this",
        [state(TABLE).row("fault p50"), metric("guest_fault_p50_ns")];
    gauge fault_p99_ns: Nanoseconds, "99 % of the faults were answered within this",
        [state(TABLE).row("fault p99"), metric("guest_fault_p99_ns")];
}

/// Why the base of a guest's Diff snapshot cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoOrigin {
    /// No guest has that number.
    #[error(
        "no guest {0} is served: zfold guest stat lists the numbers of guests; a VMM must run \
            until its guest sleeps"
    )]
    Missing(u64),
    /// It is held.
    #[error("guest {0} is held, not served: no image has a page of it")]
    Held(u64),
    /// Its thread does not finish its work for it.
    #[error("guest {0} is running: pause it, and take its snapshot")]
    Busy(u64),
}

/// The state of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum GuestState {
    /// It gets pages as it asks for them.
    #[default]
    Served,
    /// Its regions were refused: it waits, and its descriptor is kept.
    Held,
    /// It has all its pages and needs no server.
    Released,
}

/// A guest.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[non_exhaustive]
pub struct GuestStats {
    /// Its number, from 1 on.
    pub number: u64,
    /// Its image.
    pub image: String,
    /// The process that connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// How long ago that was.
    pub age_seconds: u64,
    /// Its state.
    pub state: GuestState,
    /// Whether a fault has waited long.
    pub late: bool,
    /// Its pages, and those still to come from the image; of its own page size.
    pub pages: u64,
    /// See `pages`.
    pub pages_left: u64,
    /// The pages that it got.
    #[serde(skip)]
    pub given: Given,
}

/// Where a guest's pages are, the bits of each, and the image that they come from.
#[derive(Debug)]
pub(super) struct Lies {
    pub(super) regions: Vec<Region>,
    pub(super) settled: Settled,
    pub(super) image: Arc<Image>,
}

/// A guest's figures, which its thread changes and others read.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) number: u64,
    began: Instant,
    /// Unset for a guest that is held.
    lies: OnceLock<Lies>,
    /// Rings when the guest is to be filled, if there was a descriptor for it.
    fill: Option<Bell>,
    /// With twice the number of its thread's looks; one less while a look lasts.
    changing: Lock<(GuestStats, u64)>,
}

impl Figures {
    /// Returns those of a guest, which is served until its thread says otherwise.
    pub(super) fn new(number: u64, image: &str, pid: Option<i32>) -> Self {
        let stats = GuestStats { number, image: image.to_owned(), pid, ..GuestStats::default() };
        // Its thread has not taken a look yet.
        let changing = Lock::new((stats, 1));
        let (began, lies, fill) = (Instant::now(), OnceLock::new(), Bell::new().ok());
        Self { number, began, lies, fill, changing }
    }

    /// Has its thread put in all its pages.
    pub(super) fn fill(&self) {
        self.fill.iter().for_each(Bell::ring);
    }

    /// Returns the descriptor that is readable once it is to be filled.
    pub(super) fn filling(&self) -> Option<BorrowedFd<'_>> {
        self.fill.as_ref().map(|fill| fill.as_fd())
    }

    /// Sets where its pages are, once.
    pub(super) fn lies(&self, lies: Lies) {
        let said = self.lies.set(lies);
        debug_assert!(said.is_ok(), "it was said before");
    }

    /// Records that its thread has begun a look, until `set`.
    pub(super) fn look(&self) {
        self.changing.lock().1 |= 1;
    }

    /// Takes over a guest's counts.
    pub(super) fn set(&self, guest: &Guest) {
        let mut changing = self.changing.lock();
        let (stats, looks) = &mut *changing;
        *looks = looks.next_multiple_of(2);
        (stats.pages, stats.pages_left) = guest.pages();
        stats.given = guest.given;
    }

    pub(super) fn say(&self, state: GuestState) {
        self.changing.lock().0.state = state;
    }

    pub(super) fn late(&self, late: bool) {
        self.changing.lock().0.late = late;
    }

    /// Returns what a Diff snapshot of the guest builds on, including all that it gave up before
    /// the first call: its thread had read those messages, and has processed them when the look of
    /// that time ends. Until then the guest is busy; `since` is for the next call.
    pub(super) fn origin(&self, since: &mut Option<u64>) -> Result<Origin, NoOrigin> {
        let (state, looks) = {
            let changing = self.changing.lock();
            (changing.0.state, changing.1)
        };
        let since = *since.get_or_insert(looks);
        match self.lies.get() {
            _ if state == GuestState::Held => Err(NoOrigin::Held(self.number)),
            Some(Lies { regions, settled, image }) if looks % 2 == 0 || looks > since => {
                Ok(Origin::new(Arc::clone(image), table::given_up(regions, settled)))
            }
            _ => Err(NoOrigin::Busy(self.number)),
        }
    }

    /// Returns the guest as text for people.
    pub(super) fn who(&self) -> String {
        match self.stats().pid {
            Some(pid) => format!("guest {} (process {pid})", self.number),
            None => format!("guest {}", self.number),
        }
    }

    pub(super) fn stats(&self) -> GuestStats {
        let stats = self.changing.lock().0.clone();
        GuestStats { age_seconds: self.began.elapsed().as_secs(), ..stats }
    }
}

/// A server.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ServerStats {
    /// The guests that it has served.
    pub served: Served,
    /// The pages that they got, current guests included.
    pub given: Given,
    /// The current guests.
    pub guests: Vec<GuestStats>,
}

#[cfg(test)]
mod tests {
    use super::super::journal::{Journal, create};
    use super::*;
    use crate::core::table::Bits as _;
    use crate::images::{Images, images_options};

    /// The look that lasts has read what the guest gave up, and the bits do not say so yet.
    #[test]
    fn what_a_guest_gave_up_is_said_when_the_look_of_then_has_ended() {
        let options = images_options(zfold_store::CodecKind::Lz4.into(), None);
        let images = Images::new(&options).expect("a store");
        let memory = tempfile::tempfile().expect("a file");
        memory.set_len(64 << 12).expect("a length");
        images.import("web", &memory, None).expect("imported");
        let image = Arc::clone(images.claim("web").expect("an image").image());
        let region = Region { at: 4096..65 << 12, page: 0, unit: 4096, first: 0 };
        let (file, _) = create(b"").expect("a file");
        let journal = Journal::open(&file, 64).expect("begun");
        let figures = Figures::new(7, "web", None);
        let busy = |since: &mut Option<u64>| figures.origin(since).err();
        assert_eq!(busy(&mut None), Some(NoOrigin::Busy(7)), "nobody knows where it lies");
        let settled = journal.settled.clone();
        let guest = Guest::new(vec![region.clone()], Box::new(journal.settled));
        figures.lies(Lies { regions: vec![region], settled: settled.clone(), image });
        let mut since = None;
        assert_eq!(busy(&mut since), Some(NoOrigin::Busy(7)), "it was taken over, perhaps");
        settled.words()[1].store(1 << 5, std::sync::atomic::Ordering::Relaxed);
        figures.set(&guest);
        figures.look();
        assert_eq!(busy(&mut None), Some(NoOrigin::Busy(7)), "another look");
        let origin = figures.origin(&mut since).expect("that of then has ended");
        assert_eq!(origin.given_up().next(0), Some(5));
        figures.say(GuestState::Held);
        assert_eq!(busy(&mut None), Some(NoOrigin::Held(7)));
    }
}
