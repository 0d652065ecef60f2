//! Whether this process may be told of all missing pages of another, and what grants it.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};

use crate::sys::uffd::{Faults, Features, Uffd};

const DEVICE: &str = "/dev/userfaultfd";

/// A way to userfaultfd with faults of the kernel's own accesses.
#[derive(Debug, Clone)]
pub enum Access {
    /// The device could be opened.
    Device(Arc<File>),
    /// The system call is permitted, also to the program after it has dropped its rights.
    Call,
}

/// Why there is none.
#[derive(Debug)]
pub enum Denied {
    /// This kernel has no userfaultfd, or none with `UFFDIO_MOVE` (Linux 6.8).
    Kernel,
    /// It is not permitted.
    Permission,
    /// Something else.
    Other(io::Error),
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => f.write_str(
                "this kernel cannot move pages by userfaultfd; Linux 6.8 or later is needed",
            ),
            Self::Permission => write!(
                f,
                "not permitted to handle the kernel's own page faults; \
                 grant it with: sudo setfacl -m u:$USER:rw {DEVICE}"
            ),
            Self::Other(error) => write!(f, "userfaultfd: {error}"),
        }
    }
}

impl std::error::Error for Denied {}

/// Returns a way to userfaultfd, the device before the system call.
///
/// # Errors
/// What is missing; the message names the command that grants it.
pub fn access() -> Result<Access, Denied> {
    if let Ok(device) = File::options().read(true).write(true).open(DEVICE) {
        check(Uffd::open_by(&device))?;
        return Ok(Access::Device(Arc::new(device)));
    }
    check(Uffd::open(Faults::All)).map(|()| Access::Call)
}

/// What a run asks of a descriptor: to be told of changes, and of forks if that is permitted.
pub(crate) fn features() -> Features {
    let changes = Features::MOVE.with(Features::THREAD_ID).with(Features::CHANGES);
    if may_follow_forks() { changes.with(Features::FORKS) } else { changes }
}

/// Returns whether forks are told: whether this process has `CAP_SYS_PTRACE`.
pub(crate) fn may_follow_forks() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        Uffd::open(Faults::UserOnly).is_ok_and(|uffd| uffd.handshake(Features::FORKS).is_ok())
    })
}

/// Whether the descriptor does what a run needs.
fn check(opened: io::Result<Uffd>) -> Result<(), Denied> {
    let uffd = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Denied::Permission,
        Some(libc::ENOSYS) => Denied::Kernel,
        _ => Denied::Other(error),
    })?;
    uffd.handshake(features()).map_err(|_| Denied::Kernel)
}
