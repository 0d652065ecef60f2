//! The state that the threads of a server share: guests, figures, and the end, whose bell is never
//! hushed.
//!
//! Lock order: the list of guests, then a guest's figures. The time of the next filling has a lock
//! that is held with no other.

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Condvar};
use std::thread;
use std::time::{Duration, Instant};

use zfold_figures::Histogram;
use zfold_store::pool::{Lock, sound};
use zfold_uffd::page::PAGE;

use super::figures::{Figures, GuestState, NoOrigin, Served, ServerStats};
use crate::core::fault::Given;
use crate::images::{Images, Origin};
use crate::sys::Bell;

/// How long to wait for a look at a guest to end, or for a guest to arrive from another server,
/// before an error is returned; and the wait between two checks.
const MOMENT: Duration = Duration::from_secs(1);
const BREATH: Duration = Duration::from_millis(1);

/// The limits of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// How long a fault may wait before it is reported.
    pub patience: Duration,
    /// A VMM whose regions are refused is killed; otherwise it waits.
    pub kills_refused: bool,
    /// Guests get all their pages, and then need no server.
    pub fills: bool,
    /// Bytes that all guests together get in a second by that.
    pub fill_rate: u64,
    /// The first guest of an image is recorded.
    pub records_first: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
            kills_refused: false,
            fills: false,
            fill_rate: 256 << 20,
            records_first: false,
        }
    }
}

/// The current guests, the number of earlier ones, and what those got.
#[derive(Debug, Default)]
struct Guests {
    now: Vec<Arc<Figures>>,
    before: Served,
    given: Given,
}

/// See the [module](self).
pub(super) struct Shared {
    pub(super) images: Arc<Images>,
    pub(super) options: ServerOptions,
    /// How long faults waited, in nanoseconds.
    pub(super) latencies: Histogram,
    guests: Lock<Guests>,
    /// Notified when a guest ends.
    fewer: Condvar,
    /// When the next pages may be put in that no guest has asked for, to fill it.
    due: Lock<Instant>,
    /// Rings at the end of the server.
    ending: Bell,
    tell: Box<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(
        images: Arc<Images>,
        options: ServerOptions,
        tell: Box<dyn Fn(&str) + Send + Sync>,
    ) -> std::io::Result<Self> {
        Ok(Self {
            images,
            options,
            latencies: Histogram::default(),
            guests: Lock::default(),
            fewer: Condvar::new(),
            due: Lock::new(Instant::now()),
            ending: Bell::new()?,
            tell,
        })
    }

    pub(super) fn report(&self, line: &str) {
        (self.tell)(line);
    }

    /// Sets how many handshakes failed in the front.
    pub(super) fn failed_before(&self, number: u64) {
        self.guests.lock().before.failed_handshakes_total = number;
    }

    /// Enters a guest.
    pub(super) fn enter(&self, image: &str, number: u64, pid: Option<i32>) -> Arc<Figures> {
        let figures = Arc::new(Figures::new(number, image, pid));
        if self.options.fills {
            figures.fill();
        }
        let mut guests = self.guests.lock();
        guests.before.guests_total += 1;
        guests.now.push(Arc::clone(&figures));
        figures
    }

    /// Records that a guest is not served, but held.
    pub(super) fn hold(&self, figures: &Figures) {
        figures.say(GuestState::Held);
        self.guests.lock().before.held_total += 1;
    }

    /// Removes a guest that has ended from the list.
    pub(super) fn ended(&self, figures: &Figures) {
        let stats = figures.stats();
        let mut guests = self.guests.lock();
        guests.now.retain(|one| one.number() != stats.number);
        guests.given.add(&stats.given);
        drop(guests);
        self.fewer.notify_all();
    }

    /// Has all guests of an image filled; returns how many there are.
    pub(super) fn fill(&self, image: &str) -> usize {
        let guests = self.guests.lock();
        guests.now.iter().filter(|guest| guest.image() == image).map(|guest| guest.fill()).count()
    }

    /// Returns how long a guest waits that was filled by so many pages.
    pub(super) fn pace(&self, pages: u64) -> Duration {
        let mut due = self.due.lock();
        let now = Instant::now();
        let bytes = pages * PAGE as u64;
        let rate = self.options.fill_rate.max(1);
        *due = (*due).max(now) + Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate);
        due.duration_since(now)
    }

    /// Returns what a Diff snapshot of a guest builds on.
    pub(super) fn origin(&self, number: u64) -> Result<Origin, NoOrigin> {
        let (until, mut since) = (Instant::now() + MOMENT, None);
        loop {
            let is_it = |guest: &&Arc<Figures>| guest.number() == number;
            let guest = self.guests.lock().now.iter().find(is_it).cloned();
            let found = guest.map(|guest| guest.origin(&mut since));
            match found.unwrap_or(Err(NoOrigin::Missing(number))) {
                Err(NoOrigin::Missing(_) | NoOrigin::Busy(_)) if Instant::now() < until => {
                    thread::sleep(BREATH);
                }
                found => return found,
            }
        }
    }

    pub(super) fn stats(&self) -> ServerStats {
        let guests = self.guests.lock();
        let (before, mut given) = (guests.before, guests.given);
        let now: Vec<_> = guests.now.iter().map(|figures| figures.stats()).collect();
        drop(guests);
        now.iter().for_each(|guest| given.add(&guest.given));
        let waited = self.latencies.quantiles();
        let served = Served { fault_p50_ns: waited.p50, fault_p99_ns: waited.p99, ..before };
        ServerStats { served, given, guests: now }
    }

    /// Returns the descriptor that is readable once the server ends.
    pub(super) fn ending(&self) -> BorrowedFd<'_> {
        self.ending.as_fd()
    }

    /// Tells all threads of the end.
    pub(super) fn end(&self) {
        self.ending.ring();
    }

    /// Waits until only held guests are left; returns how many guests are left.
    pub(super) fn wait(&self, until: Instant) -> usize {
        let mut guests = self.guests.lock();
        while !guests.now.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.fewer.wait_timeout(guests, left);
            guests = sound(waited).0;
        }
        guests.now.len()
    }
}
