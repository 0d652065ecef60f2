//! Keeping the server out of the memory reclaim that it may serve.
//!
//! When a swap area or a file system lies on the device, the system frees memory by writing to it.
//! A server that is paged out, or whose own allocations wait for such writes, would then wait for
//! itself. Locked memory excludes the first, the state of an I/O flusher the second.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;

use crate::shared::exit::remark;

/// Locks the memory that the process touches, now and later, and marks it as one that writes
/// dirty pages. Says once what is not permitted, and how to permit it, if it matters: if this
/// system reaches a device through a file of this server's.
pub(crate) fn protect(matters: bool) {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    let missing: Vec<&str> = [
        (mlockall(flags).is_err(), "lock its memory (ulimit -l unlimited)"),
        (configure_io_flusher_behavior(true).is_err(), "be an I/O flusher (CAP_SYS_RESOURCE)"),
    ]
    .iter()
    .filter_map(|(failed, what)| failed.then_some(*what))
    .collect();
    if matters && !missing.is_empty() {
        let missing = missing.join(", nor ");
        remark(&format!(
            "this server may not {missing}: do not swap to the device; --no-mlock silences this"
        ));
    }
}
