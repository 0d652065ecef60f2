//! What the memory side has to do for the system calls that the filter stops.
//!
//! | call | why the kernel's own messages do not suffice |
//! | --- | --- |
//! | mremap | it fails if part of the range is closed, and the order of two is not reported |
//! | fork | a child that is reported too late has no pages |
//! | mprotect, large | memory that cannot be written to cannot leave |
//! | madvise(PAGEOUT) | the kernel would page out to its swap; zfold's pages are to leave |
//! | madvise(WIPEONFORK) | the child would see the pages that left |
//! | madvise(GUARD_INSTALL) | it drops pages without a message |
//! | ioctl(UFFDIO_REGISTER) | a range has one descriptor |
//! | ioctl(UFFDIO_MOVE) | pages that have left are not moved |
//! | shmat(SHM_REMAP) | it unmaps without a message |
//! | mmap, large | a program fills it before the watcher looks |
//! | brk, under a small limit or that of a group | the same |
//! | exit_group, wait4, waitid, setns, process_mrelease | they notice a helper ([`super::aside`]) |
//! | unshare(NEWUSER) | it notices a thread that was joined ([`super::ends`]) |
//! | prctl and seccomp, of a mode | they notice the filter ([`super::modes`]) |
//!
//! Ranges are rounded as the kernel rounds them, and calls that it refuses for their arguments need
//! nothing.

use std::io;
use std::ops::Range;

use crate::link::Request;
use crate::sys::arch::{self, untagged};
use crate::sys::process;
use crate::sys::ptrace::Syscall;
use crate::sys::seccomp::{GUARD_INSTALL, MOVE, WATCH};
use zfold_uffd::page::{PAGE_LEN_MAX, page_len};

/// Beyond any address of a program, also with five levels of page tables.
const END: usize = (1 << 56) - PAGE_LEN_MAX;
/// Most ranges of one call (`UIO_MAXIOV`).
const VECTOR_MAX: usize = 1024;

/// What a call is about to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing that matters.
    Nothing,
    /// This request is done before the call.
    Before(Request),
    /// A large mapping of so many bytes, all of them at once if `filled`.
    Map { len: usize, filled: bool },
    /// The end of the heap moves.
    Heap,
    /// A range is moved or resized to so many bytes.
    Move { from: Range<usize>, len: usize },
    /// A child with a copy of the address space.
    Fork,
}

/// A call that would notice a helper ([`super::aside`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aside {
    /// The process ends.
    Exit,
    /// It waits for children of any kind.
    Wait,
    /// It changes namespaces.
    Namespace,
    /// The memory of a killed process is released.
    Release { pidfd: i32 },
}

impl Aside {
    /// Whether it notices only children of its process.
    pub(crate) fn is_about_children(self) -> bool {
        matches!(self, Self::Exit | Self::Wait)
    }

    /// Returns the kind of a call that would notice a helper.
    pub(crate) fn of(call: &Syscall) -> Option<Self> {
        match call.number as libc::c_long {
            libc::SYS_exit_group => Some(Self::Exit),
            // The filter stops only waits for all kinds of children.
            libc::SYS_wait4 | libc::SYS_waitid => Some(Self::Wait),
            libc::SYS_setns => Some(Self::Namespace),
            libc::SYS_process_mrelease => Some(Self::Release { pidfd: call.args[0] as i32 }),
            _ => None,
        }
    }
}

/// Reads bytes of the caller's memory; all of them or an error.
pub(crate) type Read<'a> = &'a dyn Fn(usize, &mut [u8]) -> io::Result<()>;

/// What `call` means.
pub(crate) fn decode(call: &Syscall, read: Read<'_>) -> Meaning {
    let args = &call.args;
    let arg = |index: usize| args[index] as usize;
    let before = match call.number as libc::c_long {
        libc::SYS_mmap => {
            let filled = args[3] & libc::MAP_POPULATE as u64 != 0;
            return covered(0, arg(1))
                .map_or(Meaning::Nothing, |range| Meaning::Map { len: range.len(), filled });
        }
        libc::SYS_brk if arg(0) != 0 => return Meaning::Heap,
        libc::SYS_mremap => {
            let len = covered(0, arg(2)).map(|range| range.len());
            return match (covered(arg(0), arg(1)), len) {
                (Some(from), Some(len)) => Meaning::Move { from, len },
                _ => Meaning::Nothing,
            };
        }
        arch::FORK => return Meaning::Fork,
        libc::SYS_clone | libc::SYS_clone3 => {
            return match flags_of_clone(call, read) {
                Some(flags) if flags & libc::CLONE_VM as u64 == 0 => Meaning::Fork,
                _ => Meaning::Nothing,
            };
        }
        libc::SYS_mprotect => covered(arg(0), arg(1)).map(|range| Request::Protect { range }),
        libc::SYS_madvise => covered(arg(0), arg(1)).map(|range| match args[2] as i32 {
            libc::MADV_PAGEOUT => Request::PageOut { range },
            // The filter stops no other advice than these, WIPEONFORK and GUARD_INSTALL.
            _ => Request::Open { range },
        }),
        libc::SYS_process_madvise if args[3] as i32 == GUARD_INSTALL => {
            around(arg(1), arg(2), read).map(|range| Request::Open { range })
        }
        libc::SYS_ioctl => watch(args[1] as u32, arg(2), read).map(|range| Request::Open { range }),
        libc::SYS_shmat => {
            segment(args[0] as i32, arg(1), args[2] as i32).map(|range| Request::Open { range })
        }
        _ => None,
    };
    before.map_or(Meaning::Nothing, Meaning::Before)
}

/// The flags of clone or clone3; `None` if they cannot be read.
pub(crate) fn flags_of_clone(call: &Syscall, read: Read<'_>) -> Option<u64> {
    if call.number as libc::c_long == libc::SYS_clone {
        return Some(call.args[0]);
    }
    let mut flags = [0; 8];
    read(call.args[0] as usize, &mut flags).ok()?;
    Some(u64::from_ne_bytes(flags))
}

/// The pages that `len` bytes at `at` lie in; `None` if there are none, if `at` is not the
/// beginning of a page, or if they cannot all exist.
fn covered(at: usize, len: usize) -> Option<Range<usize>> {
    let at = untagged(at);
    let end = at.checked_add(len.checked_next_multiple_of(page_len())?)?;
    (at.is_multiple_of(page_len()) && len > 0 && end <= END).then_some(at..end)
}

/// The range of an ioctl by which the program watches memory by userfaultfd itself, or from which
/// it moves pages.
fn watch(code: u32, at: usize, read: Read<'_>) -> Option<Range<usize>> {
    /// Of a move, the destination comes first.
    const SOURCE: usize = 8;
    let from = match code {
        WATCH => at,
        MOVE => at.checked_add(SOURCE)?,
        _ => return None,
    };
    let mut range = [0; 16];
    if read(from, &mut range).is_err() {
        return None;
    }
    let word = |at: usize| usize::from_ne_bytes(range[at..at + 8].try_into().expect("8 bytes"));
    covered(word(0), word(8))
}

/// From the first to the last of the ranges of process_madvise.
fn around(vector: usize, count: usize, read: Read<'_>) -> Option<Range<usize>> {
    let mut bytes = vec![0; 16 * count.min(VECTOR_MAX)];
    if count > VECTOR_MAX || read(vector, &mut bytes).is_err() {
        return None;
    }
    let word = |entry: &[u8]| usize::from_ne_bytes(entry.try_into().expect("eight bytes"));
    let entries = bytes.chunks_exact(16);
    let ranges = entries.filter_map(|entry| covered(word(&entry[..8]), word(&entry[8..])));
    ranges.reduce(|all, range| all.start.min(range.start)..all.end.max(range.end))
}

/// What shmat maps over.
fn segment(id: i32, at: usize, flags: i32) -> Option<Range<usize>> {
    if flags & libc::SHM_REMAP == 0 || at == 0 {
        return None;
    }
    let at = if flags & libc::SHM_RND != 0 { at - at % page_len() } else { at };
    covered(at, process::segment_len(id)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::seccomp::WIPE_ON_FORK;

    fn meaning(number: libc::c_long, args: [u64; 6]) -> Meaning {
        let call = Syscall { arch: 0, number: number as u64, args };
        decode(&call, &|_, _| Err(io::Error::from_raw_os_error(libc::EFAULT)))
    }

    #[test]
    fn lengths_are_rounded_up() {
        let (len, page) = (page_len(), page_len() as u64);
        assert_eq!(
            meaning(libc::SYS_mremap, [page, 1, page + 1, 1, 0, 0]),
            Meaning::Move { from: len..2 * len, len: 2 * len }
        );
        assert_eq!(
            meaning(libc::SYS_madvise, [page, page + 1, libc::MADV_PAGEOUT as u64, 0, 0, 0]),
            Meaning::Before(Request::PageOut { range: len..3 * len })
        );
    }

    #[test]
    fn what_the_kernel_refuses_means_nothing() {
        let page = page_len() as u64;
        for refused in [
            meaning(libc::SYS_madvise, [page, 0, libc::MADV_PAGEOUT as u64, 0, 0, 0]),
            meaning(libc::SYS_madvise, [page + 1, 9, libc::MADV_PAGEOUT as u64, 0, 0, 0]),
            meaning(libc::SYS_mremap, [page + 1, page, 2 * page, 1, 0, 0]),
            meaning(libc::SYS_mremap, [page, page, u64::MAX, 1, 0, 0]),
            meaning(libc::SYS_mmap, [0, u64::MAX, 3, 0x22, 0, 0]),
        ] {
            assert_eq!(refused, Meaning::Nothing);
        }
    }

    #[test]
    fn a_thread_is_no_fork() {
        let thread = libc::CLONE_VM as u64;
        assert_eq!(meaning(libc::SYS_clone, [thread, 0, 0, 0, 0, 0]), Meaning::Nothing);
        assert_eq!(meaning(libc::SYS_clone, [17, 0, 0, 0, 0, 0]), Meaning::Fork);
        if arch::FORK >= 0 {
            assert_eq!(meaning(arch::FORK, [0; 6]), Meaning::Fork);
        }
    }

    #[test]
    fn what_is_wiped_and_what_gets_a_guard_is_opened() {
        let page = page_len();
        let advised =
            |advice: i32| meaning(libc::SYS_madvise, [page as u64, 1, advice as u64, 0, 0, 0]);
        let open = Meaning::Before(Request::Open { range: page..2 * page });
        assert_eq!([advised(WIPE_ON_FORK), advised(GUARD_INSTALL)], [open.clone(), open]);
    }

    #[test]
    fn a_vector_of_guards_is_one_range() {
        let guard = GUARD_INSTALL as u64;
        let call = Syscall {
            arch: 0,
            number: libc::SYS_process_madvise as u64,
            args: [0, 0x100, 2, guard, 0, 0],
        };
        let page = page_len();
        let entries = [8 * page, 100, page, page];
        let read = |from: usize, to: &mut [u8]| {
            assert_eq!(from, 0x100);
            for (bytes, entry) in to.chunks_exact_mut(8).zip(entries) {
                bytes.copy_from_slice(&entry.to_ne_bytes());
            }
            Ok(())
        };
        let range = page..9 * page;
        assert_eq!(decode(&call, &read), Meaning::Before(Request::Open { range }));
    }
}
