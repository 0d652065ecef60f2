//! The birth of a helper: what it drops and receives before it runs its loop.
//!
//! Until then it has the rights of the program, and no filter applies. So the tracer makes each
//! call and compares it at its entry (inject/I4): the program can write to all memory here, but its
//! code is executed in this process only under the filter that [`Birth::lock_down`] installs, and
//! under the program's own.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::channel::{ARGUMENTS, AT, CALLS, OTHER, OTHERS, PROTECTIONS, because, checked};
use super::events::{Queue, next};
use super::inject::{At, Injection};
use crate::link::Call;
use crate::permission::{Access, features};
use crate::sys::ptrace::{self, Event};
use crate::sys::{process, seccomp};
use zfold_uffd::Uffd;

/// The target of the link of a userfaultfd in `/proc`.
const UFFD_LINK: &str = "anon_inode:[userfaultfd]";

/// A process that was cloned to become a helper, stopped.
#[derive(Debug)]
pub(super) struct Birth<'a> {
    injection: Injection<'a>,
    pid: i32,
    /// The manager's end of its socket; the other is its number 0.
    socket: OwnedFd,
}

impl<'a> Birth<'a> {
    /// Begins in a process that has just been cloned, with the system call instruction at `gadget`
    /// and its own memory up to `end`: it drops everything that it shares with the program, except
    /// the memory (helper/H2, helper/H4).
    ///
    /// # Errors
    /// It has ended, or cannot be a helper.
    pub(super) fn begin(
        pid: i32,
        gadget: usize,
        end: usize,
        queue: &'a mut Queue,
    ) -> io::Result<Self> {
        wait_for_birth(pid, queue)?;
        let mut injection = Injection::begin(pid, At::Stop, Some(gadget), queue)?;
        let all = [0, u64::from(u32::MAX), 0, 0, 0, 0];
        injection.one("close_range in the helper", libc::SYS_close_range, all)?;
        let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u64;
        let pair = [libc::AF_UNIX as u64, kind, 0, CALLS as u64, 0, 0];
        injection.one("socketpair in the helper", libc::SYS_socketpair, pair)?;
        let socket = because("taking the helper's socket", take(pid, 1))?;
        injection.one("close in the helper", libc::SYS_close, [1, 0, 0, 0, 0, 0])?;
        injection.one("setpgid in the helper", libc::SYS_setpgid, [0; 6])?;
        let mut birth = Self { injection, pid, socket };
        // The page and the staging follow each other.
        let kept = birth.advise(AT, end, libc::MADV_DONTFORK)?;
        checked("madvise in the helper", kept)?;
        birth.forget_folder();
        Ok(birth)
    }

    fn advise(&mut self, at: usize, end: usize, advice: libc::c_int) -> io::Result<i64> {
        let args = [at as u64, (end - at) as u64, advice as u64, 0, 0, 0];
        self.injection.call(libc::SYS_madvise, args)
    }

    /// Steps that may be refused without harm. A sandbox may have made its root a folder of a
    /// process that has ended, to which no process can change.
    fn forget_folder(&mut self) {
        const NAME: &[u8] = b"zfold-inside\0/\0";
        const ROOT: u64 = ARGUMENTS as u64 + 13;
        let set_name = libc::PR_SET_NAME as u64;
        let _ = self.injection.put(ARGUMENTS, NAME);
        let _ = self.injection.call(libc::SYS_chdir, [ROOT, 0, 0, 0, 0, 0]);
        let _ = self.injection.call(libc::SYS_prctl, [set_name, ARGUMENTS as u64, 0, 0, 0, 0]);
    }

    /// Gives the other stagings, up to `end`, their protection; returns them. The system may refuse
    /// memory that is writable and executable: then the program's memory of that kind stays.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn protect_others(&mut self, end: usize) -> io::Result<Vec<(u8, Range<usize>)>> {
        let mut made = Vec::new();
        for (&protection, at) in PROTECTIONS.iter().zip((OTHERS..end).step_by(OTHER)) {
            let args = [at as u64, OTHER as u64, protection as u64, 0, 0, 0];
            if self.injection.call(libc::SYS_mprotect, args)? == 0 {
                made.push((protection as u8, at..at + OTHER));
            }
        }
        Ok(made)
    }

    /// Opens userfaultfd there, as [`Call::UFFD`], and takes a copy.
    ///
    /// # Errors
    /// It is not permitted, or not what it should be.
    pub(super) fn open_uffd(&mut self, access: &Access) -> io::Result<Uffd> {
        let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
        match access {
            Access::Call => {
                let args = [flags, 0, 0, 0, 0, 0];
                self.injection.one("userfaultfd", libc::SYS_userfaultfd, args)?;
            }
            Access::Device(device) => {
                self.receive_descriptor(&**device)?;
                let injection = &mut self.injection;
                let number = u64::from(Call::NUMBER);
                let new = [number, Uffd::NEW_CODE, flags, 0, 0, 0];
                let opened = injection.one("/dev/userfaultfd", libc::SYS_ioctl, new)? as u64;
                let over = [opened, number, libc::O_CLOEXEC as u64, 0, 0, 0];
                injection.one("dup3 in the helper", libc::SYS_dup3, over)?;
                injection.one("close in the helper", libc::SYS_close, [opened, 0, 0, 0, 0, 0])?;
            }
        }
        let taken = because("taking userfaultfd", take(self.pid, Call::NUMBER as i32))?;
        // A file that answers like one may have been made by the program.
        let link = fs::read_link(format!("/proc/self/fd/{}", taken.as_raw_fd()))?;
        if link.as_os_str() != UFFD_LINK {
            return Err(io::Error::other("the helper shows another file for userfaultfd"));
        }
        let uffd = Uffd::from_fd(taken);
        because("userfaultfd", uffd.handshake(features()))?;
        Ok(uffd)
    }

    /// Passes a descriptor to the helper, where it gets the lowest free number: [`Call::NUMBER`].
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn receive_descriptor(&mut self, descriptor: impl AsFd) -> io::Result<()> {
        // A header for recvmsg: no name, one vector, room for one descriptor.
        const VECTOR: u64 = ARGUMENTS as u64 + 56;
        const BYTE: u64 = VECTOR + 16;
        const CONTROL: u64 = BYTE + 8;
        let words = [0, 0, VECTOR, 1, CONTROL, 24, 0, BYTE, 1, 0, 0, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
        self.injection.put(ARGUMENTS, &bytes)?;
        process::send_descriptor(&self.socket, descriptor)?;
        let close_on_exec = libc::MSG_CMSG_CLOEXEC as u64;
        let receive = [0, ARGUMENTS as u64, close_on_exec, 0, 0, 0];
        self.injection.one("passing a descriptor", libc::SYS_recvmsg, receive).map(drop)
    }

    /// Drops all rights except a few calls (helper/H5). From here on the program's filters apply,
    /// too.
    ///
    /// # Errors
    /// It has ended, or keeps a right.
    pub(super) fn lock_down(&mut self) -> io::Result<()> {
        // A header of version 3 for the calling thread, and no capability in six words.
        const VERSION: u64 = 0x2008_0522;
        const NONE: u64 = ARGUMENTS as u64 + 8;
        let injection = &mut self.injection;
        let set = libc::PR_SET_NO_NEW_PRIVS as u64;
        injection.one("no_new_privs", libc::SYS_prctl, [set, 1, 0, 0, 0, 0])?;
        injection.put(ARGUMENTS, &[VERSION, 0, 0, 0, 0].map(u64::to_ne_bytes).concat())?;
        injection.one("capset", libc::SYS_capset, [ARGUMENTS as u64, NONE, 0, 0, 0, 0])?;
        put_filter(injection, ARGUMENTS, &seccomp::helpers_own())?;
        let filter = [libc::SECCOMP_SET_MODE_FILTER as u64, 0, ARGUMENTS as u64, 0, 0, 0];
        injection.one("the helper's filter", libc::SYS_seccomp, filter)?;
        ptrace::set_options(self.pid, ptrace::FOLLOW)
    }

    /// Has it run its loop; returns the socket to it.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn finish(self) -> io::Result<OwnedFd> {
        self.injection.become_code(AT, CALLS)?;
        Ok(self.socket)
    }
}

/// Writes a filter to an address, from where it can be installed.
///
/// # Errors
/// The thread is gone, or nothing can be written there.
pub(super) fn put_filter(
    injection: &mut Injection<'_>,
    at: usize,
    code: &[seccomp::Instruction],
) -> io::Result<()> {
    let mut bytes = (code.len() as u64).to_ne_bytes().to_vec();
    bytes.extend((at + 16).to_ne_bytes());
    for step in code {
        bytes.extend(step.code.to_ne_bytes());
        bytes.extend([step.jt, step.jf]);
        bytes.extend(step.k.to_ne_bytes());
    }
    injection.put(at, &bytes)
}

/// A copy of a descriptor of a helper, which is traced, so that its number cannot be reused.
fn take(pid: i32, number: i32) -> io::Result<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(pid).expect("not 0"), PidfdFlags::empty())?;
    Ok(pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?)
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
