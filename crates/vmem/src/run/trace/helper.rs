//! The helper: a process that shares the memory of an address space and makes system calls there.
//!
//! It is made by a thread of the program that is stopped ([`super::inject`]), shares nothing with
//! it but the memory, and runs the loop of [`LOOP`] from a page of its own: reads calls from a
//! socket, makes them, writes back the results.
//!
//! ```text
//! AT                 the page with the loop, readable and executable
//! AT + 2 MiB         staging: pages that are moved out
//! AT + 4 MiB         arguments of ioctls, 16 KiB
//! AT + 4 MiB + 16 K  calls and results
//! ```
//!
//! Invariants:
//! - H1: the page lies at the same address in every space, so that the filter of system calls can
//!   let calls from there pass. A program that has something there already is not managed.
//! - H2: the program does not see it: its exit signal is none, so that `wait` passes over it (but
//!   not with `__WALL` or `__WCLONE`); it has a session of its own, blocks all signals, and holds
//!   no descriptor, directory or signal handler of the program's.
//! - H3: it ends with the space (the tracer kills it), with the manager (it is traced with
//!   `PTRACE_O_EXITKILL`), and when its socket closes.
//! - H4: its mappings are not inherited by fork.
//! - H5: it is of no use to the program, which could write to its page: it has no capabilities, and
//!   a filter leaves it the five calls that it makes, on its socket and its userfaultfd.
//! - H6: no call that it makes touches a page but of its own mappings, except that of
//!   `MADV_POPULATE_WRITE`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::inject::{At, Injection, Queue, next};
use crate::run::link::{Attached, Call, Inside};
use crate::run::permission::{Access, features};
use crate::run::sys::ptrace::{self, Event};
use crate::run::sys::{process, remote, seccomp};
use crate::sys::uffd::Uffd;

/// Where the helper's page lies in every space: below where the kernel places libraries, above
/// where allocators and sanitizers reserve.
pub(crate) const AT: usize = 0x7ab0_7a00_0000;
const PAGE: usize = 4096;
const STAGING: usize = AT + (2 << 20);
const ARGUMENTS: usize = AT + (4 << 20);
const CALLS: usize = ARGUMENTS + (16 << 10);
const DATA_END: usize = CALLS + (16 << 10);

/// The loop; `rbx` holds the address of [`CALLS`], behind which lie the results. It needs no stack.
#[rustfmt::skip]
const LOOP: [u8; 120] = [
    // next: read(0, calls, 256 calls)
    0x31, 0xc0,                                 // xor eax, eax
    0x31, 0xff,                                 // xor edi, edi
    0x48, 0x89, 0xde,                           // mov rsi, rbx
    0xba, 0x00, 0x38, 0x00, 0x00,               // mov edx, 256 * 56
    0x0f, 0x05,                                 // syscall
    0x48, 0x83, 0xf8, 0x38,                     // cmp rax, 56
    0x7c, 0x56,                                 // jl end
    0x4c, 0x8d, 0x2c, 0x03,                     // lea r13, [rbx + rax]
    0x49, 0x89, 0xde,                           // mov r14, rbx
    0x4c, 0x8d, 0xbb, 0x00, 0x38, 0x00, 0x00,   // lea r15, [rbx + 256 * 56]
    // one: make the call at r14, write its result to r15
    0x49, 0x8b, 0x06,                           // mov rax, [r14]
    0x49, 0x8b, 0x7e, 0x08,                     // mov rdi, [r14 + 8]
    0x49, 0x8b, 0x76, 0x10,                     // mov rsi, [r14 + 16]
    0x49, 0x8b, 0x56, 0x18,                     // mov rdx, [r14 + 24]
    0x4d, 0x8b, 0x56, 0x20,                     // mov r10, [r14 + 32]
    0x4d, 0x8b, 0x46, 0x28,                     // mov r8, [r14 + 40]
    0x4d, 0x8b, 0x4e, 0x30,                     // mov r9, [r14 + 48]
    0x0f, 0x05,                                 // syscall
    0x49, 0x89, 0x07,                           // mov [r15], rax
    0x49, 0x83, 0xc6, 0x38,                     // add r14, 56
    0x49, 0x83, 0xc7, 0x08,                     // add r15, 8
    0x4d, 0x39, 0xee,                           // cmp r14, r13
    0x72, 0xd3,                                 // jb one
    // write(0, results, their bytes)
    0xb8, 0x01, 0x00, 0x00, 0x00,               // mov eax, 1
    0x31, 0xff,                                 // xor edi, edi
    0x48, 0x8d, 0xb3, 0x00, 0x38, 0x00, 0x00,   // lea rsi, [rbx + 256 * 56]
    0x4c, 0x89, 0xfa,                           // mov rdx, r15
    0x48, 0x29, 0xf2,                           // sub rdx, rsi
    0x0f, 0x05,                                 // syscall
    0x48, 0x85, 0xc0,                           // test rax, rax
    0x7f, 0x96,                                 // jg next
    // end: exit_group(0)
    0xb8, 0xe7, 0x00, 0x00, 0x00,               // mov eax, 231
    0xbf, 0x00, 0x00, 0x00, 0x00,               // mov edi, 0
    0x0f, 0x05,                                 // syscall
    0x0f, 0x0b,                                 // ud2
];
/// Address of a system call instruction there.
const GADGET: usize = AT + 116;

/// Says what failed.
fn because<T>(what: &str, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| {
        if error.raw_os_error() == Some(libc::ESRCH) {
            return error;
        }
        io::Error::new(error.kind(), format!("{what}: {error}"))
    })
}

/// A result of a system call as an error of this program.
fn checked(what: &str, result: i64) -> io::Result<i64> {
    if result >= 0 {
        return Ok(result);
    }
    because(what, Err(io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO))))
}

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

/// How a helper comes to the descriptor for missing pages.
#[derive(Debug)]
pub(crate) enum Descriptor<'a> {
    /// It opens one.
    Open(&'a Access),
    /// It is given this one, of a child of fork.
    Given(OwnedFd),
}

/// Makes a helper for the address space of the thread in which calls are injected, and puts the
/// program under the filter if that is asked for.
///
/// # Errors
/// `ESRCH` if the thread has ended. Else why it cannot be; nothing is left in the space then.
pub(crate) fn attach(
    injection: &mut Injection<'_>,
    descriptor: Descriptor<'_>,
    filter: bool,
) -> io::Result<(Helper, Attached)> {
    map(injection)?;
    let made = injection.call(libc::SYS_clone, [libc::CLONE_VM as u64, 0, 0, 0, 0, 0])?;
    let inside = match checked("the helper could not be started", made) {
        Ok(inside) => inside as i32,
        Err(error) => return unmap(injection).and(Err(error)),
    };
    let pid = injection.child();
    let result = start(injection, pid, descriptor, filter);
    if result.is_err() {
        process::kill(pid);
        wait_for_end(pid, injection.queue());
        reap(injection, inside)?;
        unmap(injection)?;
    }
    let tid = injection.tid();
    let parent = process::relatives(tid).map_or(tid, |relatives| relatives.process);
    Ok((Helper { pid, inside, parent }, result?))
}

/// Has the program's process that made a helper forget it, after it has ended.
pub(crate) fn reap(injection: &mut Injection<'_>, inside: i32) -> io::Result<()> {
    let all = (libc::__WALL | libc::WNOHANG) as u64;
    injection.call(libc::SYS_wait4, [inside as u64, 0, all, 0, 0, 0]).map(drop)
}

const PRIVATE_HERE: u64 =
    (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
const NO_FILE: u64 = u64::MAX;

fn map(injection: &mut Injection<'_>) -> io::Result<()> {
    let code = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let page = [AT as u64, PAGE as u64, code, PRIVATE_HERE, NO_FILE, 0];
    let mut result = injection.call(libc::SYS_mmap, page)?;
    if result == -i64::from(libc::EEXIST) && is_ours(injection.tid()) {
        // A fork came between the mapping and the advice that it is not inherited.
        unmap(injection)?;
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
    let len = (DATA_END - STAGING) as u64;
    let result =
        injection.call(libc::SYS_mmap, [STAGING as u64, len, access, flags, NO_FILE, 0])?;
    if result < 0 {
        unmap(injection)?;
    }
    checked("its address space has no room for staging", result).map(drop)
}

fn is_ours(pid: i32) -> bool {
    let mut found = [0; LOOP.len()];
    matches!(process::read_memory(pid, AT, &mut found), Ok(n) if n == found.len()) && found == LOOP
}

/// Takes the mappings away; the data first, since the instruction may lie in the page.
fn unmap(injection: &mut Injection<'_>) -> io::Result<()> {
    let len = (DATA_END - STAGING) as u64;
    injection.call(libc::SYS_munmap, [STAGING as u64, len, 0, 0, 0, 0])?;
    injection.use_first_gadget();
    injection.call(libc::SYS_munmap, [AT as u64, PAGE as u64, 0, 0, 0, 0]).map(drop)
}

/// Waits until a process that was killed has ended.
pub(crate) fn wait_for_end(pid: i32, queue: &mut Queue) {
    queue.retain(|(queued, _)| *queued != pid);
    loop {
        match ptrace::wait(pid) {
            Ok((_, Event::Exited(_) | Event::Killed { .. })) | Err(_) => return,
            // It may stop on its way; that it is gone is told next.
            Ok(_) => drop(ptrace::cont(pid, 0)),
        }
    }
}

/// Waits until a new process stops before it runs.
fn wait_for_birth(pid: i32, queue: &mut Queue) -> io::Result<()> {
    loop {
        match next(pid, queue)? {
            Event::Stop { .. } => return Ok(()),
            _ => ptrace::cont(pid, 0)?,
        }
    }
}

fn start(
    injection: &mut Injection<'_>,
    pid: i32,
    descriptor: Descriptor<'_>,
    filter: bool,
) -> io::Result<Attached> {
    let mut channel = boot(injection, pid)?;
    channel.settle()?;
    let uffd = match descriptor {
        Descriptor::Open(access) => Some(channel.open_uffd(access)?),
        Descriptor::Given(uffd) => {
            channel.receive_descriptor(&uffd)?;
            None
        }
    };
    let helper = channel.one("getpid", libc::SYS_getpid, [0; 6])? as i32;
    if filter {
        let at = channel.write_filter(&seccomp::program(AT))?;
        install(injection, at)?;
    }
    channel.lock_down()?;
    Ok(Attached {
        uffd,
        number: Call::UFFD as i32,
        inside: Box::new(channel),
        helper,
        pid,
        staging: STAGING..DATA_END,
        arguments: ARGUMENTS,
        all: AT..DATA_END,
    })
}

/// Puts all threads of the program under the filter that was written to `at`.
fn install(injection: &mut Injection<'_>, at: usize) -> io::Result<()> {
    const EVERY_THREAD: u64 = 1;
    let flags = EVERY_THREAD | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let filter = [libc::SECCOMP_SET_MODE_FILTER as u64, flags, at as u64, 0, 0, 0];
    let mut result = injection.call(libc::SYS_seccomp, filter)?;
    if result == -i64::from(libc::EACCES) {
        let set = libc::PR_SET_NO_NEW_PRIVS as u64;
        injection.call(libc::SYS_prctl, [set, 1, 0, 0, 0, 0])?;
        result = injection.call(libc::SYS_seccomp, filter)?;
    }
    // A positive number is a thread with a filter of its own.
    if result > 0 {
        return Err(io::Error::other("its threads have different filters of system calls"));
    }
    checked("the filter of system calls", result).map(drop)
}

/// From the birth of a helper to its loop.
fn boot(injection: &mut Injection<'_>, pid: i32) -> io::Result<Channel> {
    wait_for_birth(pid, injection.queue())?;
    let mut birth = Injection::begin(pid, At::Stop, Some(GADGET), injection.queue())?;
    let closed = birth.call(libc::SYS_close_range, [0, u64::from(u32::MAX), 0, 0, 0, 0])?;
    checked("close_range in the helper", closed)?;
    let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u64;
    let pair = [libc::AF_UNIX as u64, kind, 0, CALLS as u64, 0, 0];
    checked("socketpair in the helper", birth.call(libc::SYS_socketpair, pair)?)?;
    birth.become_code(AT, CALLS)?;
    let process = pidfd_open(Pid::from_raw(pid).expect("not 0"), PidfdFlags::empty())?;
    let socket = because("taking the helper's socket", take(&process, 1))?;
    Ok(Channel { socket, process, pid, buffer: Vec::new(), by_socket: false })
}

/// A copy of a descriptor of another process.
fn take(process: &OwnedFd, number: i32) -> io::Result<OwnedFd> {
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

/// The manager's end of the helper's socket.
#[derive(Debug)]
struct Channel {
    socket: OwnedFd,
    process: OwnedFd,
    pid: i32,
    buffer: Vec<u8>,
    /// Its memory may not be accessed, because its program does not want that: the helper writes
    /// it to the socket.
    by_socket: bool,
}

/// Bytes that go through the socket at once.
const AT_ONCE: usize = 32 << 10;

const CALL_LEN: usize = size_of::<Call>();

fn plain(number: libc::c_long, args: [u64; 6]) -> Call {
    Call { number: number as u64, args }
}

impl Inside for Channel {
    fn call(&mut self, calls: &[Call], results: &mut [i64]) -> io::Result<()> {
        self.send(calls)?;
        self.receive(&mut results[..calls.len()])
    }

    fn read(&mut self, from: usize, into: &mut [u8]) -> io::Result<()> {
        if !self.by_socket {
            match remote::read(self.pid, from, into) {
                Err(error) if is_refused(&error) => self.by_socket = true,
                result => return result,
            }
        }
        let mut from = from;
        for part in into.chunks_mut(AT_ONCE) {
            self.send(&[plain(libc::SYS_write, [0, from as u64, part.len() as u64, 0, 0, 0])])?;
            self.receive_bytes(part)?;
            self.receive(&mut [0])?;
            from += part.len();
        }
        Ok(())
    }

    fn write(&mut self, to: usize, bytes: &[u8]) -> io::Result<()> {
        debug_assert!((STAGING..DATA_END).contains(&to));
        if !self.by_socket {
            // SAFETY: these addresses are the helper's own (H1).
            match unsafe { remote::write(self.pid, to, bytes) } {
                Err(error) if is_refused(&error) => self.by_socket = true,
                result => return result,
            }
        }
        let mut to = to;
        for part in bytes.chunks(AT_ONCE) {
            self.send(&[plain(libc::SYS_read, [0, to as u64, part.len() as u64, 0, 0, 0])])?;
            send(&self.socket, part, SendFlags::NOSIGNAL)?;
            self.receive(&mut [0])?;
            to += part.len();
        }
        Ok(())
    }
}

fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}

impl Channel {
    fn send(&mut self, calls: &[Call]) -> io::Result<()> {
        assert!(calls.len() <= Call::AT_ONCE, "more calls than go at once");
        self.buffer.clear();
        for call in calls {
            self.buffer.extend_from_slice(&call.number.to_ne_bytes());
            for argument in call.args {
                self.buffer.extend_from_slice(&argument.to_ne_bytes());
            }
        }
        debug_assert_eq!(self.buffer.len(), calls.len() * CALL_LEN);
        send(&self.socket, &self.buffer, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn receive(&mut self, results: &mut [i64]) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.resize(results.len() * 8, 0);
        let received = self.receive_bytes(&mut bytes);
        for (result, bytes) in results.iter_mut().zip(bytes.chunks_exact(8)) {
            *result = i64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        }
        self.buffer = bytes;
        received
    }

    /// Receives a message that is so long.
    fn receive_bytes(&self, into: &mut [u8]) -> io::Result<()> {
        loop {
            match recv(&self.socket, &mut *into, RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok((got, _)) if got == into.len() => return Ok(()),
                Ok(_) => {
                    return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the helper is gone"));
                }
            }
        }
    }

    fn one(&mut self, what: &str, number: libc::c_long, args: [u64; 6]) -> io::Result<i64> {
        let mut result = [0];
        self.call(&[plain(number, args)], &mut result)?;
        checked(what, result[0])
    }

    /// Gives up what the helper has in common with the program but the memory (H2, H4).
    fn settle(&mut self) -> io::Result<()> {
        const NAME: &[u8] = b"zfold-inside\0/\0";
        const ROOT: u64 = ARGUMENTS as u64 + 13;
        self.write(ARGUMENTS, NAME)?;
        let advise = |at: usize, end: usize, advice: libc::c_int| {
            plain(libc::SYS_madvise, [at as u64, (end - at) as u64, advice as u64, 0, 0, 0])
        };
        let set_name = libc::PR_SET_NAME as u64;
        let calls = [
            plain(libc::SYS_close, [1, 0, 0, 0, 0, 0]),
            plain(libc::SYS_setsid, [0; 6]),
            plain(libc::SYS_chdir, [ROOT, 0, 0, 0, 0, 0]),
            advise(AT, AT + PAGE, libc::MADV_DONTFORK),
            advise(STAGING, DATA_END, libc::MADV_DONTFORK),
            // These two may be refused without harm.
            advise(STAGING, DATA_END, libc::MADV_NOHUGEPAGE),
            plain(libc::SYS_prctl, [set_name, ARGUMENTS as u64, 0, 0, 0, 0]),
        ];
        let mut results = [0; 7];
        self.call(&calls, &mut results)?;
        for (what, result) in ["close", "setsid", "chdir", "madvise", "madvise"].iter().zip(results)
        {
            checked(what, result)?;
        }
        Ok(())
    }

    /// Opens userfaultfd in the helper, as [`Call::UFFD`], and takes a copy.
    fn open_uffd(&mut self, access: &Access) -> io::Result<Uffd> {
        let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
        match access {
            Access::Call => {
                self.one("userfaultfd", libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0])?;
            }
            Access::Device(device) => {
                self.receive_descriptor(&**device)?;
                let device = Call::UFFD;
                let new = [device, Uffd::NEW_CODE, flags, 0, 0, 0];
                let opened = self.one("/dev/userfaultfd", libc::SYS_ioctl, new)? as u64;
                let close_on_exec = libc::O_CLOEXEC as u64;
                self.one("dup3", libc::SYS_dup3, [opened, Call::UFFD, close_on_exec, 0, 0, 0])?;
                self.one("close", libc::SYS_close, [opened, 0, 0, 0, 0, 0])?;
            }
        }
        let uffd = Uffd::from_fd(because("taking userfaultfd", take(&self.process, 1))?);
        because("userfaultfd", uffd.handshake(features()))?;
        Ok(uffd)
    }

    /// Passes a descriptor to the helper, which gets it as the lowest number that is free there:
    /// [`Call::UFFD`].
    fn receive_descriptor(&mut self, descriptor: impl AsFd) -> io::Result<()> {
        // A header for recvmsg: no name, one vector, room for one descriptor.
        const VECTOR: u64 = ARGUMENTS as u64 + 56;
        const BYTE: u64 = VECTOR + 16;
        const CONTROL: u64 = BYTE + 8;
        let words = [0, 0, VECTOR, 1, CONTROL, 24, 0, BYTE, 1, 0, 0, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.write(ARGUMENTS, &bytes)?;
        let close_on_exec = libc::MSG_CMSG_CLOEXEC as u64;
        self.send(&[plain(libc::SYS_recvmsg, [0, ARGUMENTS as u64, close_on_exec, 0, 0, 0])])?;
        process::send_descriptor(&self.socket, descriptor)?;
        let mut result = [0];
        self.receive(&mut result)?;
        checked("passing a descriptor to the helper", result[0]).map(drop)
    }

    /// Writes a filter to where it can be installed from, and returns where.
    fn write_filter(&mut self, code: &[seccomp::Instruction]) -> io::Result<usize> {
        const CODE: usize = ARGUMENTS + 16;
        let mut bytes = (code.len() as u64).to_ne_bytes().to_vec();
        bytes.extend(CODE.to_ne_bytes());
        for step in code {
            bytes.extend(step.code.to_ne_bytes());
            bytes.extend([step.jt, step.jf]);
            bytes.extend(step.k.to_ne_bytes());
        }
        self.write(ARGUMENTS, &bytes)?;
        Ok(ARGUMENTS)
    }

    /// Gives up all rights but that to a few calls (H5).
    fn lock_down(&mut self) -> io::Result<()> {
        // A header of version 3 for the calling thread, and no capability in six words.
        const VERSION: u64 = 0x2008_0522;
        const NONE: u64 = ARGUMENTS as u64 + 8;
        let set = libc::PR_SET_NO_NEW_PRIVS as u64;
        self.one("no_new_privs", libc::SYS_prctl, [set, 1, 0, 0, 0, 0])?;
        self.write(ARGUMENTS, &[VERSION, 0, 0, 0, 0].map(u64::to_ne_bytes).concat())?;
        self.one("capset", libc::SYS_capset, [ARGUMENTS as u64, NONE, 0, 0, 0, 0])?;
        let at = self.write_filter(&seccomp::helpers_own())?;
        let filter = [libc::SECCOMP_SET_MODE_FILTER as u64, 0, at as u64, 0, 0, 0];
        self.one("the helper's filter", libc::SYS_seccomp, filter).map(drop)
    }
}
