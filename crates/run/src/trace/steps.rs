//! The calls by which a process becomes a helper: what it drops, receives and gives up before it
//! runs its loop.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use zfold_uffd::Uffd;

use super::channel::{ARGUMENTS, AT, OTHER, OTHERS, PROTECTIONS, checked};
use super::inject::Injection;
use crate::link::Call;
use crate::permission::Access;
use crate::sys::{process, seccomp};

/// Its name, and the name of the root.
const NAMES: &[u8] = b"zfold-inside\0/\0";
/// Where these are, a header for a descriptor, its capabilities, and its filter.
const NAME: usize = ARGUMENTS;
const ROOT: usize = NAME + NAMES.len() - 2;
const HEADER: usize = ARGUMENTS + 64;
const RIGHTS: usize = ARGUMENTS + 256;
const FILTER: usize = ARGUMENTS + 512;

/// How a helper gets its userfaultfd.
#[derive(Debug)]
pub(crate) enum Descriptor<'a> {
    /// It opens one.
    Open(&'a Access),
    /// It is given this one, of a child of fork.
    Given(OwnedFd),
}

impl Descriptor<'_> {
    /// Sends what the helper receives, if anything.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn send(&self, socket: &OwnedFd) -> io::Result<()> {
        match self {
            Self::Open(Access::Call) => Ok(()),
            Self::Open(Access::Device(device)) => process::send_descriptor(socket, &**device),
            Self::Given(uffd) => process::send_descriptor(socket, uffd),
        }
    }
}

/// A call of the helper.
#[derive(Debug)]
pub(super) struct Step {
    pub call: Call,
    /// What has failed if it fails; `None` if it may.
    name: Option<&'static str>,
    /// What it reads, and where.
    reads: Option<(usize, Vec<u8>)>,
}

impl Step {
    fn new(name: impl Into<Option<&'static str>>, number: libc::c_long, args: [u64; 6]) -> Self {
        let call = Call { number: number as u64, args };
        Self { call, name: name.into(), reads: None }
    }

    fn reads(self, at: usize, bytes: Vec<u8>) -> Self {
        Self { reads: Some((at, bytes)), ..self }
    }

    /// Writes what it reads.
    ///
    /// # Errors
    /// The helper has ended.
    pub(super) fn prepare(&self, injection: &Injection<'_>) -> io::Result<()> {
        self.reads.as_ref().map_or(Ok(()), |(at, bytes)| injection.put(*at, bytes))
    }

    /// Returns the result of the call.
    ///
    /// # Errors
    /// It must not fail, and has.
    pub(super) fn checked(&self, result: i64) -> io::Result<i64> {
        self.name.map_or(Ok(result), |name| checked(name, result))
    }
}

/// Returns all steps of a helper whose memory ends at `end`, and which of them make its other
/// stagings.
pub(super) fn all(end: usize, descriptor: &Descriptor<'_>) -> (Vec<Step>, Range<usize>) {
    let own = [AT as u64, (end - AT) as u64, libc::MADV_DONTFORK as u64, 0, 0, 0];
    let name = [libc::PR_SET_NAME as u64, NAME as u64, 0, 0, 0, 0];
    let mut steps = vec![
        Step::new("close in the helper", libc::SYS_close, [1, 0, 0, 0, 0, 0]),
        Step::new("setpgid in the helper", libc::SYS_setpgid, [0; 6]),
        // The page and the staging follow each other (helper/H4).
        Step::new("madvise in the helper", libc::SYS_madvise, own),
        // A sandbox may have made its root a folder of a process that has ended, to which no
        // process can change.
        Step::new(None, libc::SYS_chdir, [ROOT as u64, 0, 0, 0, 0, 0]).reads(NAME, NAMES.to_vec()),
        Step::new(None, libc::SYS_prctl, name),
    ];
    steps.extend(open(descriptor));
    let first = steps.len();
    // The system may refuse memory that is writable and executable: then the program's memory of
    // that kind stays.
    steps.extend(others(end).map(|(protection, range)| {
        let args = [range.start as u64, OTHER as u64, protection.into(), 0, 0, 0];
        Step::new(None, libc::SYS_mprotect, args)
    }));
    let stagings = first..steps.len();
    steps.extend(lock_down());
    (steps, stagings)
}

/// Returns the protections of the other stagings, and where these are.
pub(super) fn others(end: usize) -> impl Iterator<Item = (u8, Range<usize>)> {
    let places = (OTHERS..end).step_by(OTHER);
    PROTECTIONS.into_iter().zip(places).map(|(kind, at)| (kind as u8, at..at + OTHER))
}

/// Opens userfaultfd, as [`Call::UFFD`]: no other number above that of the socket is in use.
fn open(descriptor: &Descriptor<'_>) -> Vec<Step> {
    const OPENED: u64 = Call::NUMBER as u64 + 1;
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
    if let Descriptor::Open(Access::Call) = descriptor {
        let args = [flags, 0, 0, 0, 0, 0];
        return vec![Step::new("userfaultfd", libc::SYS_userfaultfd, args)];
    }
    let args = [0, HEADER as u64, libc::MSG_CMSG_CLOEXEC as u64, 0, 0, 0];
    let receive = Step::new("passing a descriptor", libc::SYS_recvmsg, args);
    let mut steps = vec![receive.reads(HEADER, header(HEADER))];
    if let Descriptor::Open(Access::Device(_)) = descriptor {
        let number = u64::from(Call::NUMBER);
        let new = [number, Uffd::NEW_CODE, flags, 0, 0, 0];
        let over = [OPENED, number, libc::O_CLOEXEC as u64, 0, 0, 0];
        steps.extend([
            Step::new("/dev/userfaultfd", libc::SYS_ioctl, new),
            Step::new("dup3 in the helper", libc::SYS_dup3, over),
            Step::new("close in the helper", libc::SYS_close, [OPENED, 0, 0, 0, 0, 0]),
        ]);
    }
    steps
}

/// Drops all rights except a few calls (helper/H5).
fn lock_down() -> [Step; 3] {
    // A header of version 3 for the calling thread, and no capability in six words.
    const VERSION: u64 = 0x2008_0522;
    let none = [VERSION, 0, 0, 0, 0].map(u64::to_ne_bytes).concat();
    let set = [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0];
    let rights = [RIGHTS as u64, RIGHTS as u64 + 8, 0, 0, 0, 0];
    let filter = [libc::SECCOMP_SET_MODE_FILTER as u64, 0, FILTER as u64, 0, 0, 0];
    [
        Step::new("no_new_privs", libc::SYS_prctl, set),
        Step::new("capset", libc::SYS_capset, rights).reads(RIGHTS, none),
        Step::new("the helper's filter", libc::SYS_seccomp, filter)
            .reads(FILTER, filter_at(FILTER, &seccomp::helpers_own())),
    ]
}

/// Returns a header for recvmsg at an address: no name, one vector, room for one descriptor.
fn header(at: usize) -> Vec<u8> {
    let vector = at as u64 + 56;
    let byte = vector + 16;
    let control = byte + 8;
    let words = [0, 0, vector, 1, control, 24, 0, byte, 1, 0, 0, 0, 0];
    words.iter().flat_map(|word: &u64| word.to_ne_bytes()).collect()
}

/// Returns a filter as it is installed from an address.
pub(super) fn filter_at(at: usize, code: &[seccomp::Instruction]) -> Vec<u8> {
    let mut bytes = (code.len() as u64).to_ne_bytes().to_vec();
    bytes.extend((at + 16).to_ne_bytes());
    for step in code {
        bytes.extend(step.code.to_ne_bytes());
        bytes.extend([step.jt, step.jf]);
        bytes.extend(step.k.to_ne_bytes());
    }
    bytes
}
