//! How guests see the device, and why it is not offered.

use std::io;
use std::num::NonZeroUsize;
use std::thread;

use thiserror::Error;
use zfold_pool::builders;

/// Queues are the bits of a word.
pub(super) const QUEUES_MAX: u16 = 64;
pub(super) const QUEUE_SIZE_MAX: u16 = 1024;

/// How guests see the device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VhostUserOptions {
    /// Queues, 1 to 64, each with a thread. Monitors refuse a device with fewer than they want,
    /// which by default is one for each of the guest's CPUs.
    pub queues: u16,
    /// Entries of the largest queue a monitor may set up: a power of two from 4 to 1024.
    pub queue_size: u16,
    /// The disk's serial number for the guest, of which 20 bytes count.
    pub serial: String,
}

impl Default for VhostUserOptions {
    /// A queue for each CPU of this machine, of any size, and the serial number `zfold`.
    fn default() -> Self {
        let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let queues = u16::try_from(cpus).unwrap_or(QUEUES_MAX).min(QUEUES_MAX);
        Self { queues, queue_size: QUEUE_SIZE_MAX, serial: "zfold".into() }
    }
}

impl VhostUserOptions {
    builders! {
        with_queues => queues: u16,
        with_queue_size => queue_size: u16,
        with_serial => serial: impl Into<String>,
    }
}

/// Why a device is not offered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VhostUserError {
    /// The number of queues is not from 1 to 64.
    #[error("cannot offer {0} queues (choose 1 to {QUEUES_MAX})")]
    Queues(u16),
    /// The queue size is not a power of two from 4 to 1024.
    #[error(
        "cannot offer a queue of {0} entries (choose a power of two from 4 to {QUEUE_SIZE_MAX})"
    )]
    QueueSize(u16),
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
