//! Processes that run already: which can be put under a limit, as far as can be seen from outside
//! without changing anything.

use std::collections::BTreeSet;
use std::fs::File;

use crate::sys::proc::{self, Status};
use crate::sys::process;

/// A process that runs already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its number.
    pub pid: i32,
    /// The name of its program, as the kernel has it.
    pub program: String,
    /// When it began, in the kernel's ticks: a number is given anew.
    began: u64,
}

/// Why a process cannot be put under a limit, in one line that ends in the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub(crate) String);

/// Words of `/proc/PID/stat` behind the name.
const FLAGS: usize = 6;
const BEGAN: usize = 19;
/// Of the flags: a thread of the kernel; one that it made for a process (two, by its version).
const KERNEL: u64 = 0x0020_0000;
const WORKER: u64 = 0x10 | 0x4000;

impl Running {
    /// Returns the process of this number.
    ///
    /// # Errors
    /// There is none, it is of a kind that has no limit, or it may not be traced.
    pub fn look(pid: i32) -> Result<Self, Refused> {
        let refused = |line: String| Err(Refused(line));
        let Some(running) = Self::of(pid) else {
            return refused(format!("there is no process {pid}: see ps"));
        };
        let program = &running.program;
        let parents = ancestors();
        if parents.first() == Some(&pid) {
            return refused(format!("process {pid} is zfold itself: name another"));
        }
        if parents.contains(&pid) {
            return refused(format!(
                "process {pid} ({program}) is an ancestor of zfold, whose manager would be under \
                 its own limit: start zfold from elsewhere, such as another terminal"
            ));
        }
        if has_flag(pid, KERNEL) {
            return refused(format!(
                "process {pid} ({program}) is a thread of the kernel, without memory of its own"
            ));
        }
        if !process::is_leader(pid) {
            let of = process::process_of(pid);
            return refused(format!("{pid} is a thread of process {of}: give that number"));
        }
        if !proc::lives(pid) {
            return Err(Refused(running.has_ended()));
        }
        if !process::tells_number() {
            return refused(
                "this kernel does not report where threads that already run keep their numbers: \
                    use \
                 one with CONFIG_CHECKPOINT_RESTORE, or zfold run"
                    .to_owned(),
            );
        }
        refusal(pid).map_or(Ok(running), refused)
    }

    /// Returns number and time of its beginning, for [`from_words`](Self::from_words) in another
    /// process.
    #[must_use]
    pub fn words(&self) -> (i32, u64) {
        (self.pid, self.began)
    }

    /// Returns the process whose [`words`](Self::words) these are, which may have ended meanwhile.
    #[must_use]
    pub fn from_words((pid, began): (i32, u64)) -> Self {
        Self { pid, program: proc::name(pid), began }
    }

    fn of(pid: i32) -> Option<Self> {
        let began = proc::stat(pid, BEGAN)?.parse().ok()?;
        Some(Self { pid, program: proc::name(pid), began })
    }

    /// Returns whether its number is another process's by now.
    pub(crate) fn is_another(&self) -> bool {
        Self::of(self.pid).is_some_and(|now| now.began != self.began)
    }

    /// Returns the line that says that it is another.
    pub(crate) fn is_anothers(&self) -> String {
        format!("the number {} belongs to another process by now: see ps", self.pid)
    }

    /// Returns the line that says that it is gone.
    pub(crate) fn has_ended(&self) -> String {
        format!("process {} ({}) has ended: see ps", self.pid, self.program)
    }
}

/// Returns this process and all its ancestors.
fn ancestors() -> Vec<i32> {
    let mut found = vec![std::process::id().cast_signed()];
    let parent = |pid: i32| process::relatives(pid).map(|relatives| relatives.parent);
    while let Some(parent) = found.last().and_then(|&last| parent(last)).filter(|&pid| pid > 0) {
        found.push(parent);
    }
    found
}

fn has_flag(tid: i32, flag: u64) -> bool {
    let flags = proc::stat(tid, FLAGS).and_then(|word| word.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & flag != 0)
}

/// Returns whether the kernel made a thread for a process, such as those of io_uring: it executes
/// nothing of the program, and nobody can trace it.
pub(crate) fn is_workers(tid: i32) -> bool {
    has_flag(tid, WORKER)
}

/// Returns why a process may not be traced, and what can be done; `None` if it may.
pub(crate) fn refusal(pid: i32) -> Option<String> {
    let program = proc::name(pid);
    let status = Status::of(pid).ok()?;
    if let Some(tracer) = status.number::<i32>("TracerPid").filter(|&tracer| tracer != 0) {
        let by = command(tracer);
        let remedy = match by.as_str() {
            "zfold" => "it is under zfold already: see zfold ps, and zfold ctl to change its limit",
            _ => "end that first",
        };
        return Some(format!("process {pid} ({program}) is traced by {tracer} ({by}); {remedy}"));
    }
    if proc::begins_pid_namespace(pid) {
        return Some(format!(
            "process {pid} ({program}) has made a PID namespace, in which a helper would be \
                process 1: attach to its children"
        ));
    }
    // Opening it asks for the same right as tracing does, and changes nothing.
    if File::options().read(true).write(true).open(format!("/proc/{pid}/mem")).is_ok() {
        return None;
    }
    let grant = "run zfold as root";
    let users: BTreeSet<_> =
        user_ids(&status).into_iter().chain([rustix::process::getuid().as_raw()]).collect();
    if users.len() > 1 {
        return Some(format!(
            "process {pid} ({program}) belongs to another user, or changes its user: {grant}"
        ));
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    Some(match scope.trim() {
        "3" => format!(
            "process {pid} ({program}) may not be traced: this system forbids that until it is \
                rebooted without kernel.yama.ptrace_scope=3"
        ),
        "1" => format!(
            "process {pid} ({program}) may not be traced (kernel.yama.ptrace_scope=1): {grant}, or \
             for all: sudo sysctl kernel.yama.ptrace_scope=0"
        ),
        "2" => format!(
            "process {pid} ({program}) may not be traced (kernel.yama.ptrace_scope=2): {grant}"
        ),
        _ => format!(
            "process {pid} ({program}) cannot be traced, because it protects its memory or has \
                more rights: {grant}"
        ),
    })
}

/// Returns the real, effective and saved users of a process.
fn user_ids(status: &Status) -> Vec<u32> {
    let field = status.field("Uid").unwrap_or_default();
    field.split_whitespace().take(3).filter_map(|id| id.parse().ok()).collect()
}

/// Returns the name by which a process was called.
fn command(pid: i32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let first = line.split(|&byte| byte == 0).next().unwrap_or_default();
    let name =
        String::from_utf8_lossy(first.rsplit(|&byte| byte == b'/').next().unwrap_or_default());
    if name.is_empty() { proc::name(pid) } else { name.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pid: i32) -> String {
        Running::look(pid).expect_err("it is refused").to_string()
    }

    #[test]
    fn what_has_no_limit_of_its_own_is_refused() {
        let own = std::process::id().cast_signed();
        assert!(line(own).contains("zfold itself"));
        let parent = process::relatives(own).expect("this process").parent;
        if parent > 0 {
            assert!(line(parent).contains("an ancestor of zfold"));
        }
        assert!(line(i32::MAX).contains("there is no process"));
        let thread = std::thread::spawn(|| line(rustix::thread::gettid().as_raw_nonzero().get()));
        let said = thread.join().expect("no panic");
        assert!(said.contains(&format!("is a thread of process {own}")), "{said}");
    }

    #[test]
    fn a_number_that_was_given_anew_is_another_process() {
        let own = Running::of(std::process::id().cast_signed()).expect("this process");
        assert!(!own.is_another());
        let (pid, began) = own.words();
        assert_eq!(Running::from_words((pid, began)), own);
        assert!(Running::from_words((pid, began + 1)).is_another());
    }
}
