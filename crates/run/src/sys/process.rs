//! Processes: starting one that waits to be traced, and calls that rustix lacks.
//!
//! Code between fork and exec makes only calls that are safe there, on memory that was prepared
//! before.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, getpid, getppid,
    getrlimit, pidfd_getfd, pidfd_open, set_dumpable_behavior, setrlimit, test_kill_process,
};

use super::inherited::Inherited;
use super::proc::{self, Status};

/// A program as exec wants it. Descriptors and what else exec keeps are those of the calling
/// thread.
#[derive(Debug)]
pub(crate) struct Program {
    /// Name or path and its arguments; a name without a slash is searched for as a shell does.
    words: Vec<CString>,
    /// `NAME=value`: that of this process, without zfold's own variables, such as passwords.
    environment: Vec<CString>,
    /// Signals and standard streams that it begins with.
    inherited: Inherited,
    /// The kernel ends it before this process when memory runs out.
    pub is_first_to_end: bool,
}

impl Program {
    /// Returns the program of a command, name first.
    ///
    /// # Errors
    /// There is a zero byte in it.
    pub(crate) fn new<W: AsRef<OsStr>>(
        command: impl IntoIterator<Item = W>,
        inherited: Inherited,
    ) -> io::Result<Self> {
        let words = command.into_iter().map(|word| CString::new(word.as_ref().as_bytes()));
        let own = |name: &OsString| name.as_bytes().starts_with(b"ZFOLD_");
        let environment = std::env::vars_os().filter(|(name, _)| !own(name));
        let environment = environment
            .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()));
        Ok(Self {
            words: words.collect::<Result<_, _>>()?,
            environment: environment.collect::<Result<_, _>>()?,
            inherited,
            is_first_to_end: false,
        })
    }
}

/// A child that waits for [`go`](Self::go).
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Its process number.
    pub pid: i32,
    gate: OwnedFd,
    failure: OwnedFd,
}

impl Waiting {
    /// Lets it become the program.
    pub(crate) fn go(&self) -> io::Result<()> {
        rustix::io::write(&self.gate, &[1])?;
        Ok(())
    }

    /// Returns why the child, which has ended, could not become the program; `None` if it did.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        let mut number = [0; 4];
        match rustix::io::read(&self.failure, &mut number) {
            Ok(4) => Some(io::Error::from_raw_os_error(i32::from_ne_bytes(number))),
            _ => None,
        }
    }
}

/// The relatives of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Relatives {
    pub process: i32,
    /// The parent of its process.
    pub parent: i32,
}

/// Returns the relatives of a thread; `None` if it is gone.
pub(crate) fn relatives(tid: i32) -> Option<Relatives> {
    let status = Status::of(tid).ok()?;
    Some(Relatives { process: status.number("Tgid")?, parent: status.number("PPid")? })
}

/// Returns the process of a thread; the thread if it is gone.
pub(crate) fn process_of(tid: i32) -> i32 {
    // Usually it is the first one, and then nothing needs to be read.
    if is_leader(tid) {
        return tid;
    }
    relatives(tid).map_or(tid, |relatives| relatives.process)
}

/// Returns whether a thread is the first of its process, whose end is that of the process.
pub(crate) fn is_leader(tid: i32) -> bool {
    // SAFETY: takes numbers only; no signal is sent.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, tid, tid, 0) };
    // Other errors do not occur for a thread that exists and belongs to another process.
    sent == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Returns whether this is the first thread of a process and has ended, but others have not: its
/// end is reported only after theirs.
pub(crate) fn has_lost_first(tid: i32) -> bool {
    let mut threads = proc::threads(tid).unwrap_or_default().into_iter();
    !proc::lives(tid) && is_leader(tid) && threads.any(proc::lives)
}

/// Returns whether there is a thread of this number, including one whose end was not received yet.
pub(crate) fn is_there(tid: i32) -> bool {
    let gone = Err(Errno::SRCH);
    Pid::from_raw(tid).is_some_and(|tid| test_kill_process(tid) != gone)
}

/// Returns what to do about an error of the system, to be put behind it; nothing for most of them.
#[must_use]
pub fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        // Of fork and of starting a thread.
        Some(libc::EAGAIN) => "; raise the limit of processes and threads (ulimit -u)",
        _ => "",
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
}

/// Makes a child that waits to become a program, with the signal mask of the calling thread.
pub(crate) fn start(program: &Program) -> io::Result<Waiting> {
    let (wait, gate) = pipe_with(PipeFlags::CLOEXEC)?;
    let (failure, report) = pipe_with(PipeFlags::CLOEXEC)?;
    let (made, ready) = pipe_with(PipeFlags::CLOEXEC)?;
    let arguments = pointers(&program.words);
    let environment = pointers(&program.environment);
    // SAFETY: the child only makes calls that are safe after a fork in a process with threads,
    // with memory that was prepared here, until it execs or exits.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // Its own copy would keep it waiting for a tracer that has died.
            drop(gate);
            may_be_seized(true);
            let _ = rustix::io::write(&ready, &[1]);
            let error = become_program(program.inherited, &wait, &arguments, &environment);
            let number = error.raw_os_error().unwrap_or(libc::EINVAL);
            let _ = rustix::io::write(&report, &number.to_ne_bytes());
            // SAFETY: ends the process without running what belongs to its parent.
            unsafe { libc::_exit(127) }
        }
        pid => {
            drop(ready);
            // Not until the end of the file: a child that another thread makes may hold a copy.
            rustix::io::retry_on_intr(|| rustix::io::read(&made, &mut [0]))?;
            Ok(Waiting { pid, gate, failure })
        }
    }
}

/// In the child: returns only on failure, with the reason.
fn become_program(
    inherited: Inherited,
    wait: &OwnedFd,
    arguments: &[*const libc::c_char],
    environment: &[*const libc::c_char],
) -> io::Error {
    if !matches!(rustix::io::read(wait, &mut [0]), Ok(1)) {
        return io::Error::from_raw_os_error(libc::ECHILD);
    }
    inherited.apply();
    // SAFETY: strings and arrays live across the call, and the arrays end with null.
    unsafe {
        libc::execvpe(arguments[0], arguments.as_ptr(), environment.as_ptr());
    }
    io::Error::last_os_error()
}

/// Sets whether other processes of its user may seize this process and read its memory: a child of
/// a process that forbids it has to permit it, until it is seized or becomes a program.
fn may_be_seized(may: bool) {
    let behavior = if may { DumpableBehavior::Dumpable } else { DumpableBehavior::NotDumpable };
    // It cannot fail: every kernel knows the values.
    let _ = set_dumpable_behavior(behavior);
}

/// A child that does nothing but receive SIGUSR1.
#[derive(Debug)]
pub(crate) struct Bell {
    pub(crate) pid: i32,
    /// Dropped once it is seized: then no other process can read the memory that was its parent's.
    _unseized: OwnedFd,
}

/// Makes a child that does nothing but receive SIGUSR1, and ends with the calling thread. When this
/// returns it holds no files any longer, so that no process waits for it to close one.
pub(crate) fn start_bell() -> io::Result<Bell> {
    let (closed, open) = pipe_with(PipeFlags::CLOEXEC)?;
    let (seized, unseized) = pipe_with(PipeFlags::CLOEXEC)?;
    let parent = getpid();
    // SAFETY: as in `start`.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => listen_for_bell(&seized, parent),
        pid => {
            drop(open);
            // Ends when the child has closed its copy, with all else.
            rustix::io::retry_on_intr(|| rustix::io::read(&closed, &mut [0]))?;
            Ok(Bell { pid, _unseized: unseized })
        }
    }
}

/// In the child: drops everything of its parent, and the terminal's signals.
fn listen_for_bell(seized: &OwnedFd, parent: Pid) -> ! {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    // A parent that was killed before that sends no signal.
    if getppid() != Some(parent) {
        // SAFETY: ends this process, which shares nothing with another.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: takes a string that lives for ever.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"zfold-bell".as_ptr(), 0, 0, 0) };
    // Not a session of its own, which some kernels schedule as a whole: then it would wait behind
    // all other sessions. SAFETY: takes numbers only.
    unsafe { libc::setpgid(0, 0) };
    may_be_seized(true);
    // One descriptor is left, at a number where it does no harm. SAFETY: nothing in this process
    // uses another descriptor any more.
    unsafe { libc::dup2(seized.as_raw_fd(), 0) };
    // SAFETY: as before.
    unsafe { libc::syscall(libc::SYS_close_range, 1, u32::MAX, 0) };
    // SAFETY: the kernel writes a byte at most to one that lives across the call.
    while unsafe { libc::read(0, [0_u8; 1].as_mut_ptr().cast(), 1) } < 0 {}
    // SAFETY: as before, nothing uses it.
    unsafe { libc::close(0) };
    may_be_seized(false);
    // SAFETY: the set is an array of integers.
    let mut others = unsafe { std::mem::zeroed() };
    // SAFETY: the set lives across the call.
    unsafe { libc::sigfillset(&raw mut others) };
    // SAFETY: as before.
    unsafe { libc::sigdelset(&raw mut others, libc::SIGUSR1) };
    loop {
        // SAFETY: as before.
        unsafe { libc::sigsuspend(&raw const others) };
    }
}

/// Length of a System V shared memory segment in bytes; `None` if that is not permitted.
pub(crate) fn segment_len(id: i32) -> Option<usize> {
    // SAFETY: the structure is plain integers.
    let mut status: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes the structure, which lives across the call.
    let done = unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut status) };
    (done == 0).then_some(status.shm_segsz)
}

/// Ends the process to which a thread belongs.
pub(crate) fn kill(pid: i32) {
    // Other numbers name groups of processes.
    assert!(pid > 0, "a process has a positive number");
    // SAFETY: takes numbers only.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Sends a signal to a thread of a process.
pub(crate) fn send_signal(process: i32, tid: i32, signal: i32) {
    // SAFETY: takes numbers only.
    unsafe { libc::syscall(libc::SYS_tgkill, process, tid, signal) };
}

/// Makes sure that descriptors can be taken from the process of a thread.
///
/// # Errors
/// It is not dumpable, and this process has no right to trace it nevertheless.
pub(crate) fn may_take_from(tid: i32) -> io::Result<()> {
    const NONE: i32 = i32::MAX;
    let Some(pid) = relatives(tid).and_then(|found| Pid::from_raw(found.process)) else {
        return Ok(());
    };
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    match pidfd_getfd(&process, NONE, PidfdGetfdFlags::empty()) {
        Err(Errno::PERM | Errno::ACCESS) => {
            Err(io::Error::other("it does not let itself be dumped (PR_SET_DUMPABLE)"))
        }
        _ => Ok(()),
    }
}

/// `PR_GET_TID_ADDRESS`, for prctl.
pub(crate) const GET_TID_ADDRESS: libc::c_int = 40;

/// Returns whether this kernel reports where the number of a thread is cleared at its end, and
/// lists children: both come with the same option (`CONFIG_CHECKPOINT_RESTORE`).
pub(crate) fn tells_number() -> bool {
    let mut at = 0_usize;
    // SAFETY: the kernel writes one word, which lives across the call.
    unsafe { libc::prctl(GET_TID_ADDRESS, &raw mut at, 0, 0, 0) == 0 }
}

/// Makes this process the parent of descendants whose own parent has ended.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: takes numbers only.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// While it lives, ended children of this process are kept until they are waited for, as tracing
/// requires.
#[derive(Debug)]
pub(crate) struct ChildrenKept {
    before: libc::sighandler_t,
}

impl ChildrenKept {
    /// From now on.
    pub(crate) fn new() -> Self {
        // SAFETY: the default action runs no code.
        Self { before: unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) } }
    }
}

impl Drop for ChildrenKept {
    fn drop(&mut self) {
        // SAFETY: what was there before.
        unsafe { libc::signal(libc::SIGCHLD, self.before) };
    }
}

/// Returns how many bytes of addresses this process may map; `None` if that is not limited.
pub(crate) fn address_limit() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Raises the descriptor limit of this process, not of processes that it has started, as far as
/// permitted.
pub(crate) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // It may always be raised so far.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Makes sure that this process may have so many more descriptors.
///
/// # Errors
/// It may not.
///
/// # Cost
/// Two system calls for each.
pub(crate) fn descriptors_left(count: usize) -> io::Result<()> {
    let none = |_| io::Error::other("no descriptor is left for a helper");
    let (one, other) = pipe_with(PipeFlags::CLOEXEC).map_err(none)?;
    let mut held = vec![one, other];
    while held.len() < count {
        held.push(rustix::io::fcntl_dupfd_cloexec(&held[0], 0).map_err(none)?);
    }
    Ok(())
}

/// Sends a descriptor through a socket, with one byte.
pub(crate) fn send_descriptor(socket: &OwnedFd, descriptor: impl AsFd) -> io::Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let fds = [descriptor.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    buffer.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(socket, &[io::IoSlice::new(&[0])], &mut buffer, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Checks whether filters may stop calls for a tracer.
///
/// # Errors
/// The kernel cannot, or a filter of this process forbids filters.
pub(crate) fn may_trace_calls() -> io::Result<()> {
    let action = libc::SECCOMP_RET_TRACE;
    // SAFETY: reads four bytes at `action`, which lives until it has returned.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use rustix::process::{WaitOptions, waitpid};
    use zfold_testing::wait_for;

    use super::*;

    #[test]
    fn a_bell_whose_parent_has_ended_ends() {
        let (seized, _unseized) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        // This test's own parent in the place of one that was killed.
        let gone = getppid().expect("a parent");
        // SAFETY: as in `start_bell`.
        let bell = match unsafe { libc::fork() } {
            0 => listen_for_bell(&seized, gone),
            pid => Pid::from_raw(pid).expect("a child"),
        };
        let ended = wait_for(|| match waitpid(Some(bell), WaitOptions::NOHANG).expect("waited") {
            Some((_, status)) => Ok(status),
            None => Err("it runs"),
        });
        assert_eq!(ended.exit_status(), Some(0));
    }
}
