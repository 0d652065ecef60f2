//! The helper: a process that shares the memory of an address space and makes system calls there.
//!
//! It is made by a thread of the program that is stopped ([`super::inject`]), shares nothing with
//! it but the memory, and runs the loop of [`LOOP`] from a page of its own: reads calls from a
//! socket, makes them, writes back the results.
//!
//! ```text
//! AT         the page with the loop, readable and executable
//! STAGING    pages that are moved out, 512 KiB and a spare page
//! ARGUMENTS  of ioctls, 16 KiB
//! CALLS      and their results, 16 KiB
//! OTHERS     staging for memory of other protections, 512 KiB each; not in a process whose address
//!            space or data is limited (`RLIMIT_AS`, `RLIMIT_DATA`), for which all of this counts
//! ```
//!
//! Invariants:
//! - H1: the page lies at the same address in every space. A program that has something there
//!   already is not managed.
//! - H2: the program does not see it: it has no exit signal, so `wait` ignores it (except with
//!   `__WALL` or `__WCLONE`); it has a process group of its own, blocks all signals, and holds no
//!   descriptor or signal handler of the program, and no directory except its root.
//! - H3: it ends with the space (the tracer kills it), with the manager (it is traced with
//!   `PTRACE_O_EXITKILL`), and when its socket closes.
//! - H4: its mappings are not inherited by fork.
//! - H5: the program, which could write to its page, gains nothing from it: it has no capabilities,
//!   a filter allows only the six calls that it makes, on its socket and its userfaultfd, and the
//!   program's own filters apply as well. Before that it executes no code of the program
//!   ([`super::birth`]).
//! - H6: its calls touch only pages of its own mappings, except `MADV_POPULATE_WRITE`. It changes
//!   protections only while all threads of the space are held.

use std::io;

use super::birth::{Birth, Born};
use super::channel::{ARGUMENTS, AT, CODE_LEN, DATA_END, OTHERS, STAGING, checked};
use super::events::Queue;
use super::inject::Injection;
use super::steps::{Descriptor, filter_at};
use crate::link::{Attached, Call, Growth};
use crate::sys::arch::{self, LOOP};
use crate::sys::ptrace::{self, Event};
use crate::sys::{proc, process, seccomp};

/// Address of a system call instruction in the loop.
const GADGET: usize = AT + arch::GADGET;

/// A helper as the tracer knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Helper {
    /// Its process number.
    pub pid: i32,
    /// The same in the program's namespace of process numbers.
    pub inside: i32,
    /// The process that made it.
    pub parent: i32,
}

/// Makes a helper for the address space of the thread in which calls are injected, and installs the
/// filter, which stops the program at this growth, unless the program has it. `alone`: no other
/// thread has the space, and no filter of the program's own applies, but so many of others.
///
/// # Errors
/// `ESRCH` if the thread has ended. Otherwise the reason; nothing is left in the space then.
pub(crate) fn attach(
    injection: &mut Injection<'_>,
    parent: i32,
    descriptor: Descriptor<'_>,
    filter: Option<Growth>,
    alone: Option<usize>,
) -> io::Result<(Helper, Attached)> {
    let end = if proc::is_limited(parent) { OTHERS } else { DATA_END };
    map(injection, end)?;
    let made = injection.call(libc::SYS_clone, [libc::CLONE_VM as u64, 0, 0, 0, 0, 0])?;
    let inside = match checked("the helper could not be started", made) {
        Ok(inside) => inside as i32,
        Err(error) => return unmap(injection, end).and(Err(error)),
    };
    let pid = injection.child();
    let result = start(injection, pid, inside, descriptor, filter, end, alone);
    if result.is_err() {
        process::kill(pid);
        wait_for_end(pid, injection.queue());
        reap(injection, inside)?;
        unmap(injection, end)?;
    }
    Ok((Helper { pid, inside, parent }, result?))
}

/// Reaps a helper that has ended, in the program's process that made it.
pub(crate) fn reap(injection: &mut Injection<'_>, inside: i32) -> io::Result<()> {
    let all = (libc::__WALL | libc::WNOHANG) as u64;
    injection.call(libc::SYS_wait4, [inside as u64, 0, all, 0, 0, 0]).map(drop)
}

const PRIVATE_HERE: u64 =
    (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
const NO_FILE: u64 = u64::MAX;

/// Maps the page, and the data up to `end`.
fn map(injection: &mut Injection<'_>, end: usize) -> io::Result<()> {
    let code = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let page = [AT as u64, CODE_LEN as u64, code, PRIVATE_HERE, NO_FILE, 0];
    let mut result = injection.call(libc::SYS_mmap, page)?;
    if result == -i64::from(libc::EEXIST) && is_ours(injection.tid()) {
        // A fork came between the mapping and the advice that it is not inherited.
        unmap(injection, end)?;
        result = injection.call(libc::SYS_mmap, page)?;
    }
    checked("its address space has no room for the helper", result)?;
    for (index, word) in LOOP.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        ptrace::poke(injection.tid(), AT + 8 * index, word)?;
    }
    injection.use_gadget(GADGET);
    let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = PRIVATE_HERE | libc::MAP_NORESERVE as u64;
    let len = (end - STAGING) as u64;
    let result =
        injection.call(libc::SYS_mmap, [STAGING as u64, len, access, flags, NO_FILE, 0])?;
    if result < 0 {
        unmap(injection, end)?;
    }
    checked("its address space has no room for staging", result).map(drop)
}

/// Returns whether an address space has a helper's page.
pub(super) fn is_ours(pid: i32) -> bool {
    let mut found = [0; LOOP.len()];
    ptrace::read(pid, AT, &mut found).is_ok() && found == LOOP
}

/// Takes the mappings away; the data first, since the instruction may lie in the page.
fn unmap(injection: &mut Injection<'_>, end: usize) -> io::Result<()> {
    let len = (end - STAGING) as u64;
    injection.call(libc::SYS_munmap, [STAGING as u64, len, 0, 0, 0, 0])?;
    injection.use_first_gadget();
    injection.call(libc::SYS_munmap, [AT as u64, CODE_LEN as u64, 0, 0, 0, 0]).map(drop)
}

/// Waits until a process that was killed has ended.
pub(crate) fn wait_for_end(pid: i32, queue: &mut Queue) {
    queue.retain(|(queued, _)| *queued != pid);
    // It may have been killed before: then it is in the stop on its way to its end, which is
    // reported only once, and a second SIGKILL does not wake it. This fails if it runs.
    drop(ptrace::cont(pid, 0));
    loop {
        match ptrace::wait(pid) {
            Ok((_, Event::Ended(_))) | Err(_) => return,
            // It may stop on its way; its end is reported next.
            Ok(_) => drop(ptrace::cont(pid, 0)),
        }
    }
}

fn start(
    injection: &mut Injection<'_>,
    pid: i32,
    inside: i32,
    descriptor: Descriptor<'_>,
    filter: Option<Growth>,
    end: usize,
    alone: Option<usize>,
) -> io::Result<Attached> {
    // It is in the namespace of its maker.
    let birth = Birth::begin(pid, GADGET, injection.queue())?;
    let Born { channel, uffd, others } = birth.finish(end, &descriptor, alone)?;
    if let Some(growth) = filter {
        injection.put(ARGUMENTS, &filter_at(ARGUMENTS, &seccomp::program(growth)))?;
        install(injection)?;
    }
    Ok(Attached {
        uffd,
        number: Call::UFFD,
        inside: Box::new(channel),
        helper: inside,
        helper_here: pid,
        pid,
        staging: STAGING..ARGUMENTS,
        others,
        arguments: ARGUMENTS,
        all: AT..end,
        may_protect: false,
    })
}

/// Puts all threads of the program under the filter that was written to [`ARGUMENTS`].
fn install(injection: &mut Injection<'_>) -> io::Result<()> {
    const EVERY_THREAD: u64 = 1;
    let flags = EVERY_THREAD | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let filter = [libc::SECCOMP_SET_MODE_FILTER as u64, flags, ARGUMENTS as u64, 0, 0, 0];
    let mut result = injection.call(libc::SYS_seccomp, filter)?;
    if result == -i64::from(libc::EACCES) {
        let set = libc::PR_SET_NO_NEW_PRIVS as u64;
        injection.call(libc::SYS_prctl, [set, 1, 0, 0, 0, 0])?;
        result = injection.call(libc::SYS_seccomp, filter)?;
    }
    // A positive number is a thread with a filter of its own.
    if result > 0 {
        return Err(io::Error::other("its threads have different seccomp filters"));
    }
    checked("the seccomp filter", result).map(drop)
}
