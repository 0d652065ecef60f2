//! The userfaultfd handler: what a guest sends first, and its pages from then on.
//!
//! Lock order: the list of guests, then a guest's figures.

pub(crate) mod apart;
pub(crate) mod descriptor;
mod figures;
pub(crate) mod handshake;
pub(crate) mod journal;
pub(crate) mod prompt;
pub(crate) mod session;
mod shared;
pub(crate) mod start;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::images::{Images, Origin};
use shared::Shared;
use start::{Arrived, start};

pub use crate::core::fault::{Given, TABLE};
pub use figures::{GuestState, GuestStats, NoOrigin, Served, ServerStats};
pub use shared::ServerOptions;

/// A guest server. Its guests come from a [`Front`](crate::Front), by a [`Link`](crate::Link).
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
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
        Ok(Self { shared: Arc::new(Shared::new(images, options, Box::new(tell))?) })
    }

    /// Serves a guest that a front accepted, or that another server had.
    pub(crate) fn adopt(&self, arrived: Arrived) {
        start(&self.shared, arrived);
    }

    /// Sets how many handshakes failed in the front, which accepts guests.
    pub(crate) fn failed_before(&self, number: u64) {
        self.shared.failed_before(number);
    }

    /// Returns what a Diff snapshot of a guest builds on, for [`Images::import_over`]. The guest
    /// must be paused: discards from now on may be included or not.
    ///
    /// # Errors
    /// [`NoOrigin`], after a moment, because a guest may be on its way from another server.
    pub fn origin(&self, number: u64) -> Result<Origin, NoOrigin> {
        self.shared.origin(number)
    }

    /// Has all guests of an image get all their pages, at the rate of the options, after which they
    /// need no server; returns how many there are.
    #[must_use]
    pub fn fill(&self, image: &str) -> usize {
        self.shared.fill(image)
    }

    /// Returns the figures so far.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.shared.stats()
    }

    /// Gives each guest all its pages, and unregisters its memory, so that it needs no server from
    /// then on. Returns how many guests are left after `patience`.
    pub fn release(&self, patience: Duration) -> usize {
        self.shared.end();
        self.shared.wait(Instant::now() + patience)
    }
}
