//! A server: what the threads of its guests share, which are the guests, figures, and the end,
//! whose bell is never hushed.
//!
//! Lock order: the list of guests, then a guest's figures. The time of the next filling has a lock
//! that is held with no other.

use std::fmt;
use std::io;
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

/// A guest server. Its guests come from a [`Front`](crate::Front), by a [`Link`](crate::Link).
pub struct Server {
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

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Server {
    /// Returns a server of these images, without sockets. `tell` gets messages for people: about
    /// peers that are refused, and faults that wait.
    ///
    /// # Errors
    /// There is no free descriptor.
    pub fn new(
        images: Arc<Images>,
        options: ServerOptions,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Ok(Self {
            images,
            options,
            latencies: Histogram::default(),
            guests: Lock::default(),
            fewer: Condvar::new(),
            due: Lock::new(Instant::now()),
            ending: Bell::new()?,
            tell: Box::new(tell),
        })
    }

    pub(super) fn report(&self, line: &str) {
        (self.tell)(line);
    }

    /// Sets how many handshakes failed in the front, which accepts guests.
    pub(crate) fn failed_before(&self, number: u64) {
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
        guests.now.retain(|one| one.number != stats.number);
        guests.given.add(&stats.given);
        drop(guests);
        self.fewer.notify_all();
    }

    /// Has all guests of an image get all their pages, at the rate of the options, after which they
    /// need no server; returns how many there are.
    #[must_use]
    pub fn fill(&self, image: &str) -> usize {
        let guests = self.guests.lock();
        let of_it = guests.now.iter().filter(|guest| guest.stats().image == image);
        of_it.map(|guest| guest.fill()).count()
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

    /// Returns what a Diff snapshot of a guest builds on, for [`Images::import_over`]. The guest
    /// must be paused: discards from now on may be included or not.
    ///
    /// # Errors
    /// [`NoOrigin`], after a moment, because a guest may be on its way from another server.
    pub fn origin(&self, number: u64) -> Result<Origin, NoOrigin> {
        let (until, mut since) = (Instant::now() + MOMENT, None);
        loop {
            let is_it = |guest: &&Arc<Figures>| guest.number == number;
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

    /// Returns the figures so far.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
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

    /// Gives each guest all its pages, and unregisters its memory, so that it needs no server from
    /// then on. Returns how many guests are left after `patience`.
    pub fn release(&self, patience: Duration) -> usize {
        self.ending.ring();
        let all = self.guests.lock();
        let waited = self.fewer.wait_timeout_while(all, patience, |all| !all.now.is_empty());
        sound(waited).0.now.len()
    }
}
