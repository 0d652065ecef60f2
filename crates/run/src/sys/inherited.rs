//! The inherited state of a process, to be passed on to the next program: ignored and blocked
//! signals, closed standard streams, memory limits, and open files.
//!
//! Rust's runtime ignores `SIGPIPE` and opens `/dev/null` for closed standard streams before
//! `main`, so these two are recorded before that, by a function that the loader calls.
//!
//! # Invariants
//! - H1: the code between fork and exec ([`Inherited::apply`]) only makes system calls.
//! - H2: [`Files`] holds descriptors that were open before `main` and that exec does not close;
//!   exec closes every descriptor that Rust opens, so nothing in this process owns these.

use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number of the last signal.
const SIGNAL_MAX: i32 = 64;

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Called by the loader, before `main` and Rust's runtime.
// Sound, as the loader calls what it finds in this section as functions of C; `record` is one, and
// needs nothing that is not set up yet.
#[unsafe(link_section = ".init_array")]
#[used]
static RECORD: extern "C" fn() = record;

extern "C" fn record() {
    // Only this thread is there yet.
    PIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    let closed = (0..3).filter(|fd| flags(*fd).is_none()).fold(0, |all, fd| all | 1 << fd);
    CLOSED.store(closed, Ordering::Relaxed);
}

/// Signals, by the bit of their number less one, and standard streams as a process was given them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Inherited {
    ignored: u64,
    blocked: u64,
    closed: u8,
    /// Set if this process has changed its own.
    limits: Option<MemoryLimits>,
}

/// Limits of a process for which reserved memory counts like used memory: of its address space and
/// of its data (`ulimit -v` and `-d`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits([Rlimit; 2]);

impl MemoryLimits {
    const OF: [Resource; 2] = [Resource::As, Resource::Data];

    /// Raises those of this process as far as permitted; returns the old ones.
    #[must_use]
    pub fn raise() -> Self {
        let given = Self::OF.map(getrlimit);
        for (resource, Rlimit { maximum, .. }) in Self::OF.into_iter().zip(given) {
            if setrlimit(resource, Rlimit { current: None, maximum: None }).is_err() {
                // It may always be raised so far.
                let _ = setrlimit(resource, Rlimit { current: maximum, maximum });
            }
        }
        Self(given)
    }

    fn apply(self) {
        for (resource, limit) in Self::OF.into_iter().zip(self.0) {
            // None of them is above those of this process.
            let _ = setrlimit(resource, limit);
        }
    }
}

impl Inherited {
    /// Returns what this process inherited, as far as it has not changed it since: to be called
    /// before signals are handled. The mask is that of the calling thread.
    #[must_use]
    pub fn of_this_process() -> Self {
        let ignored = bits(|signal| match signal {
            libc::SIGPIPE => PIPE_IGNORED.load(Ordering::Relaxed),
            _ => is_ignored(signal),
        });
        let closed = CLOSED.load(Ordering::Relaxed);
        Self { ignored, blocked: blocked(), closed, limits: None }
    }

    /// Returns the same with these limits of memory.
    #[must_use]
    pub fn with_limits(self, limits: MemoryLimits) -> Self {
        Self { limits: Some(limits), ..self }
    }

    /// Returns the signals and streams as numbers, for [`from_words`](Self::from_words) in another
    /// process.
    #[must_use]
    pub fn words(self) -> [u64; 3] {
        [self.ignored, self.blocked, self.closed.into()]
    }

    /// Returns the value whose [`words`](Self::words) these are.
    #[must_use]
    pub fn from_words([ignored, blocked, closed]: [u64; 3]) -> Self {
        Self { ignored, blocked, closed: (closed & 7) as u8, limits: None }
    }

    /// Becomes the program of `command`, started with these signals and standard streams. Returns
    /// only if that fails.
    pub fn exec(self, command: &mut Command) -> io::Error {
        let apply = move || {
            self.apply();
            Ok(())
        };
        // SAFETY: nothing but system calls is made (H1).
        unsafe { command.pre_exec(apply) }.exec()
    }

    /// Sets signals, standard streams and limits of this process, which is about to exec; by system
    /// calls alone.
    pub(crate) fn apply(self) {
        for signal in 1..=SIGNAL_MAX {
            let ignore = self.ignored >> (signal - 1) & 1 == 1;
            set_handler(signal, if ignore { libc::SIG_IGN } else { libc::SIG_DFL });
        }
        for fd in (0..3).filter(|fd| self.closed >> fd & 1 == 1) {
            close(fd);
        }
        if let Some(limits) = self.limits {
            limits.apply();
        }
        set_mask(self.blocked);
    }
}

/// The files above the standard streams that a process was started with.
#[derive(Debug)]
pub struct Files(Vec<RawFd>);

impl Files {
    /// Returns those of this process; to be called first in `main`.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn of_this_process() -> io::Result<Self> {
        let mut open = Vec::new();
        for entry in std::fs::read_dir("/proc/self/fd")? {
            let name = entry?.file_name();
            let fd = name.to_str().and_then(|name| name.parse().ok());
            let stays = |fd: &RawFd| flags(*fd).is_some_and(|flags| flags & libc::FD_CLOEXEC == 0);
            open.extend(fd.filter(|fd| *fd > 2).filter(stays));
        }
        Ok(Self(open))
    }

    /// Closes them, so that the program that was started with them decides when they end.
    pub fn close(self) {
        self.0.into_iter().for_each(close);
    }
}

/// Ends this process by `signal`, without leaving a core; with status 128 + `signal` if the signal
/// does not end a process.
pub fn die_of(signal: i32) -> ! {
    // SAFETY: changes a flag of this process, which is about to end.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0_u64, 0_u64, 0_u64, 0_u64) };
    set_handler(signal, libc::SIG_DFL);
    if (1..=SIGNAL_MAX).contains(&signal) {
        set_mask(blocked() & !(1 << (signal - 1)));
    }
    // SAFETY: sends this thread a signal.
    unsafe { libc::raise(signal) };
    std::process::exit(128 + signal)
}

/// Sends `signal` to a process; does nothing if it is gone or this is not permitted.
pub fn tell(process: i32, signal: i32) {
    // Zero and below would be groups.
    if process > 0 {
        // SAFETY: sends another process a signal.
        unsafe { libc::kill(process, signal) };
    }
}

/// Holds these signals in the calling thread and those that it starts: they wait until they are
/// taken. To be called while no other thread runs.
pub fn hold_signals(signals: impl IntoIterator<Item = i32>) {
    set_mask(signals.into_iter().fold(blocked(), |all, signal| all | 1 << (signal - 1)));
}

/// Takes a signal that all threads of this process hold, and returns whether it was or is sent to
/// the process within some time.
pub fn take_signal(signal: i32, within: Duration) -> bool {
    let (set, none) = (1_u64 << (signal - 1), std::ptr::null_mut::<libc::siginfo_t>());
    let (tv_sec, tv_nsec) = (within.as_secs() as i64, within.subsec_nanos().into());
    let time = libc::timespec { tv_sec, tv_nsec };
    let (set, time) = (&raw const set, &raw const time);
    // SAFETY: the kernel reads 64 bits and a time, which live across the call.
    let taken =
        unsafe { libc::syscall(libc::SYS_rt_sigtimedwait, set, none, time, size_of::<u64>()) };
    taken > 0
}

fn bits(is: impl Fn(i32) -> bool) -> u64 {
    (1..=SIGNAL_MAX).filter(|signal| is(*signal)).fold(0, |all, signal| all | 1 << (signal - 1))
}

/// What a signal does, as the kernel has it. The C library refuses to return or set the actions of
/// its own two signals, and handles them as soon as there are threads.
#[repr(C)]
#[derive(Default)]
struct Action {
    handler: libc::sighandler_t,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}

fn is_ignored(signal: i32) -> bool {
    let mut action = Action::default();
    let (none, to) = (std::ptr::null::<Action>(), &raw mut action);
    // SAFETY: the kernel writes an `Action`, and changes nothing.
    let result =
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, none, to, size_of::<u64>()) };
    result == 0 && action.handler == libc::SIG_IGN
}

/// Sets the action of a signal; actions that cannot be set stay.
fn set_handler(signal: i32, handler: libc::sighandler_t) {
    let action = Action { handler, ..Action::default() };
    let (from, none) = (&raw const action, std::ptr::null_mut::<Action>());
    // SAFETY: `handler` is no function, but SIG_IGN or SIG_DFL.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, from, none, size_of::<u64>()) };
}

/// Returns the signals that the calling thread blocks.
pub(super) fn blocked() -> u64 {
    let mut mask = 0_u64;
    let (none, to) = (std::ptr::null::<u64>(), &raw mut mask);
    let how = libc::SIG_BLOCK;
    // SAFETY: the kernel writes 64 bits, and changes nothing.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, none, to, size_of::<u64>()) };
    mask
}

pub(super) fn set_mask(mask: u64) {
    let (from, none) = (&raw const mask, std::ptr::null_mut::<u64>());
    let how = libc::SIG_SETMASK;
    // SAFETY: the kernel reads 64 bits.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, from, none, size_of::<u64>()) };
}

/// Returns the flags of a descriptor; `None` if it is closed.
fn flags(fd: RawFd) -> Option<i32> {
    // SAFETY: asks for flags; of a closed descriptor there are none.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    (flags >= 0).then_some(flags)
}

/// Closes a descriptor that nobody owns (H2), or of a process that is about to exec.
fn close(fd: RawFd) {
    // SAFETY: no owner loses its descriptor, by the duty of the callers.
    unsafe { libc::close(fd) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_held_is_taken_once() {
        let (held, second) = (libc::SIGRTMIN() + 3, Duration::from_secs(1));
        // The signal of a thread, since others here do not hold it.
        let taken = std::thread::spawn(move || {
            hold_signals([held]);
            // SAFETY: sends this thread a signal.
            unsafe { libc::raise(held) };
            [take_signal(held, second), take_signal(held, Duration::ZERO)]
        });
        assert_eq!(taken.join().expect("no panic"), [true, false]);
    }

    #[test]
    fn words_are_read_back() {
        let given = Inherited { ignored: u64::MAX, blocked: 5, closed: 7, limits: None };
        assert_eq!(Inherited::from_words(given.words()), given);
    }
}
