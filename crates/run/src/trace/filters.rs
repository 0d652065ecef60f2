//! A program's own seccomp filters, and children that would have zfold's filter without a tracer.
//!
//! `COMMON` is set once; only the tracer's thread uses the rest.

use std::io;
use std::sync::OnceLock;

use super::{calls, let_go};
use crate::sys::proc::Status;
use crate::sys::ptrace::Syscall;
use crate::sys::{ptrace, seccomp};

/// The field that counts the filters of a thread.
pub(super) const FILTERS: &str = "Seccomp_filters";

/// Suspends the filters of a program that has its own while calls are made in it and its helper is
/// being made; returns whether there were any.
///
/// # Errors
/// It is not permitted, so the calls might end the program. Or the filters forbid a helper's calls,
/// to which they apply as long as it lives.
pub(super) fn suspend_filters(tid: i32, filtered: bool) -> io::Result<bool> {
    suspend(tid, filtered, ptrace::FOLLOW)
}

/// Does that in a thread that is traced with these options.
fn suspend(tid: i32, filtered: bool, options: libc::c_int) -> io::Result<bool> {
    if !has_own(tid, filtered)? {
        return Ok(false);
    }
    let may_kill =
        |error: io::Error| io::Error::new(error.kind(), "its own seccomp filter may kill a helper");
    let filters = ptrace::filters(tid).map_err(may_kill)?;
    let calls = seccomp::helpers_calls();
    if !filters.iter().all(|filter| calls.iter().all(|call| seccomp::allows(filter, call))) {
        return Err(io::Error::other("its own seccomp filter forbids what a helper does"));
    }
    ptrace::set_options(tid, options | ptrace::UNFILTERED).map_err(may_kill)?;
    Ok(true)
}

/// Returns whether a program has filters of its own; `filtered` if it is under ours.
///
/// # Errors
/// It is gone.
pub(super) fn has_own(tid: i32, filtered: bool) -> io::Result<bool> {
    let status = Status::of(tid)?;
    let filters = match (status.number("Seccomp").unwrap_or(0), status.number(FILTERS)) {
        (0, _) => 0,
        // Strict mode, or a kernel that does not count filters.
        (1, _) | (_, None) => 1 + usize::from(filtered),
        (_, Some(filters)) => filters,
    };
    Ok(filters > base_filters() + usize::from(filtered))
}

/// Returns why a program can have no helper, if that is because of its own filters; it is traced
/// with these options.
pub(super) fn no_helper(tid: i32, filtered: bool, options: libc::c_int) -> Option<io::Error> {
    let suspended = suspend(tid, filtered, options);
    if let Ok(true) = suspended {
        let_go(ptrace::set_options(tid, options));
    }
    suspended.err()
}

/// A child that asks not to be traced would run under a filter that gets no answers: it is traced
/// nevertheless. Returns whether it would share its parent's memory, as the tracing child of
/// LeakSanitizer does.
pub(super) fn follow_children(tid: i32, call: &Syscall, read: calls::Read<'_>) -> bool {
    const UNTRACED: u64 = libc::CLONE_UNTRACED as u64;
    let number = call.number as libc::c_long;
    if !matches!(number, libc::SYS_clone | libc::SYS_clone3) {
        return false;
    }
    let Some(flags) = calls::flags_of_clone(call, read).filter(|flags| flags & UNTRACED != 0)
    else {
        return false;
    };
    if number == libc::SYS_clone3 {
        let_go(ptrace::poke(tid, call.args[0] as usize, flags & !UNTRACED));
    } else {
        let_go(ptrace::replace_argument(tid, 0, flags & !UNTRACED));
    }
    flags & libc::CLONE_VM as u64 != 0
}

/// Filters that this process shares with the programs that it traces; set once.
static COMMON: OnceLock<usize> = OnceLock::new();

/// Filters that this process itself runs under, and all that it starts.
fn base_filters() -> usize {
    *COMMON.get_or_init(|| filters_of(std::process::id().cast_signed()))
}

/// Declares that the traced programs were not started by this process: they share with it only the
/// filters of all processes here, as in a container, and any other filter is their own.
pub(super) fn trace_strangers() {
    const FIRST: i32 = 1;
    COMMON.get_or_init(|| filters_of(std::process::id().cast_signed()).min(filters_of(FIRST)));
}

/// Returns how many filters a thread has; 0 if that cannot be found out.
pub(super) fn filters_of(tid: i32) -> usize {
    Status::of(tid).ok().and_then(|status| status.number(FILTERS)).unwrap_or(0)
}
