//! Options of a front, and the events that it reports.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

/// Where guests connect.
pub trait Sockets: Send {
    /// Makes the socket of an image.
    ///
    /// # Errors
    /// Why it cannot be made, in a line.
    fn bind(&mut self, image: &str) -> Result<(PathBuf, UnixListener), String>;

    /// Removes it.
    fn unbind(&mut self, image: &str);
}

/// What happens to guests that no server can serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// They wait, and their descriptors are kept, so that they can be listed and ended.
    #[default]
    Wait,
    /// They are killed.
    Kill,
}

/// The limits of a front.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FrontOptions {
    /// Guests and handshakes at the same time. While all places are taken, connections wait.
    pub places: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How long a guest's message may stay unread before that is reported.
    pub patience: Duration,
    /// What happens to guests that no server can serve.
    pub on_loss: OnLoss,
}

impl Default for FrontOptions {
    fn default() -> Self {
        let (handshake, patience) = (Duration::from_secs(10), Duration::from_secs(5));
        Self { places: 1024, handshake, patience, on_loss: OnLoss::Wait }
    }
}

/// An event that a front reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// All images are there, for the first time.
    Ready,
    /// A user asks for the end.
    Stop,
}

/// How a front ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its server ended with this status.
    Done(u8),
    /// The first server ended before it had all images.
    NotBegun,
    /// No server was left, and then no guest, or this many when the end was asked for.
    Lost(usize),
}
