//! Why a device is not offered.

use std::io;

use thiserror::Error;

/// Queues are the bits of a word.
pub(super) const QUEUES_MAX: u16 = 64;

/// Why a device is not offered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VhostUserError {
    /// The number of queues is not from 1 to 64.
    #[error("cannot offer {0} queues (choose 1 to {QUEUES_MAX})")]
    Queues(u16),
    /// Another process serves the socket.
    #[error("another process serves this socket (end it, or choose another path)")]
    InUse,
    /// The socket cannot be made.
    #[error("cannot create the socket: {0}")]
    Socket(#[source] io::Error),
    /// The system has no thread or descriptor left.
    #[error("cannot start the server: {0}")]
    Start(#[source] io::Error),
}
