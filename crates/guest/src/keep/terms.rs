//! Options of a front, and the events that it reports.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

/// Makes the socket of an image: where it is, the socket, and what removes it when it is dropped.
pub type Bind =
    Box<dyn FnMut(&str) -> Result<(PathBuf, UnixListener, Box<dyn Send>), String> + Send>;

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
    /// Guests that no server can serve are killed; otherwise they wait, and their descriptors are
    /// kept, so that they can be listed and ended.
    pub kills_lost: bool,
}

impl Default for FrontOptions {
    fn default() -> Self {
        let (handshake, patience) = (Duration::from_secs(10), Duration::from_secs(5));
        Self { places: 1024, handshake, patience, kills_lost: false }
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
