//! Answers a program that asks for its seccomp mode, and emulates the strict mode: the program must
//! not see the run's filter, beside which the kernel does not allow the strict mode.
//!
//! The strict mode is emulated by a filter. A call that it does not allow stops the thread, and
//! SIGKILL ends its process; the kernel's strict mode would end only the thread.

use std::io;

use super::inject::{At, Injection};
use super::steps::filter_at;
use super::{Tracer, filters, let_go};
use crate::sys::ptrace::{self, Syscall};
use crate::sys::seccomp;

/// `SECCOMP_MODE_STRICT`, for prctl.
const STRICT: u64 = 1;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Mode,
    Strict,
}

impl Asks {
    fn of(call: &Syscall) -> Option<Self> {
        let arg = |index: usize| call.args[index] as libc::c_int;
        match call.number as libc::c_long {
            libc::SYS_prctl if arg(0) == libc::PR_GET_SECCOMP => Some(Self::Mode),
            libc::SYS_prctl if arg(0) == libc::PR_SET_SECCOMP && call.args[1] == STRICT => {
                Some(Self::Strict)
            }
            libc::SYS_seccomp
                if arg(0).cast_unsigned() == libc::SECCOMP_SET_MODE_STRICT
                    && call.args[1..3] == [0, 0] =>
            {
                Some(Self::Strict)
            }
            _ => None,
        }
    }
}

impl Tracer<'_> {
    /// Answers a thread that is stopped before such a call; returns whether it did. For a program
    /// with a filter of its own, the kernel's answer is right.
    pub(super) fn answer_mode(&mut self, tid: i32, call: &Syscall) -> bool {
        let Some(asks) = Asks::of(call) else { return false };
        if filters::has_own(tid, true).unwrap_or(true) {
            return false;
        }
        match asks {
            Asks::Mode => self.skip(tid, 0),
            Asks::Strict => self.enter_strict(tid),
        }
        true
    }

    fn enter_strict(&mut self, tid: i32) {
        let begun = ptrace::registers(tid).and_then(|registers| {
            let injection = Injection::begin(tid, At::Seccomp, None, &mut self.queue)?;
            Ok((injection, registers.below_stack(STACK)))
        });
        let Ok((mut injection, at)) = begun else { return let_go(ptrace::cont(tid, 0)) };
        let installed = install(&mut injection, at);
        let stop = injection.finish();
        if stop.is_ok() {
            let result = if installed.is_ok() { 0 } else { -i64::from(libc::EINVAL) };
            let_go(ptrace::registers(tid).and_then(|mut registers| {
                registers.return_from_call(result);
                ptrace::set_registers(tid, &registers)
            }));
        }
        self.resume_after(tid, stop);
    }
}

/// Bytes of the stack that the filter takes for a moment.
const STACK: usize = 512;

/// Puts the thread under the filter, which is written to its stack.
fn install(injection: &mut Injection<'_>, at: usize) -> io::Result<()> {
    injection.put(at, &filter_at(at, &seccomp::strict()))?;
    let filter = [libc::SECCOMP_SET_MODE_FILTER as u64, 0, at as u64, 0, 0, 0];
    if injection.call(libc::SYS_seccomp, filter)? == 0 {
        return Ok(());
    }
    // From now on it may make no call for which this would matter.
    let set = libc::PR_SET_NO_NEW_PRIVS as u64;
    injection.one("no_new_privs", libc::SYS_prctl, [set, 1, 0, 0, 0, 0])?;
    injection.one("the strict mode", libc::SYS_seccomp, filter).map(drop)
}
