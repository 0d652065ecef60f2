//! How guests see the device, and why it is not offered.

use std::error::Error;
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::thread;

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
    /// What the guest reads as the disk's serial number, of which 20 bytes count.
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
#[derive(Debug)]
#[non_exhaustive]
pub enum VhostUserError {
    /// The number of queues is not from 1 to 64.
    Queues(u16),
    /// The queue size is not a power of two from 4 to 1024.
    QueueSize(u16),
    /// Another process serves the socket.
    InUse,
    /// The socket cannot be made.
    Socket(io::Error),
    /// The system has no thread or descriptor left.
    Start(io::Error),
}

impl fmt::Display for VhostUserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queues(queues) => {
                write!(f, "cannot offer {queues} queues (choose 1 to {QUEUES_MAX})")
            }
            Self::QueueSize(size) => write!(
                f,
                "cannot offer a queue of {size} entries (choose a power of two from 4 to \
                 {QUEUE_SIZE_MAX})"
            ),
            Self::InUse => {
                write!(f, "another process serves this socket (end it, or choose another path)")
            }
            Self::Socket(error) => write!(f, "cannot create the socket: {error}"),
            Self::Start(error) => write!(f, "cannot start the server: {error}"),
        }
    }
}

impl Error for VhostUserError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Socket(error) | Self::Start(error) => Some(error),
            _ => None,
        }
    }
}
