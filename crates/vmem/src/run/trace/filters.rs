//! Filters of system calls that a program has of its own.

use std::io;

use super::let_go;
use crate::run::sys::proc::Status;
use crate::run::sys::{ptrace, seccomp};

/// The field that counts the filters of a thread.
pub(super) const FILTERS: &str = "Seccomp_filters";

/// Has the filters of a program that has its own not be asked while calls are made in it and its
/// helper is being made; returns whether there was any.
///
/// # Errors
/// It is not permitted: what is done there might end the program. Or they forbid what a helper
/// does, which is asked of them as long as it lives.
pub(super) fn suspend_filters(tid: i32, filtered: bool) -> io::Result<bool> {
    let status = Status::of(tid)?;
    let own = match (status.number("Seccomp").unwrap_or(0), status.number(FILTERS)) {
        (0, _) => 0,
        // Strict mode, or a kernel that does not count filters.
        (1, _) | (_, None) => 1 + usize::from(filtered),
        (_, Some(filters)) => filters,
    };
    if own <= base_filters() + usize::from(filtered) {
        return Ok(false);
    }
    let may_kill =
        |error: io::Error| io::Error::new(error.kind(), "its own seccomp filter may kill a helper");
    let filters = ptrace::filters(tid).map_err(may_kill)?;
    let calls = seccomp::helpers_calls();
    if !filters.iter().all(|filter| calls.iter().all(|call| seccomp::allows(filter, call))) {
        return Err(io::Error::other("its own seccomp filter forbids what a helper does"));
    }
    ptrace::set_options(tid, ptrace::FOLLOW_UNFILTERED).map_err(may_kill)?;
    Ok(true)
}

/// Returns why a program can have no helper, if that is because of its own filters.
pub(super) fn no_helper(tid: i32, filtered: bool) -> Option<String> {
    match suspend_filters(tid, filtered) {
        Ok(false) => None,
        Ok(true) => {
            let_go(ptrace::set_options(tid, ptrace::FOLLOW));
            None
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Filters that this process itself runs under, and all that it starts.
fn base_filters() -> usize {
    let status = Status::of(std::process::id().cast_signed()).ok();
    status.and_then(|status| status.number(FILTERS)).unwrap_or(0)
}
