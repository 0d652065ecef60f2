//! ptrace: stops threads of other processes, and reads and writes their registers.
//!
//! Every call names a thread that the calling thread has seized. `ESRCH` means that the thread is
//! not stopped or no longer exists: [`wait`] reports its end.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use super::arch::{self, ARCH, Registers};

/// The options for tracing programs: their children and threads are traced from birth; exec, calls
/// that the filter names and the end of a thread stop them; and all of them end with the tracer.
pub(crate) const FOLLOW: libc::c_int = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_TRACESECCOMP
    | libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_EXITKILL;

/// The same for programs that were not changed yet: when the tracer ends, the thread continues
/// without one. A call that a filter of its own names fails, as it does without a tracer, which
/// would let it pass by ending.
pub(crate) const FOLLOW_LOOSELY: libc::c_int =
    FOLLOW & !(libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESECCOMP);

/// In addition: seccomp filters are suspended while the thread is traced so. Needs `CAP_SYS_ADMIN`
/// and no filter on the tracer.
pub(crate) const UNFILTERED: libc::c_int = 1 << 21;

/// `PTRACE_EVENT_STOP`, for which libc has no name.
const EVENT_STOP: libc::c_int = 128;
/// Others that not every C library's binding has.
const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
const SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
/// Length of the kernel's signal sets.
const MASK_LEN: usize = 8;

/// What a thread reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// It has ended.
    Ended(ExitStatus),
    /// Stopped on the way into a system call or out of it.
    Syscall,
    /// Stopped by the filter before a system call.
    Seccomp,
    /// Stopped inside a call that has made this kind of child; [`message`] names it.
    Child,
    /// Stopped inside exec; [`message`] is its thread number of before.
    Exec,
    /// Stopped on its way to its end: it executes no more code of its own. It may leave this stop
    /// by itself if it is killed again, and a thread that is being killed may not stop here.
    Ending,
    /// Stopped on request or at birth (`signal` is SIGTRAP), or because its whole process is.
    Stop { signal: i32 },
    /// Stopped before this signal is delivered to it.
    Signal(i32),
}

impl Event {
    /// Returns whether the thread has ended.
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Self::Ended(_))
    }

    /// Returns whether its whole process has stopped.
    pub(crate) fn is_group_stop(self) -> bool {
        matches!(self, Self::Stop { signal } if signal != libc::SIGTRAP)
    }

    fn parse(status: libc::c_int) -> Self {
        if !libc::WIFSTOPPED(status) {
            return Self::Ended(ExitStatus::from_raw(status));
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                Self::Child
            }
            libc::PTRACE_EVENT_EXEC => Self::Exec,
            libc::PTRACE_EVENT_EXIT => Self::Ending,
            libc::PTRACE_EVENT_SECCOMP => Self::Seccomp,
            EVENT_STOP => Self::Stop { signal },
            _ if signal == libc::SIGTRAP | 0x80 => Self::Syscall,
            _ => Self::Signal(signal),
        }
    }
}

/// A system call as the kernel reports it at a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyscallInfo {
    /// Before the call, by the filter; `data` is what the filter returned with it.
    Seccomp { call: Syscall, data: u32 },
    /// Before the call.
    Entry(Syscall),
    /// After it, with its result.
    Exit(i64),
    /// At another stop.
    None,
}

/// A call that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Syscall {
    /// `AUDIT_ARCH_*`: whose numbers these are.
    pub arch: u32,
    pub number: u64,
    pub args: [u64; 6],
}

/// The kernel's `struct ptrace_syscall_info`, up to the widest of its kinds.
#[repr(C)]
#[derive(Default)]
struct RawInfo {
    op: u8,
    pad: [u8; 3],
    arch: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    /// Number and arguments; or of an exit what it returned and whether that is an error.
    words: [u64; 7],
    ret_data: u32,
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// One without memory of the caller: `address` and `data` are numbers.
fn plain(request: libc::c_uint, tid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the requests that come here take numbers only.
    check(unsafe { libc::ptrace(request as _, tid, address, data) }).map(drop)
}

/// Begins to trace a thread and does not stop it.
pub(crate) fn seize(tid: i32, options: libc::c_int) -> io::Result<()> {
    plain(libc::PTRACE_SEIZE as _, tid, 0, options as usize)
}

/// Changes how a stopped thread is traced; its children are from now on, too.
pub(crate) fn set_options(tid: i32, options: libc::c_int) -> io::Result<()> {
    plain(libc::PTRACE_SETOPTIONS as _, tid, 0, options as usize)
}

/// Makes a running thread stop soon, and a listening one stop again; a stopped thread will stop
/// again before it executes any code of its own.
pub(crate) fn interrupt(tid: i32) -> io::Result<()> {
    plain(libc::PTRACE_INTERRUPT as _, tid, 0, 0)
}

/// Lets a stopped thread continue, with `signal` if that is not 0.
pub(crate) fn cont(tid: i32, signal: i32) -> io::Result<()> {
    plain(libc::PTRACE_CONT as _, tid, 0, signal as usize)
}

/// As [`cont`], up to the next way into or out of a system call.
pub(crate) fn syscall(tid: i32, signal: i32) -> io::Result<()> {
    plain(libc::PTRACE_SYSCALL as _, tid, 0, signal as usize)
}

/// Leaves a thread whose process is stopped as it is, until the process continues.
pub(crate) fn listen(tid: i32) -> io::Result<()> {
    plain(libc::PTRACE_LISTEN as _, tid, 0, 0)
}

/// Detaches a stopped thread, which continues, with `signal` if that is not 0: its end is not
/// reported.
pub(crate) fn detach(tid: i32, signal: i32) -> io::Result<()> {
    plain(libc::PTRACE_DETACH as _, tid, 0, signal as usize)
}

/// Returns whether a thread that is stopped on its way to its end ([`Event::Ending`]) is ended by
/// SIGKILL.
pub(crate) fn is_killed(tid: i32) -> bool {
    event_message(tid).is_ok_and(|status| status & 0x7f == libc::SIGKILL as libc::c_ulong)
}

fn event_message(tid: i32) -> io::Result<libc::c_ulong> {
    let mut message = 0;
    // SAFETY: the kernel writes one word, which lives across the call.
    check(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message) })?;
    Ok(message)
}

/// The number that belongs to the event [`Event::Child`] or [`Event::Exec`] in which a thread is
/// stopped: the child's, or the thread's old number.
///
/// # Errors
/// `ESRCH`: the thread no longer exists, for example because it was killed since.
pub(crate) fn message(tid: i32) -> io::Result<i32> {
    let number = event_message(tid)?;
    // At its end the number is another; it was not there yet if the thread is still here.
    // SAFETY: the structure is plain integers.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one structure, which lives across the call.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, tid, 0, &raw mut info) };
    check(done)?;
    match Event::parse(info.si_code << 8 | 0x7f) {
        Event::Child | Event::Exec => Ok(number as i32),
        _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

fn raw_info(tid: i32) -> io::Result<RawInfo> {
    let mut raw = RawInfo::default();
    // SAFETY: the kernel writes at most as many bytes as are named, into a structure of integers.
    let done =
        unsafe { libc::ptrace(GET_SYSCALL_INFO as _, tid, size_of::<RawInfo>(), &raw mut raw) };
    check(done)?;
    Ok(raw)
}

/// The system call at which a thread is stopped.
pub(crate) fn syscall_info(tid: i32) -> io::Result<SyscallInfo> {
    let raw = raw_info(tid)?;
    let mut args = [0; 6];
    args.copy_from_slice(&raw.words[1..]);
    let call = Syscall { arch: raw.arch, number: raw.words[0], args };
    Ok(match raw.op {
        1 => SyscallInfo::Entry(call),
        2 => SyscallInfo::Exit(raw.words[0].cast_signed()),
        3 => SyscallInfo::Seccomp { call, data: raw.ret_data },
        _ => SyscallInfo::None,
    })
}

/// Whether a stopped thread uses other call numbers than those of this architecture.
pub(crate) fn is_foreign(tid: i32) -> bool {
    raw_info(tid).is_ok_and(|raw| raw.arch != ARCH)
}

/// The general registers of a stopped thread.
pub(crate) fn registers(tid: i32) -> io::Result<Registers> {
    arch::read_registers(tid)
}

/// Sets them.
pub(crate) fn set_registers(tid: i32, registers: &Registers) -> io::Result<()> {
    arch::write_registers(tid, registers)
}

/// Replaces an argument of the call that a thread stops at.
///
/// # Errors
/// The thread is gone.
pub(crate) fn replace_argument(tid: i32, index: usize, value: u64) -> io::Result<()> {
    let mut registers = registers(tid)?;
    registers.set_argument(index, value);
    set_registers(tid, &registers)
}

/// Signals that a stopped thread blocks, one bit each.
pub(crate) fn signal_mask(tid: i32) -> io::Result<u64> {
    let mut mask = 0_u64;
    // SAFETY: the kernel writes as many bytes as are named.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETSIGMASK as _, tid, MASK_LEN, &raw mut mask) };
    check(done)?;
    Ok(mask)
}

/// Sets them.
pub(crate) fn set_signal_mask(tid: i32, mask: u64) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as are named.
    let done =
        unsafe { libc::ptrace(libc::PTRACE_SETSIGMASK as _, tid, MASK_LEN, &raw const mask) };
    check(done).map(drop)
}

/// The filters of system calls of a stopped thread. Needs `CAP_SYS_ADMIN` and no filter on the
/// tracer.
///
/// # Errors
/// Without these; or one is of a kind that cannot be read.
pub(crate) fn filters(tid: i32) -> io::Result<Vec<Vec<libc::sock_filter>>> {
    /// `BPF_MAXINSNS`.
    const LONGEST: usize = 4096;
    let mut filters = Vec::new();
    loop {
        let mut code = Vec::<libc::sock_filter>::with_capacity(LONGEST);
        // SAFETY: the kernel writes at most as many instructions as a filter may have, for which
        // there is room.
        let len =
            unsafe { libc::ptrace(SECCOMP_GET_FILTER as _, tid, filters.len(), code.as_mut_ptr()) };
        match check(len) {
            Ok(len) => {
                // SAFETY: it has written so many.
                unsafe { code.set_len((len as usize).min(LONGEST)) };
                filters.push(code);
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(filters),
            Err(error) => return Err(error),
        }
    }
}

/// Reads memory of a stopped thread. Never waits for a page of a userfaultfd.
///
/// # Errors
/// `EIO` if such a page is missing, or nothing is mapped there.
///
/// # Cost
/// A system call for each eight bytes.
pub(crate) fn read(tid: i32, from: usize, into: &mut [u8]) -> io::Result<()> {
    for (index, part) in into.chunks_mut(8).enumerate() {
        let mut word = 0_u64;
        let at = from.wrapping_add(8 * index);
        // SAFETY: the kernel writes one word, which lives across the call.
        check(unsafe {
            libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKDATA, tid, at, &raw mut word)
        })?;
        part.copy_from_slice(&word.to_ne_bytes()[..part.len()]);
    }
    Ok(())
}

/// Writes eight bytes into the memory of a stopped thread, whatever its protection.
pub(crate) fn poke(tid: i32, address: usize, word: u64) -> io::Result<()> {
    plain(libc::PTRACE_POKETEXT as _, tid, address, word as usize)
}

/// Where the list of robust mutexes of a thread begins; `None` if it has none, or that is not
/// permitted.
pub(crate) fn robust_list(tid: i32) -> Option<usize> {
    let (mut head, mut len) = (0_usize, 0_usize);
    // SAFETY: the kernel writes two words, which live across the call.
    let done =
        unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut len) };
    (done == 0 && head != 0).then_some(head)
}

/// Where a stopped thread has registered its area for restartable sequences; `None` if nowhere.
pub(crate) fn restartable(tid: i32) -> Option<usize> {
    /// The kernel's `struct ptrace_rseq_configuration`.
    #[repr(C)]
    #[derive(Default)]
    struct Configuration {
        pointer: u64,
        len: u32,
        signature: u32,
        flags: u32,
        pad: u32,
    }
    let mut found = Configuration::default();
    // SAFETY: the kernel writes as many bytes as are named, into a structure of integers.
    let done = unsafe {
        libc::ptrace(GET_RSEQ_CONFIGURATION as _, tid, size_of::<Configuration>(), &raw mut found)
    };
    (done >= 0 && found.pointer != 0).then_some(found.pointer as usize)
}

/// Waits until any thread that the calling thread traces has an event, without receiving it;
/// returns the thread, and whether the event is its end.
///
/// # Errors
/// `ECHILD` if there is none.
pub(crate) fn peek() -> io::Result<(i32, bool)> {
    let kinds = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD;
    loop {
        // SAFETY: the structure is plain integers.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one structure, which lives across the call.
        let done = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, kinds) };
        if done == 0 {
            let ended =
                matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
            // SAFETY: the kernel has written what belongs to this kind.
            return Ok((unsafe { info.si_pid() }, ended));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Returns whether two threads share their memory; `None` if that cannot be found out.
pub(crate) fn share_memory(one: i32, other: i32) -> Option<bool> {
    const MEMORY: i32 = 1;
    // SAFETY: takes numbers only.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, MEMORY, 0, 0) };
    (order >= 0).then_some(order == 0)
}

/// Waits for the next event of a thread, or with 0 of any that the calling thread traces or has
/// as a child.
///
/// # Errors
/// `ECHILD` if there is none.
pub(crate) fn wait(tid: i32) -> io::Result<(i32, Event)> {
    let found = wait_with(if tid == 0 { -1 } else { tid }, 0)?;
    Ok(found.expect("it is waited for"))
}

/// Returns the next event of a thread if there is one by now.
///
/// # Errors
/// Same as [`wait`].
pub(crate) fn wait_now(tid: i32) -> io::Result<Option<Event>> {
    Ok(wait_with(tid, libc::WNOHANG)?.map(|(_, event)| event))
}

/// Returns the next event of any thread that the calling thread traces, if there is one by now.
///
/// # Errors
/// Same as [`wait`].
pub(crate) fn poll() -> io::Result<Option<(i32, Event)>> {
    wait_with(-1, libc::WNOHANG)
}

/// Waits for the next event of a thread, or with 0 of any that the calling thread traces or has as
/// a child; `None` if a signal came before ([`super::ticks`]).
///
/// # Errors
/// Same as [`wait`].
///
/// # Cost
/// For any, the kernel looks at all of them, before it sleeps and after it has woken: about 20 ns
/// for each. For one, it looks at that one.
pub(crate) fn wait_or_tick(tid: i32) -> io::Result<Option<(i32, Event)>> {
    match wait_once(if tid == 0 { -1 } else { tid }, 0) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        waited => waited,
    }
}

fn wait_with(of: i32, options: i32) -> io::Result<Option<(i32, Event)>> {
    loop {
        match wait_once(of, options) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            waited => return waited,
        }
    }
}

fn wait_once(of: i32, options: i32) -> io::Result<Option<(i32, Event)>> {
    let options = options | libc::__WALL | libc::__WNOTHREAD;
    let mut status = 0;
    // SAFETY: the kernel writes one integer, which lives across the call.
    let got = unsafe { libc::waitpid(of, &raw mut status, options) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((got > 0).then(|| (got, Event::parse(status))))
}
