//! Whether this process may be told of all missing pages of another, and what grants it.
//!
//! What is missing is a [`Denied`], whose text ends in what grants it. Trying costs a descriptor or
//! a child of a moment. Only whether forks are reported to this process is remembered.

use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, WaitOptions, pidfd_getfd, pidfd_open, waitpid,
};

use crate::sys::proc::Status;
use crate::sys::{process, ptrace};
use zfold_uffd::{Faults, Features, Uffd};

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
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// This kernel has no userfaultfd, or none with `UFFDIO_MOVE` (Linux 6.8).
    #[error("this kernel cannot move pages by userfaultfd; Linux 6.8 or later is needed")]
    Kernel,
    /// It is not permitted.
    #[error(
        "not permitted to handle the kernel's own page faults; grant it with: \
         sudo setfacl -m u:$USER:rw {DEVICE}"
    )]
    Permission,
    /// Somebody traces this process and its children already.
    #[error(
        "this process is traced already, so its children cannot be; run it without the debugger \
            or strace"
    )]
    Traced,
    /// There may be no more processes.
    #[error("cannot start a process: {0}{remedy}", remedy = process::remedy(.0))]
    Processes(io::Error),
    /// Children may not be traced.
    #[error("not permitted to trace children (ptrace: {0})")]
    Tracing(io::Error),
    /// Descriptors may not be taken from processes that are traced.
    #[error("not permitted to take descriptors of children (pidfd_getfd: {0})")]
    Descriptors(io::Error),
    /// Filters of system calls may not be installed.
    #[error("not permitted to filter system calls of children (seccomp: {0})")]
    Filters(io::Error),
    /// Something else.
    #[error("userfaultfd: {0}")]
    Other(io::Error),
}

/// Returns a way to userfaultfd, the device before the system call.
///
/// # Errors
/// What is missing; the message names the command that grants it.
pub fn access() -> Result<Access, Denied> {
    // Nobody is sent for a right that this kernel has no use for.
    if may_move().is_some_and(|may| !may) {
        return Err(Denied::Kernel);
    }
    if let Ok(device) = File::options().read(true).write(true).open(DEVICE) {
        check(Uffd::open_by(&device))?;
        return Ok(Access::Device(Arc::new(device)));
    }
    check(Uffd::open(Faults::All)).map(|()| Access::Call)
}

/// Tries on a child of its own what a run does with a program: traces it and takes a descriptor.
/// To be called while no other thread runs.
///
/// # Errors
/// What is refused, and by whom.
///
/// # Cost
/// A fork of this process.
pub fn may_trace() -> Result<(), Denied> {
    process::may_trace_calls().map_err(Denied::Filters)?;
    let child = process::start_bell().map_err(Denied::Processes)?;
    let tried = may_trace_child(child.pid);
    process::kill(child.pid);
    // Its end is told to its parent, or to nobody where that does not want to know. A child that is
    // traced stops once more before that.
    while let Ok(Some((_, told))) = waitpid(Pid::from_raw(child.pid), WaitOptions::empty())
        && told.stopped()
    {
        // If it has ended, that is told next.
        let _ = ptrace::cont(child.pid, 0);
    }
    tried
}

fn may_trace_child(child: i32) -> Result<(), Denied> {
    let status = Status::of(child).map_err(Denied::Tracing)?;
    if status.number("TracerPid").unwrap_or(0) != 0 {
        return Err(Denied::Traced);
    }
    ptrace::seize(child, ptrace::FOLLOW).map_err(Denied::Tracing)?;
    let pid = Pid::from_raw(child).expect("a process has a positive number");
    let opened = pidfd_open(pid, PidfdFlags::empty());
    let taken = opened.and_then(|pidfd| pidfd_getfd(pidfd, 0, PidfdGetfdFlags::empty()));
    match taken {
        // The child holds none.
        Ok(_) | Err(Errno::BADF) => Ok(()),
        Err(error) => Err(Denied::Descriptors(error.into())),
    }
}

/// What a run asks of a descriptor: to be told of changes, of forks if that is permitted, and of
/// accesses if the kernel tells them.
pub(crate) fn features() -> Features {
    let changes = Features::MOVE.with(Features::THREAD_ID).with(Features::CHANGES);
    let also = [(may_follow_forks(), Features::FORKS), (sees_accesses(), Features::ACCESSES)];
    also.into_iter().filter(|(may, _)| *may).fold(changes, |all, (_, one)| all.with(one))
}

/// Returns whether runs have accesses told; never where the environment has `ZFOLD_UNSEEN`, by
/// which a test compares.
pub(crate) fn sees_accesses() -> bool {
    static SEES: OnceLock<bool> = OnceLock::new();
    *SEES.get_or_init(|| std::env::var_os("ZFOLD_UNSEEN").is_none() && may_see_accesses())
}

/// Returns whether forks are told, which takes `CAP_SYS_PTRACE`; without, a fork takes longer.
pub fn may_follow_forks() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        Uffd::open(Faults::UserOnly).is_ok_and(|uffd| uffd.handshake(Features::FORKS).is_ok())
    })
}

/// Returns whether the kernel can report which pages were accessed (Linux 7.3), for which no right
/// is needed; without, pages are chosen by their faults alone.
pub fn may_see_accesses() -> bool {
    let open = || Uffd::open(Faults::UserOnly);
    Uffd::open_with(open, Features::MOVE, Features::ACCESSES).is_ok_and(|(_, sees)| sees)
}

/// Returns whether this kernel can move pages, as far as this process may ask: to handle its own
/// faults takes no right, unless a filter denies the call.
fn may_move() -> Option<bool> {
    let uffd = Uffd::open(Faults::UserOnly).ok()?;
    Some(uffd.handshake(Features::MOVE).is_ok())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_named() {
        let error = || io::Error::from_raw_os_error(libc::EPERM);
        for (denied, word) in [
            (Denied::Tracing(error()), "ptrace"),
            (Denied::Descriptors(error()), "pidfd_getfd"),
            (Denied::Filters(error()), "seccomp"),
            (Denied::Traced, "strace"),
        ] {
            assert!(denied.to_string().contains(word), "{denied}");
        }
    }
}
