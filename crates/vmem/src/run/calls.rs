//! What a system call means for the address space of its caller.
//!
//! Ranges are rounded as the kernel rounds them, and calls that it refuses for their arguments
//! mean nothing. What a call does in other spaces is not of interest: the kernel lets no process
//! give up or map pages of another.

use std::io;
use std::ops::Range;

use crate::run::memory::Change;
use crate::sys::seccomp::{DISCARDING, WATCH};
use crate::sys::{process, ptrace::Syscall};

const PAGE: usize = 4096;
/// Beyond any address of a program, also with five levels of page tables.
const END: usize = (1 << 56) - PAGE;
/// Size of huge pages in a flag of mmap: its logarithm, from this bit on; 0 means the default.
const HUGE_SHIFT: i32 = 26;
const HUGE_MASK: i32 = 63;
const HUGE_DEFAULT: usize = 21;
/// Ranges in one call, at most (`UIO_MAXIOV`).
const VECTOR_MAX: usize = 1024;

/// What a call is about to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing that matters.
    Nothing,
    /// One change.
    Change(Change),
    /// Several, in order.
    Changes(Vec<Change>),
    /// A child with a copy of the address space.
    Fork,
}

/// Reads bytes of the caller's memory; all of them or an error.
pub(crate) type Read<'a> = &'a dyn Fn(usize, &mut [u8]) -> io::Result<()>;

/// What `call` means.
pub(crate) fn decode(call: &Syscall, read: Read<'_>) -> Meaning {
    let args = &call.args;
    let arg = |index: usize| args[index] as usize;
    let change = match call.number as libc::c_long {
        libc::SYS_mmap => map(arg(0), arg(1), args[2] as i32, args[3] as i32),
        libc::SYS_munmap => covered(arg(0), arg(1)).map(|range| Change::Unmap { range }),
        libc::SYS_madvise => advise(arg(0), arg(1), args[2] as i32),
        libc::SYS_ioctl => watch(args[1] as u32, arg(2), read),
        libc::SYS_brk => Some(Change::Brk { to: arg(0) }),
        libc::SYS_mremap => remap(arg(0), arg(1), arg(2), args[3] as i32, arg(4)),
        libc::SYS_shmat => attach_segment(args[0] as i32, arg(1), args[2] as i32),
        libc::SYS_process_madvise => {
            return Meaning::Changes(discards(arg(1), arg(2), args[3] as i32, read));
        }
        libc::SYS_fork => return Meaning::Fork,
        libc::SYS_clone | libc::SYS_clone3 => {
            return match flags_of_clone(call, read) {
                Some(flags) if flags & libc::CLONE_VM as u64 == 0 => Meaning::Fork,
                _ => Meaning::Nothing,
            };
        }
        _ => None,
    };
    change.map_or(Meaning::Nothing, Meaning::Change)
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

fn round_up(len: usize, to: usize) -> Option<usize> {
    len.checked_next_multiple_of(to)
}

/// The pages that `len` bytes at `at` lie in; `None` if there are none, if `at` is not the
/// beginning of a page, or if they cannot all exist.
fn covered(at: usize, len: usize) -> Option<Range<usize>> {
    covered_by(at, len, PAGE)
}

fn covered_by(at: usize, len: usize, page: usize) -> Option<Range<usize>> {
    let end = at.checked_add(round_up(len, page)?)?;
    (at.is_multiple_of(PAGE) && len > 0 && end <= END).then_some(at..end)
}

fn map(at: usize, len: usize, protection: i32, flags: i32) -> Option<Change> {
    let replaces = flags & libc::MAP_FIXED != 0 && flags & libc::MAP_FIXED_NOREPLACE == 0;
    let huge = flags & libc::MAP_HUGETLB != 0;
    let plain = flags & libc::MAP_ANONYMOUS != 0
        && flags & libc::MAP_TYPE == libc::MAP_PRIVATE
        && flags & libc::MAP_GROWSDOWN == 0
        && !huge;
    if plain {
        let placed = replaces || flags & libc::MAP_FIXED_NOREPLACE != 0;
        let at = if placed { at } else { at - at % PAGE };
        let range = covered(at, len)?;
        let reserve_only = protection == libc::PROT_NONE;
        return Some(Change::Map { at, len: range.len(), fixed: replaces, reserve_only });
    }
    if !replaces || flags & libc::MAP_TYPE == 0 {
        return None;
    }
    let page = match (huge, flags >> HUGE_SHIFT & HUGE_MASK) {
        (false, _) => PAGE,
        (true, 0) => 1 << HUGE_DEFAULT,
        (true, log) => 1_usize.checked_shl(log.cast_unsigned())?,
    };
    Some(Change::Replace { range: covered_by(at, len, page)? })
}

fn advise(at: usize, len: usize, advice: i32) -> Option<Change> {
    if advice == libc::MADV_PAGEOUT {
        return Some(Change::PageOut { range: covered(at, len)? });
    }
    discard(at, len, advice)
}

/// An ioctl by which the program watches memory by userfaultfd itself.
fn watch(code: u32, at: usize, read: Read<'_>) -> Option<Change> {
    let mut range = [0; 16];
    if code != WATCH || read(at, &mut range).is_err() {
        return None;
    }
    let word = |at: usize| usize::from_ne_bytes(range[at..at + 8].try_into().expect("8 bytes"));
    Some(Change::Yield { range: covered(word(0), word(8))? })
}

fn discard(at: usize, len: usize, advice: i32) -> Option<Change> {
    if !DISCARDING.contains(&advice) {
        return None;
    }
    Some(Change::Discard { range: covered(at, len)? })
}

/// The ranges of process_madvise. The kernel takes such advice for the caller's own space only, so
/// they are ranges of that, or the call fails.
fn discards(vector: usize, count: usize, advice: i32, read: Read<'_>) -> Vec<Change> {
    let mut bytes = vec![0; 16 * count.min(VECTOR_MAX)];
    if count > VECTOR_MAX || read(vector, &mut bytes).is_err() {
        return Vec::new();
    }
    let word = |entry: &[u8]| usize::from_ne_bytes(entry.try_into().expect("eight bytes"));
    bytes
        .chunks_exact(16)
        .filter_map(|entry| discard(word(&entry[..8]), word(&entry[8..]), advice))
        .collect()
}

fn remap(at: usize, old: usize, new: usize, flags: i32, to: usize) -> Option<Change> {
    let (may_move, fixed, keep) = (
        flags & libc::MREMAP_MAYMOVE != 0,
        flags & libc::MREMAP_FIXED != 0,
        flags & libc::MREMAP_DONTUNMAP != 0,
    );
    let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    if flags & !known != 0 || (fixed || keep) && !may_move {
        return None;
    }
    let from = covered(at, old)?;
    let len = covered(0, new)?.len();
    if keep && len != from.len() {
        return None;
    }
    let fixed = if fixed {
        let target = covered(to, new)?;
        if target.start < from.end && from.start < target.end {
            return None;
        }
        Some(to)
    } else {
        None
    };
    Some(Change::Remap { from, len, fixed, keep })
}

/// shmat over what is there already.
fn attach_segment(id: i32, at: usize, flags: i32) -> Option<Change> {
    if flags & libc::SHM_REMAP == 0 || at == 0 {
        return None;
    }
    let at = if flags & libc::SHM_RND != 0 { at - at % PAGE } else { at };
    Some(Change::Replace { range: covered(at, process::segment_len(id)?)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(number: libc::c_long, args: [u64; 6]) -> Meaning {
        let call = Syscall { arch: 0, number: number as u64, args };
        decode(&call, &|_, _| Err(io::Error::from_raw_os_error(libc::EFAULT)))
    }

    fn mapped(at: u64, len: u64, flags: i32) -> Meaning {
        meaning(libc::SYS_mmap, [at, len, 3, flags as u64, u64::MAX, 0])
    }

    const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

    #[test]
    fn lengths_are_rounded_up_and_hints_down() {
        assert_eq!(
            mapped(0x1234, 1, PRIVATE),
            Meaning::Change(Change::Map {
                at: 0x1000,
                len: 4096,
                fixed: false,
                reserve_only: false
            })
        );
        assert_eq!(
            meaning(libc::SYS_munmap, [0x1000, 4097, 0, 0, 0, 0]),
            Meaning::Change(Change::Unmap { range: 0x1000..0x3000 })
        );
    }

    #[test]
    fn what_the_kernel_refuses_means_nothing() {
        for refused in [
            mapped(0, 0, PRIVATE),
            mapped(0x1001, 4096, PRIVATE | libc::MAP_FIXED),
            mapped(0, u64::MAX, PRIVATE),
            meaning(libc::SYS_munmap, [0x1001, 4096, 0, 0, 0, 0]),
            meaning(libc::SYS_munmap, [0x1000, u64::MAX - 0x800, 0, 0, 0, 0]),
            meaning(libc::SYS_madvise, [0x1000, 0, libc::MADV_DONTNEED as u64, 0, 0, 0]),
            meaning(libc::SYS_mremap, [0x1000, 4096, 8192, 2, 0x8000, 0]),
            meaning(libc::SYS_mremap, [0x1000, 8192, 8192, 3, 0x2000, 0]),
            meaning(libc::SYS_mremap, [0x1000, 4096, 8192, 5, 0, 0]),
            meaning(libc::SYS_mremap, [0x1000, 0, 4096, 1, 0, 0]),
        ] {
            assert_eq!(refused, Meaning::Nothing);
        }
    }

    #[test]
    fn only_fixed_maps_replace() {
        let range = 0x20_0000..0x20_1000;
        let replace = Meaning::Change(Change::Replace { range });
        let at = 0x20_0000;
        assert_eq!(mapped(at, 4096, libc::MAP_SHARED | libc::MAP_FIXED), replace);
        assert_eq!(mapped(at, 4096, libc::MAP_PRIVATE | libc::MAP_FIXED), replace);
        assert_eq!(mapped(at, 4096, libc::MAP_PRIVATE), Meaning::Nothing);
        let careful = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
        assert_eq!(mapped(at, 4096, libc::MAP_SHARED | careful), Meaning::Nothing);
        let Meaning::Change(Change::Map { fixed, .. }) = mapped(at, 4096, PRIVATE | careful) else {
            panic!("a map");
        };
        assert!(!fixed);
        let huge = PRIVATE | libc::MAP_FIXED | libc::MAP_HUGETLB;
        let range = 0x20_0000..0x40_0000;
        assert_eq!(mapped(at, 4096, huge), Meaning::Change(Change::Replace { range }));
    }

    #[test]
    fn remapping_says_where_to_and_what_stays() {
        assert_eq!(
            meaning(libc::SYS_mremap, [0x1000, 4096, 4096, 7, 0x8000, 0]),
            Meaning::Change(Change::Remap {
                from: 0x1000..0x2000,
                len: 4096,
                fixed: Some(0x8000),
                keep: true
            })
        );
    }

    #[test]
    fn a_vector_of_advice_is_several_changes() {
        let advice = libc::MADV_DONTNEED as u64;
        let call = Syscall {
            arch: 0,
            number: libc::SYS_process_madvise as u64,
            args: [0, 0x100, 2, advice, 0, 0],
        };
        let entries = [0x1000_usize, 4096, 0x8000, 100];
        let read = |from: usize, to: &mut [u8]| {
            assert_eq!(from, 0x100);
            for (bytes, entry) in to.chunks_exact_mut(8).zip(entries) {
                bytes.copy_from_slice(&entry.to_ne_bytes());
            }
            Ok(())
        };
        assert_eq!(
            decode(&call, &read),
            Meaning::Changes(vec![
                Change::Discard { range: 0x1000..0x2000 },
                Change::Discard { range: 0x8000..0x9000 },
            ])
        );
    }

    #[test]
    fn a_thread_is_no_fork() {
        let thread = libc::CLONE_VM as u64;
        assert_eq!(meaning(libc::SYS_clone, [thread, 0, 0, 0, 0, 0]), Meaning::Nothing);
        assert_eq!(meaning(libc::SYS_clone, [17, 0, 0, 0, 0, 0]), Meaning::Fork);
        assert_eq!(meaning(libc::SYS_fork, [0; 6]), Meaning::Fork);
    }
}
