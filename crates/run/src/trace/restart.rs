//! Calls interrupted by a stop, on kernels that do not show them ([`arch::REWINDS`]).
//!
//! Such a kernel goes back to the call's instruction before the stop. When the thread continues, it
//! decides whether a handler sees an interruption, and whether a wait continues with the rest of
//! its time. The state by which it decides is lost once other calls are made in the thread. So the
//! thread first continues to the entry of the call, which shows the number of the restarted call,
//! and there the call is skipped ([`take`]). At the end the call is started again with a stop
//! pending ([`begin`]): it is interrupted at once, and the kernel has its state back.
//!
//! - R1: all signals are blocked from before the first of these steps until after the second. If a
//!   call waits with a mask of its own, the stop comes before a signal.
//! - R2: only calls that wait are started again in this way: others may change what the end of an
//!   injection restores, such as the signal mask. They are restarted when the thread continues.
//! - R3: a call that reports every interruption (-EINTR) has done nothing, and is restarted, too.
//!
//! Found by trying ten kinds of waits on Linux 6.12 and 7.3; `PTRACE_INTERRUPT` at the entry makes
//! the kernel decide again.

use std::io;

use super::events::{Queue, next, park};
use crate::sys::arch::{self, Registers, SYSCALL};
use crate::sys::ptrace::{self, Event, SyscallInfo};

/// Calls that wait and can be interrupted (R2).
const WAITS: [libc::c_long; 44] = [
    libc::SYS_restart_syscall,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_splice,
    libc::SYS_sendfile,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_openat,
    libc::SYS_io_getevents,
];

/// Skips the call that a parked thread is about to make, if any; `registers` become those before
/// it. Returns its number.
///
/// # Errors
/// The thread is gone.
pub(super) fn take(
    tid: i32,
    registers: &mut Registers,
    queue: &mut Queue,
) -> io::Result<Option<u64>> {
    if !arch::REWINDS || !is_at_call(tid, registers) {
        return Ok(None);
    }
    let number = enter(tid, queue)?;
    skip(tid)?;
    park(tid, queue)?;
    registers.renumber(number);
    Ok(Some(number))
}

/// Starts the call of this number again in a parked thread, whose registers are those before it;
/// returns the stop in which the thread is then, inside that call or still before it.
///
/// # Errors
/// The thread is gone.
pub(super) fn begin(
    tid: i32,
    number: u64,
    before: &Registers,
    stop: Event,
    queue: &mut Queue,
) -> io::Result<Event> {
    if !WAITS.contains(&(number as libc::c_long)) {
        return Ok(stop);
    }
    enter(tid, queue)?;
    ptrace::interrupt(tid)?;
    let mut signal = 0;
    let mut refused = false;
    let stop = loop {
        ptrace::cont(tid, signal)?;
        signal = 0;
        match next(tid, queue)? {
            stop @ Event::Stop { .. } => break stop,
            Event::Signal(stopping) => signal = stopping,
            // It should stop before it is made, as it will when the thread continues.
            Event::Seccomp => {
                skip(tid)?;
                refused = true;
            }
            _ => {}
        }
    };
    let now = ptrace::registers(tid)?;
    let is_behind = now.instruction() == before.instruction() + SYSCALL.len();
    let reports = is_behind && now.result() == -i64::from(libc::EINTR);
    if refused || reports {
        // R3.
        ptrace::set_registers(tid, before)?;
    }
    Ok(stop)
}

/// Returns whether the next instruction makes a call.
fn is_at_call(tid: i32, registers: &Registers) -> bool {
    let mut found = [0; SYSCALL.len()];
    ptrace::read(tid, registers.instruction(), &mut found).is_ok() && found == SYSCALL
}

/// Lets a parked thread continue to the entry of its call; returns the call's number.
fn enter(tid: i32, queue: &mut Queue) -> io::Result<u64> {
    let mut signal = 0;
    loop {
        ptrace::syscall(tid, signal)?;
        signal = 0;
        match next(tid, queue)? {
            Event::Syscall => {
                if let SyscallInfo::Entry(call) = ptrace::syscall_info(tid)? {
                    return Ok(call.number);
                }
            }
            // Only SIGSTOP is not blocked (R1).
            Event::Signal(stopping) => signal = stopping,
            _ => {}
        }
    }
}

/// Skips the call before which a thread is stopped.
pub(super) fn skip(tid: i32) -> io::Result<()> {
    let mut skipped = ptrace::registers(tid)?;
    skipped.skip();
    ptrace::set_registers(tid, &skipped)
}
