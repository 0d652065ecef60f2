//! Memory of this process that tests treat as a program's.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::link::Call;

/// Returns a part of the address space, `len` bytes, where nothing is mapped and nobody else maps.
pub(crate) fn window(len: usize) -> Range<usize> {
    static NEXT: AtomicUsize = AtomicUsize::new(0x5a00_0000_0000);
    let start = NEXT.fetch_add(len.next_multiple_of(1 << 32), Ordering::Relaxed);
    start..start + len
}

fn check(result: i64) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result as i32))
}

/// Makes a system call; returns what it does, negative error numbers included.
///
/// # Safety
/// Its own.
unsafe fn raw(number: i64, args: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    // SAFETY: the caller answers for the call.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 {
        return -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
    }
    result
}

/// Makes a call as a helper would, on memory of windows.
pub(crate) fn call(call: &Call) -> i64 {
    // SAFETY: the memory side makes calls on memory that tests treat as another process's.
    unsafe { raw(call.number as i64, call.args) }
}

/// Maps private anonymous memory at a place in a window.
pub(crate) fn map(at: usize, len: usize, readable: bool) -> i64 {
    let protection = if readable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let args = [at as u64, len as u64, protection as u64, flags as u64, u64::MAX, 0];
    // SAFETY: windows hold nothing but what tests map there.
    unsafe { raw(libc::SYS_mmap, args) }
}

/// Unmaps memory of a window.
pub(crate) fn unmap(range: &Range<usize>) -> i64 {
    let args = [range.start as u64, range.len() as u64, 0, 0, 0, 0];
    // SAFETY: same as for `map`.
    unsafe { raw(libc::SYS_munmap, args) }
}

/// Advises the kernel on memory of a window.
pub(crate) fn advise(range: &Range<usize>, advice: i32) -> i64 {
    let args = [range.start as u64, range.len() as u64, advice as u64, 0, 0, 0];
    // SAFETY: same as for `map`.
    unsafe { raw(libc::SYS_madvise, args) }
}

/// Writes bytes to memory of a window.
pub(crate) fn write(to: usize, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: windows hold nothing but what tests put there.
    unsafe { crate::sys::remote::write(std::process::id() as i32, to, bytes) }
}

/// Makes memory of a window read-only, or writable again.
pub(crate) fn protect(range: &Range<usize>, writable: bool) {
    protect_as(range, if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ });
}

/// Changes what may be done with memory of a window.
pub(crate) fn protect_as(range: &Range<usize>, protection: i32) {
    let args = [range.start as u64, range.len() as u64, protection as u64, 0, 0, 0];
    // SAFETY: same as for `map`.
    check(unsafe { raw(libc::SYS_mprotect, args) }).unwrap();
}

/// Moves or resizes a mapping of a window.
pub(crate) fn remap(from: &Range<usize>, len: usize, flags: i32, to: usize) -> i64 {
    let args = [from.start as u64, from.len() as u64, len as u64, flags as u64, to as u64, 0];
    // SAFETY: same as for `map`.
    unsafe { raw(libc::SYS_mremap, args) }
}

/// Writes a word, as a program does.
pub(crate) fn put(at: usize, value: u64) {
    let pointer = std::ptr::with_exposed_provenance_mut::<u64>(at);
    // SAFETY: the word is aligned memory of a window, accessed in no other way.
    unsafe { pointer.write_volatile(value) };
}

/// Reads a word.
pub(crate) fn get(at: usize) -> u64 {
    let pointer = std::ptr::with_exposed_provenance::<u64>(at);
    // SAFETY: same as for `put`.
    unsafe { pointer.read_volatile() }
}
