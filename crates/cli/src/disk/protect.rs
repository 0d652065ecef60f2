//! Keeping the server out of the memory reclaim that it may serve.
//!
//! When a swap area or a file system lies on the device, the system frees memory by writing to it.
//! A server that is paged out, or whose own allocations wait for such writes, would then wait for
//! itself. Locked memory excludes the first, the state of an I/O flusher the second.

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;

use crate::shared::exit::remark;

/// Locks the memory that the process touches, now and later, and marks it as one that writes
/// dirty pages; says what is not permitted, and how to permit it.
pub(crate) fn protect() {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    match mlockall(flags) {
        Ok(()) => {}
        Err(Errno::NOMEM | Errno::PERM | Errno::AGAIN) => remark(
            "memory is not locked, so do not swap to this device: raise the limit (ulimit -l \
             unlimited, LimitMEMLOCK=infinity), or give --no-mlock to silence this",
        ),
        Err(error) => remark(&format!(
            "memory is not locked: {error}; do not swap to this device, or give --no-mlock to \
             silence this"
        )),
    }
    if let Err(error) = configure_io_flusher_behavior(true) {
        remark(&format!(
            "the system may make this server wait for its own device ({error}), so do not mount \
             it on this machine under memory pressure: grant CAP_SYS_RESOURCE, or give --no-mlock \
             to silence this"
        ));
    }
}
