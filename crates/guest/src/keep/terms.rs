//! What a front is asked for, and what it says.

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

/// What becomes of guests that nobody can serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// They wait, and their descriptors are kept: they can be seen, and ended.
    #[default]
    Wait,
    /// They are killed.
    Kill,
}

/// What a front grants.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FrontOptions {
    /// Guests and hand-shakes at a time. Where all places are taken, connections wait.
    pub places: usize,
    /// How long a hand-shake may take.
    pub handshake: Duration,
    /// How long a guest may ask for something without anybody looking, before that is reported.
    pub patience: Duration,
    /// What becomes of guests that nobody can serve.
    pub on_loss: OnLoss,
}

impl Default for FrontOptions {
    fn default() -> Self {
        let (handshake, patience) = (Duration::from_secs(10), Duration::from_secs(5));
        Self { places: 1024, handshake, patience, on_loss: OnLoss::Wait }
    }
}

/// What a front hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// All images are there, for the first time.
    Ready,
    /// Somebody asks for the end.
    Stop,
}

/// How a front ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As its server said, with this status.
    Done(u8),
    /// The first server ended before it had all images.
    NotBegun,
    /// No server was left, and then no guest, or so many when the end was asked for.
    Lost(usize),
}
