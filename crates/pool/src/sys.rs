//! The only place of this crate that makes system calls: reserving, opening, returning and
//! giving up address space, and asking for the CPU.
//!
//! All ranges are whole system pages. Memory that was opened and never written, or returned and
//! opened again, reads as zeros.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Size in bytes of the system's page.
pub(crate) fn page_bytes() -> usize {
    // Not a `OnceLock`, which would stay locked in a child that was forked meanwhile. Relaxed: all
    // threads find the same.
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    match BYTES.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: sysconf has no preconditions.
            let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            let bytes = usize::try_from(bytes).expect("the system has a page size");
            BYTES.store(bytes, Ordering::Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// Number of the CPU that the calling thread runs on; 0 if the system does not report it.
#[inline]
pub(crate) fn cpu() -> usize {
    // SAFETY: sched_getcpu has no preconditions.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// Reserves `bytes` of address space that nothing can touch yet; costs no memory.
pub(crate) fn reserve(bytes: usize) -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps nothing.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // Huge pages would make the resident size differ from what the pools count. A kernel without
    // them refuses the advice, which is as good. SAFETY: the range was mapped just now and no other
    // thread knows it.
    unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
    Ok(NonNull::new(start.cast()).expect("mmap never returns page zero"))
}

/// Maps a page of zeros that a forked child gets as zeros, whatever is in it; `None` if the kernel
/// has none.
pub(crate) fn wiped_page() -> Option<NonNull<u8>> {
    let (page, bytes) = (reserve(page_bytes()).ok()?, page_bytes());
    // SAFETY: all of a reservation that was made just now.
    let opened = unsafe { open(page, bytes) };
    // SAFETY: same as above.
    let wiped = unsafe { libc::madvise(page.as_ptr().cast(), bytes, libc::MADV_WIPEONFORK) };
    if opened.is_ok() && wiped == 0 {
        return Some(page);
    }
    // SAFETY: same as above, and no other thread knows it.
    unsafe { unreserve(page, bytes) };
    None
}

/// Makes a reserved range readable and writable.
///
/// # Safety
/// The range lies inside one live reservation.
pub(crate) unsafe fn open(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the caller names a range of its own reservation; giving access harms no one.
    match unsafe { libc::mprotect(start.as_ptr().cast(), bytes, access) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the memory behind an open range to the system; the range reads as zeros afterwards.
///
/// # Safety
/// The range lies inside one live reservation, is open, and no thread reads or writes it during the
/// call or expects its contents afterwards.
pub(crate) unsafe fn discard(start: NonNull<u8>, bytes: usize) {
    let advise = |advice| {
        // SAFETY: the caller has given up the contents of the range.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, advice) == 0 }
    };
    // Relaxed: a stale value costs a call that is refused.
    let locked = LOCKED.load(Ordering::Relaxed);
    if !locked && advise(libc::MADV_DONTNEED) {
        return;
    }
    assert!(advise(DONTNEED_LOCKED), "madvise(MADV_DONTNEED): {}", io::Error::last_os_error());
    if !locked {
        LOCKED.store(true, Ordering::Relaxed);
    }
}

/// Whether the plain advice was refused, as it is for locked memory alone; from then on the other
/// one, which serves both, is given at once. Not from the start: QEMU takes it and does nothing.
static LOCKED: AtomicBool = AtomicBool::new(false);

/// `MADV_DONTNEED` also for memory that the process has locked (mlockall), as servers do that
/// must not be swapped out (Linux 5.18 and later).
const DONTNEED_LOCKED: libc::c_int = 24;

/// Ranges that one [`advise_many`] call takes.
const RANGES_MAX: usize = 1024;

/// Whether the system takes many ranges in one call; cleared when it first says no.
static TAKES_MANY: AtomicBool = AtomicBool::new(true);

/// The calling thread, and so its process, in place of a file descriptor (Linux 6.14 and later).
const PIDFD_SELF: libc::c_int = -10_000;

/// Gives the same advice on up to 1024 ranges of this process in one call, which flushes
/// translations once for all of them (Linux 6.16). Returns for how many bytes of them, from the
/// first on, the system took it; of the range where it stopped, a part may be done, too.
///
/// # Errors
/// It took none; before Linux 6.14 it never does.
///
/// # Safety
/// As for `madvise` with this advice, for every range.
pub unsafe fn advise_many(ranges: &[libc::iovec], advice: libc::c_int) -> io::Result<usize> {
    let (first, count) = (ranges.as_ptr(), ranges.len());
    // SAFETY: `ranges` lives during the call and has that many entries; the caller answers for the
    // advice.
    let result =
        unsafe { libc::syscall(libc::SYS_process_madvise, PIDFD_SELF, first, count, advice, 0) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Does what [`discard`] does for many ranges, in one call of the system for up to 1024 of them.
/// Every call makes all CPUs that run this process forget their translations, which costs
/// microseconds and grows with their number; where the system cannot do it (before Linux 6.14),
/// there is a call for each range.
///
/// # Safety
/// As for [`discard`], for every range.
pub(crate) unsafe fn discard_all(ranges: &[(NonNull<u8>, usize)]) {
    for some in ranges.chunks(RANGES_MAX) {
        let vectors: Vec<_> = some
            .iter()
            .map(|&(start, bytes)| libc::iovec { iov_base: start.as_ptr().cast(), iov_len: bytes })
            .collect();
        // Relaxed: a stale value costs a call that fails.
        let many = some.len() > 1 && TAKES_MANY.load(Ordering::Relaxed) && !cfg!(miri);
        let mut done = 0;
        if many {
            // SAFETY: the caller has given up the contents of the ranges.
            match unsafe { advise_many(&vectors, DONTNEED_LOCKED) } {
                Ok(bytes) => done = bytes,
                Err(_) => TAKES_MANY.store(false, Ordering::Relaxed),
            }
        }
        // The part of a range that the system left, from its front on: all of it again does no
        // harm.
        for &(start, bytes) in some {
            match done.checked_sub(bytes) {
                Some(rest) => done = rest,
                // SAFETY: the caller's promise for this range.
                None => unsafe { discard(start, bytes) },
            }
        }
    }
}

/// Gives up a reservation.
///
/// # Safety
/// `start` and `bytes` are those of one [`reserve`] call, and nothing uses the range any longer.
pub(crate) unsafe fn unreserve(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller owns the whole mapping and has ended its use.
    unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
}
