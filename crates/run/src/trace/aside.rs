//! When a helper steps aside: before a call of the program that would notice it, and before its
//! process ends. It is replaced at the next opportunity after that, like a helper that was killed.
//!
//! | what | why |
//! | --- | --- |
//! | the end of a process, by exit or a signal | orphans go to a reaper, whose `wait` returns it |
//! | wait with `__WALL` or `__WCLONE` | it returns any child |
//! | setns | a time namespace is for processes that share their memory with none |
//! | process_mrelease | it refuses memory that a living process has, too |
//!
//! None of this holds if SIGKILL ends a process: no call can be made in it any longer.

use std::io;
use std::time::{Duration, Instant};

use super::calls::Aside;
use super::helper::{self, Helper};
use super::inject::{At, Injection};
use super::{Tracer, let_go};
use crate::link::SpaceId;
use crate::sys::proc::{self, Status};
use crate::sys::{process, ptrace};

/// Most helpers of one space that may end unexpectedly.
const DEATHS_MAX: u32 = 32;
/// Pause after the first of them; it doubles with each.
const REST: Duration = Duration::from_millis(2);

impl Tracer<'_> {
    /// A thread is about to make such a call.
    pub(super) fn before_aside(&mut self, tid: i32, space: SpaceId, call: Aside) {
        self.set_stays_aside(tid, false);
        let process = process::process_of(tid);
        let target = match call {
            Aside::Release { pidfd } => {
                proc::of_pidfd(tid, pidfd).and_then(|pid| self.tasks.get(&pid)?.space)
            }
            _ => Some(space),
        };
        if let Some(target) = target
            && let Some(helper) = self.spaces.get_mut(target).and_then(|known| known.helper)
            && (helper.parent == process || !call.is_about_children())
        {
            self.step_aside(target, helper);
        }
        let ended = self.ended_of(space, process);
        if !ended.is_empty() {
            // The call is made, and stops, again.
            self.go_aside(tid, space);
            self.set_stays_aside(tid, true);
            return self.forget(tid, At::Seccomp, &ended);
        }
        self.go_aside(tid, space);
        let_go(match call {
            Aside::Exit => ptrace::cont(tid, 0),
            _ => ptrace::syscall(tid, 0),
        });
    }

    /// A signal is about to be delivered; returns whether it is sent again, because it ends the
    /// process of a helper, which must be reaped first.
    pub(super) fn before_signal(&mut self, tid: i32, signal: i32) -> bool {
        let Some(task) = self.tasks.get_mut(&tid) else { return false };
        if std::mem::take(&mut task.stays_aside) {
            return false;
        }
        let Some(space) = task.space else { return false };
        let Some(known) = self.spaces.get_mut(space) else { return false };
        let helper = known.helper;
        let bit = 1_u64 << (signal - 1);
        if (helper.is_none() && known.ended.is_empty()) || known.handled & bit != 0 {
            return false;
        }
        if !ends(tid, signal) {
            // Asked once, since that takes longer than the signal. Few programs remove a handler.
            known.handled |= bit;
            return false;
        }
        let process = process::process_of(tid);
        if let Some(helper) = helper.filter(|helper| helper.parent == process) {
            self.step_aside(space, helper);
        }
        let ended = self.ended_of(space, process);
        if ended.is_empty() {
            self.go_aside(tid, space);
            return false;
        }
        // Before it continues. A signal raised by its own code may be raised twice, and ends it
        // once.
        process::send_signal(process, tid, signal);
        self.go_aside(tid, space);
        self.set_stays_aside(tid, true);
        self.forget(tid, At::Behind, &ended);
        true
    }

    /// Ends a helper, and reports that; it may be in the middle of its work.
    pub(super) fn step_aside(&mut self, space: SpaceId, helper: Helper) {
        self.end_helper(helper);
        if let Some(known) = self.spaces.get_mut(space) {
            known.helper = None;
            known.ended.push(helper);
        }
        self.memory.unattached(space);
    }

    /// A helper has ended unexpectedly.
    pub(super) fn helper_died(&mut self, space: SpaceId, pid: i32) {
        let Some(known) = self.spaces.get_mut(space) else { return };
        if let Some(helper) = known.helper.take_if(|helper| helper.pid == pid) {
            known.ended.push(helper);
            self.memory.unattached(space);
            self.helper_ended(space);
        }
    }

    /// A helper was killed: there is another after a pause, but not for ever.
    pub(super) fn helper_ended(&mut self, space: SpaceId) {
        let Some(known) = self.spaces.get_mut(space) else { return };
        known.rests = Some(Instant::now() + REST * (1 << known.deaths.min(12)));
        known.deaths += 1;
        if known.deaths > DEATHS_MAX {
            self.refuse(space, "its helper is killed again and again".into());
        }
    }

    /// Takes the helpers that have ended and are still children of this process.
    pub(super) fn ended_of(&mut self, space: SpaceId, process: i32) -> Vec<Helper> {
        let Some(known) = self.spaces.get_mut(space) else { return Vec::new() };
        known.ended.extract_if(.., |helper| helper.parent == process).collect()
    }

    /// Reaps these children in their process.
    pub(super) fn forget(&mut self, tid: i32, at: At, ended: &[Helper]) {
        if ptrace::is_foreign(tid) {
            // A foreign program makes its calls by other numbers, with other instructions: they
            // stay unreaped.
            return self.resume_after(tid, Err(io::Error::from_raw_os_error(libc::ESRCH)));
        }
        self.buried.retain(|pid| ended.iter().all(|helper| helper.pid != *pid));
        // Its own filters are suspended if possible; if that is not possible and it has any, it had
        // no helper.
        let unfiltered = ptrace::set_options(tid, ptrace::FOLLOW | ptrace::UNFILTERED).is_ok();
        let forgotten =
            Injection::begin(tid, at, None, &mut self.queue).and_then(|mut injection| {
                for helper in ended {
                    helper::reap(&mut injection, helper.inside)?;
                }
                injection.finish()
            });
        if unfiltered {
            // A thread that has ended needs none.
            let _ = ptrace::set_options(tid, ptrace::FOLLOW);
        }
        self.resume_after(tid, forgotten);
    }

    /// No helper is made until this thread stops again, or has ended.
    fn go_aside(&mut self, tid: i32, space: SpaceId) {
        if let Some(task) = self.tasks.get_mut(&tid)
            && !std::mem::replace(&mut task.aside, true)
            && let Some(known) = self.spaces.get_mut(space)
        {
            known.aside += 1;
        }
    }

    fn set_stays_aside(&mut self, tid: i32, stays: bool) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.stays_aside = stays;
        }
    }

    /// A thread makes another call than the one for which helpers stepped aside.
    pub(super) fn leave_aside(&mut self, tid: i32) {
        self.set_stays_aside(tid, false);
        self.come_back(tid);
    }

    /// A thread has stopped again, or has ended.
    pub(super) fn come_back(&mut self, tid: i32) {
        if let Some(task) = self.tasks.get_mut(&tid)
            && !task.stays_aside
            && std::mem::take(&mut task.aside)
            && let Some(known) = task.space.and_then(|space| self.spaces.get_mut(space))
        {
            known.aside -= 1;
        }
    }
}

/// Returns whether a signal ends a process: it has no handler, is not ignored, and is not one of
/// those that do nothing or stop it.
fn ends(tid: i32, signal: i32) -> bool {
    const HARMLESS: [i32; 9] = [
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGURG,
        libc::SIGWINCH,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGKILL,
    ];
    if HARMLESS.contains(&signal) {
        return false;
    }
    Status::of(tid)
        .is_ok_and(|status| !status.has("SigCgt", signal) && !status.has("SigIgn", signal))
}
