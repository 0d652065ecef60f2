//! The channel to a helper: calls go there and results come back. Also where its memory lies, and
//! what it does to itself at its beginning.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::page::PAGE;
use crate::run::link::{Call, Inside};
use crate::run::permission::{Access, features};
use crate::run::sys::{process, remote, seccomp};
use crate::sys::uffd::Uffd;

/// Where the helper's page lies in every space: below where the kernel places libraries, above
/// where allocators and sanitizers reserve.
pub const AT: usize = 0x7ab0_7a00_0000;
pub(super) const STAGING: usize = AT + (2 << 20);
pub(super) const ARGUMENTS: usize = AT + (4 << 20);
pub(super) const CALLS: usize = ARGUMENTS + (16 << 10);
const OTHERS: usize = CALLS + (16 << 10);
const OTHER: usize = 512 << 10;
/// What may be done with the memory there, one after the other.
const PROTECTIONS: [i32; 3] = [
    libc::PROT_WRITE,
    libc::PROT_WRITE | libc::PROT_EXEC,
    libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
];
pub(super) const DATA_END: usize = OTHERS + PROTECTIONS.len() * OTHER;

/// Says what failed; `ESRCH` stays as it is: who was asked has ended.
pub(super) fn because<T>(what: &str, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| {
        if error.raw_os_error() == Some(libc::ESRCH) {
            return error;
        }
        named(what, &error)
    })
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// A result of a system call as an error of this program; never a bare `ESRCH`, since who made the
/// call is there.
pub(super) fn checked(what: &str, result: i64) -> io::Result<i64> {
    if result >= 0 {
        return Ok(result);
    }
    let error = io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO));
    Err(named(what, &error))
}

/// A copy of a descriptor of a helper, which is traced: its number is nobody else's.
fn take(pid: i32, number: i32) -> io::Result<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(pid).expect("not 0"), PidfdFlags::empty())?;
    Ok(pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?)
}

/// The manager's end of the helper's socket.
#[derive(Debug)]
pub(super) struct Channel {
    socket: OwnedFd,
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
                // Memory that can only be written to can be read by who has it, on this machine.
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {}
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
            // SAFETY: these addresses are the helper's own (helper/H1).
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
    /// Returns the channel of a process that has just begun its loop, with one end of its socket
    /// as number 1.
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        let socket = because("taking the helper's socket", take(pid, 1))?;
        Ok(Self { socket, pid, buffer: Vec::new(), by_socket: false })
    }

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

    pub(super) fn one(
        &mut self,
        what: &str,
        number: libc::c_long,
        args: [u64; 6],
    ) -> io::Result<i64> {
        let mut result = [0];
        self.call(&[plain(number, args)], &mut result)?;
        checked(what, result[0])
    }

    /// Gives up what the helper has in common with the program but the memory (helper/H2,
    /// helper/H4).
    pub(super) fn settle(&mut self) -> io::Result<()> {
        const NAME: &[u8] = b"zfold-inside\0/\0";
        const ROOT: u64 = ARGUMENTS as u64 + 13;
        self.write(ARGUMENTS, NAME)?;
        let advise = |at: usize, end: usize, advice: libc::c_int| {
            plain(libc::SYS_madvise, [at as u64, (end - at) as u64, advice as u64, 0, 0, 0])
        };
        let set_name = libc::PR_SET_NAME as u64;
        let calls = [
            plain(libc::SYS_close, [1, 0, 0, 0, 0, 0]),
            plain(libc::SYS_setpgid, [0; 6]),
            advise(AT, AT + PAGE, libc::MADV_DONTFORK),
            advise(STAGING, DATA_END, libc::MADV_DONTFORK),
            // These may be refused without harm. A sandbox may have made its root a folder of a
            // process that has ended, to which nobody can change.
            plain(libc::SYS_chdir, [ROOT, 0, 0, 0, 0, 0]),
            advise(STAGING, DATA_END, libc::MADV_NOHUGEPAGE),
            plain(libc::SYS_prctl, [set_name, ARGUMENTS as u64, 0, 0, 0, 0]),
        ];
        let mut results = [0; 7];
        self.call(&calls, &mut results)?;
        for (what, result) in ["close", "setpgid", "madvise", "madvise"].iter().zip(results) {
            checked(what, result)?;
        }
        Ok(())
    }

    /// Gives the other stagings their protection; returns them. The system may refuse memory that
    /// is writable and executable: what the program has of it stays then.
    pub(super) fn protect_others(&mut self) -> io::Result<Vec<(u8, Range<usize>)>> {
        let all = PROTECTIONS.iter().zip((OTHERS..DATA_END).step_by(OTHER));
        let protect = |(&protection, at): (&i32, usize)| {
            plain(libc::SYS_mprotect, [at as u64, OTHER as u64, protection as u64, 0, 0, 0])
        };
        let calls: Vec<_> = all.clone().map(protect).collect();
        let mut results = [0; PROTECTIONS.len()];
        self.call(&calls, &mut results)?;
        let made = all.zip(results).filter(|(_, result)| *result == 0);
        Ok(made.map(|((&protection, at), _)| (protection as u8, at..at + OTHER)).collect())
    }

    /// Opens userfaultfd in the helper, as [`Call::UFFD`], and takes a copy.
    pub(super) fn open_uffd(&mut self, access: &Access) -> io::Result<Uffd> {
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
        let uffd = Uffd::from_fd(because("taking userfaultfd", take(self.pid, 1))?);
        because("userfaultfd", uffd.handshake(features()))?;
        Ok(uffd)
    }

    /// Passes a descriptor to the helper, which gets it as the lowest number that is free there:
    /// [`Call::UFFD`].
    pub(super) fn receive_descriptor(&mut self, descriptor: impl AsFd) -> io::Result<()> {
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
    pub(super) fn write_filter(&mut self, code: &[seccomp::Instruction]) -> io::Result<usize> {
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

    /// Gives up all rights but that to a few calls (helper/H5).
    pub(super) fn lock_down(&mut self) -> io::Result<()> {
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
