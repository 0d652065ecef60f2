//! The userfaultfd handler: sockets of images, and the guests that connect to them.
//!
//! Lock order: the sockets, then the images' catalog; the list of guests, then a guest's figures.

pub(crate) mod accept;
pub(crate) mod apart;
pub(crate) mod descriptor;
mod figures;
pub(crate) mod handshake;
pub(crate) mod journal;
pub(crate) mod listening;
mod origin;
pub(crate) mod prompt;
pub(crate) mod session;
mod shared;
pub(crate) mod start;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::images::{Images, Origin};
use accept::Reception;
use handshake::Offer;
use listening::Listening;
use shared::Shared;
use start::{Arrived, start};
use zfold_store::pool::Lock;

pub use figures::{Given, GuestState, GuestStats, Served, ServerStats, TABLE};
pub use origin::NoOrigin;
pub use shared::ServerOptions;

/// A guest server.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listening: Lock<BTreeMap<String, Listening>>,
}

/// Guests that this server accepts itself.
struct Received(Arc<Shared>);

impl Reception for Received {
    fn handshake(&self) -> Duration {
        self.0.options.handshake
    }

    fn take_place(&self, _: &str) -> bool {
        self.0.take_place()
    }

    fn has_place(&self, _: &str) -> bool {
        self.0.has_place()
    }

    fn leave_place(&self, _: &str) {
        self.0.leave_place();
    }

    fn failed(&self, _: &str) {
        self.0.failed();
    }

    fn report(&self, line: &str) {
        self.0.report(line);
    }

    fn receive(&self, image: &str, offer: Offer) {
        start(&self.0, Arrived::new(image, offer));
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
        let shared = Arc::new(Shared::new(images, options, Box::new(tell))?);
        Ok(Self { shared, listening: Lock::default() })
    }

    /// Accepts guests of an image at a socket. The permissions of its file say who may connect.
    ///
    /// # Errors
    /// No thread can be started, or no descriptor made.
    pub fn listen(&self, image: &str, listener: UnixListener) -> io::Result<()> {
        let listening = Listening::start(image, listener, Received(Arc::clone(&self.shared)))?;
        let mut all = self.listening.lock();
        let before = all.insert(image.to_owned(), listening);
        drop(all);
        before.into_iter().for_each(Listening::close);
        Ok(())
    }

    /// Serves a guest that a front accepted, or that another server had.
    pub(crate) fn adopt(&self, arrived: Arrived) {
        self.shared.add_place();
        start(&self.shared, arrived);
    }

    /// Sets how many handshakes failed in the front, which accepts guests.
    pub(crate) fn failed_before(&self, number: u64) {
        self.shared.failed_before(number);
    }

    /// Stops accepting guests of an image.
    pub fn close(&self, image: &str) {
        let mut all = self.listening.lock();
        let found = all.remove(image);
        drop(all);
        found.into_iter().for_each(Listening::close);
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

    /// Stops accepting guests, gives each guest all its pages, and unregisters its memory, so that
    /// it needs no server from then on. Returns how many guests are left after `patience`.
    pub fn release(&self, patience: Duration) -> usize {
        let mut all = self.listening.lock();
        let found = std::mem::take(&mut *all);
        drop(all);
        found.into_values().for_each(Listening::close);
        self.shared.end();
        self.shared.wait(Instant::now() + patience)
    }
}
