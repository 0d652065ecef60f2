//! The userfaultfd handler: sockets of images, and the guests that connect to them.
//!
//! Lock order: the sockets, then the images' catalog; the list of guests, then a guest's figures.

mod accept;
mod descriptor;
mod figures;
mod handshake;
mod session;
mod shared;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

use crate::images::Images;
use shared::Shared;

pub use figures::{GuestState, GuestStats, ServerStats};
pub use shared::ServerOptions;

/// A server of guests.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listening: Mutex<BTreeMap<String, Listening>>,
}

/// A socket at which guests of an image are accepted.
#[derive(Debug)]
struct Listening {
    listener: UnixListener,
    closed: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Listening {
    /// Accepts nobody from now on. Who has connected already is told by the end of the connection.
    fn close(self) {
        // Release: pairs with the thread's look, which the shutdown below causes.
        self.closed.store(true, Ordering::Release);
        // It is open.
        let _ = shutdown(&self.listener, Shutdown::Both);
        // A panic there was reported.
        let _ = self.thread.join();
    }
}

impl Server {
    /// Returns a server of these images at which nobody can connect yet. `tell` is given lines for
    /// people: about peers that are refused, and faults that wait.
    ///
    /// # Errors
    /// There is no number for a descriptor.
    pub fn new(
        images: Arc<Images>,
        options: ServerOptions,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(images, options, Box::new(tell))?);
        Ok(Self { shared, listening: Mutex::default() })
    }

    /// Accepts guests of an image at a socket. Who may connect is a matter of its file.
    ///
    /// # Errors
    /// No thread can be started, or no descriptor made.
    pub fn listen(&self, image: &str, listener: UnixListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let closed = Arc::new(AtomicBool::new(false));
        let (shared, name, mine, flag) = (
            Arc::clone(&self.shared),
            image.to_owned(),
            listener.try_clone()?,
            Arc::clone(&closed),
        );
        let run = move || accept::accept(&shared, &name, &mine, &flag);
        let thread = Builder::new().name("zfold-accept".to_owned()).spawn(run)?;
        let mut all = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.insert(image.to_owned(), Listening { listener, closed, thread });
        drop(all);
        before.into_iter().for_each(Listening::close);
        Ok(())
    }

    /// Accepts no guest of an image from now on.
    pub fn close(&self, image: &str) {
        let mut all = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.remove(image);
        drop(all);
        found.into_iter().for_each(Listening::close);
    }

    /// Returns what was done so far.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.shared.stats()
    }

    /// Accepts nobody, gives each guest all of its pages, and leaves its memory to the kernel, so
    /// that it needs nobody from then on. Returns how many guests are left after so long.
    pub fn release(&self, patience: Duration) -> usize {
        let mut all = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        let found = std::mem::take(&mut *all);
        drop(all);
        found.into_values().for_each(Listening::close);
        self.shared.end();
        self.shared.wait(Instant::now() + patience)
    }
}
