//! Waits of the program that are interrupted only because it is traced: by a stop, or by a signal
//! that the program ignores, which the kernel would drop without interrupting an untraced program.
//!
//! The kernel restarts most calls then. Some report the interruption in any case; these are
//! restarted here. A call with a time limit must not start it again each time.

use std::io;
use std::time::{Duration, Instant};

use crate::sys::arch::{EPOLL_WAIT, Registers, Seen};
use crate::sys::proc::Status;
use crate::sys::ptrace;

/// How a call passes its time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// It has none, or none that is known here.
    None,
    /// In milliseconds, in this argument; negative is none.
    Milliseconds(usize),
    /// By a pointer to a `timespec`, in this argument; null is none. When it is over, this is the
    /// result.
    Timespec(usize, i64),
}

/// Calls that report an interruption even if no signal was handled, and have done nothing then.
const EASILY_INTERRUPTED: [(libc::c_long, Limit); 20] = [
    (EPOLL_WAIT, Limit::Milliseconds(3)),
    (libc::SYS_epoll_pwait, Limit::Milliseconds(3)),
    (libc::SYS_epoll_pwait2, Limit::Timespec(3, 0)),
    (libc::SYS_semop, Limit::None),
    (libc::SYS_semtimedop, Limit::Timespec(3, -(libc::EAGAIN as i64))),
    (libc::SYS_rt_sigtimedwait, Limit::Timespec(2, -(libc::EAGAIN as i64))),
    (libc::SYS_io_getevents, Limit::Timespec(4, 0)),
    (libc::SYS_io_uring_enter, Limit::None),
    // Of sockets with a time limit.
    (libc::SYS_read, Limit::None),
    (libc::SYS_readv, Limit::None),
    (libc::SYS_write, Limit::None),
    (libc::SYS_writev, Limit::None),
    (libc::SYS_recvfrom, Limit::None),
    (libc::SYS_recvmsg, Limit::None),
    (libc::SYS_recvmmsg, Limit::None),
    (libc::SYS_sendto, Limit::None),
    (libc::SYS_sendmsg, Limit::None),
    (libc::SYS_sendmmsg, Limit::None),
    (libc::SYS_accept, Limit::None),
    (libc::SYS_accept4, Limit::None),
];

/// A wait that was restarted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Softened {
    /// The instruction and the number of the call.
    instruction: usize,
    number: u64,
    /// When it ends; counted from its first interruption, since its beginning is unknown.
    end: Option<Instant>,
    /// The argument that was shortened, and what it was.
    shortened: Option<(usize, u64)>,
}

impl Softened {
    /// Whether the thread has to be stopped after the call.
    pub(crate) fn is_shortened(&self) -> bool {
        self.shortened.is_some()
    }

    /// The thread is stopped after a call: if it is this one, its argument is restored.
    pub(crate) fn returned(&self, tid: i32) -> io::Result<()> {
        let Some((index, value)) = self.shortened else { return Ok(()) };
        let mut registers = ptrace::registers(tid)?;
        if registers.instruction() == self.instruction {
            registers.set_argument(index, value);
            ptrace::set_registers(tid, &registers)?;
        }
        Ok(())
    }
}

/// Restarts a call that reports an interruption, unless `signal` is handled; a wait that is over by
/// now returns instead. `seen` is the call in which the thread was before it was asked to stop, and
/// `softened` the record of its restart.
pub(crate) fn soften(
    tid: i32,
    signal: i32,
    seen: Option<&Seen>,
    softened: &mut Option<Softened>,
) -> io::Result<()> {
    let mut registers = ptrace::registers(tid)?;
    if let Some(made) = softened.as_ref()
        && registers.report(made.instruction, made.number)
    {
        // It was restarted, and has not begun.
        if signal != 0 && is_handled(tid, signal) {
            ptrace::set_registers(tid, &registers)?;
            return softened.take().map_or(Ok(()), |softened| softened.returned(tid));
        }
        return Ok(());
    }
    let found = registers.interrupted(seen).and_then(|number| {
        let found = EASILY_INTERRUPTED.iter().find(|(call, _)| *call == number as libc::c_long);
        found.map(|(_, limit)| (number, *limit))
    });
    let Some((number, limit)) = found else {
        *softened = None;
        return Ok(());
    };
    if signal != 0 && is_handled(tid, signal) {
        // The kernel reports that to the handler, and to the program.
        if let Some(softened) = softened.take() {
            softened.returned(tid)?;
        }
        return Ok(());
    }
    let instruction = registers.instruction();
    let same = |s: &&mut Softened| s.instruction == instruction && s.number == number;
    let now = Instant::now();
    match softened.as_mut().filter(same) {
        Some(softened) => again(&mut registers, seen, softened, limit, now),
        None => {
            let wait = length(tid, &registers, limit);
            let end = wait.and_then(|wait| now.checked_add(wait));
            *softened = Some(Softened { instruction, number, end, shortened: None });
            registers.make_anew(seen);
        }
    }
    ptrace::set_registers(tid, &registers)
}

/// A wait was interrupted before.
fn again(
    registers: &mut Registers,
    seen: Option<&Seen>,
    softened: &mut Softened,
    limit: Limit,
    now: Instant,
) {
    let left = softened.end.map(|end| end.saturating_duration_since(now));
    match (limit, left) {
        (Limit::Timespec(_, result), Some(Duration::ZERO)) => registers.set_result(result),
        (Limit::Milliseconds(index), Some(left)) => {
            let value = registers.arguments()[index];
            softened.shortened.get_or_insert((index, value));
            // Rounded up, since a wait lasts at least its time limit.
            registers.set_argument(index, left.as_millis() as u64 + u64::from(!left.is_zero()));
            registers.make_anew(seen);
        }
        _ => registers.make_anew(seen),
    }
}

/// How long a call waits; `None` without a limit.
fn length(tid: i32, registers: &Registers, limit: Limit) -> Option<Duration> {
    match limit {
        Limit::None => None,
        Limit::Milliseconds(index) => {
            let milliseconds = registers.arguments()[index] as u32 as i32;
            u64::try_from(milliseconds).ok().map(Duration::from_millis)
        }
        Limit::Timespec(index, _) => {
            let at = registers.arguments()[index] as usize;
            let mut bytes = [0; 16];
            // If it is missing, the wait begins again.
            if at == 0 || ptrace::read(tid, at, &mut bytes).is_err() {
                return None;
            }
            let (words, _) = bytes.as_chunks::<8>();
            let nanoseconds = u32::try_from(u64::from_ne_bytes(words[1])).ok()?;
            Some(Duration::new(u64::from_ne_bytes(words[0]), nanoseconds))
        }
    }
}

/// Whether a process has a handler for a signal.
fn is_handled(tid: i32, signal: i32) -> bool {
    Status::of(tid).is_ok_and(|status| status.has("SigCgt", signal))
}
