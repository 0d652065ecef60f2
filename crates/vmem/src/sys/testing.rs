//! Memory of this process that tests treat as a program's.

use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::run::memory::Call;

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
    // SAFETY: as of `map`.
    unsafe { raw(libc::SYS_munmap, args) }
}

/// Advises the kernel on memory of a window.
pub(crate) fn advise(range: &Range<usize>, advice: i32) -> i64 {
    let args = [range.start as u64, range.len() as u64, advice as u64, 0, 0, 0];
    // SAFETY: as of `map`.
    unsafe { raw(libc::SYS_madvise, args) }
}

/// Makes memory of a window read-only, or writable again.
pub(crate) fn protect(range: &Range<usize>, writable: bool) {
    let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    let args = [range.start as u64, range.len() as u64, protection as u64, 0, 0, 0];
    // SAFETY: as of `map`.
    check(unsafe { raw(libc::SYS_mprotect, args) }).unwrap();
}

/// Moves or resizes a mapping of a window.
pub(crate) fn remap(from: &Range<usize>, len: usize, flags: i32, to: usize) -> i64 {
    let args = [from.start as u64, from.len() as u64, len as u64, flags as u64, to as u64, 0];
    // SAFETY: as of `map`.
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
    // SAFETY: as of `put`.
    unsafe { pointer.read_volatile() }
}

/// A child of this process that makes calls; it has a copy of all memory.
pub(crate) struct Child {
    pub pid: i32,
    calls: UnixStream,
}

/// Bytes of a call on its way.
const CALL: usize = 7 * 8;

/// Forks.
pub(crate) fn fork() -> Child {
    let (here, there) = UnixStream::pair().unwrap();
    // SAFETY: the child makes system calls only, on its stack and the descriptor.
    match unsafe { libc::fork() } {
        0 => serve_calls(there.as_raw_fd()),
        pid => {
            assert!(pid > 0, "{}", io::Error::last_os_error());
            Child { pid, calls: here }
        }
    }
}

/// Makes the calls that come, until the other side is gone.
fn serve_calls(socket: i32) -> ! {
    let mut words = [0_u64; CALL / 8];
    loop {
        // SAFETY: reads into `words`.
        let got = unsafe { libc::read(socket, words.as_mut_ptr().cast(), CALL) };
        if got != CALL as isize {
            // SAFETY: ends the child without what would be run at a normal end.
            unsafe { libc::_exit(0) };
        }
        let [number, args @ ..] = words;
        // SAFETY: as of `call`.
        let result = unsafe { raw(number as i64, args) };
        // SAFETY: writes from `result`.
        unsafe { libc::write(socket, (&raw const result).cast(), 8) };
    }
}

impl Child {
    /// Returns access to the memory of a child, besides the one that makes calls.
    pub(crate) fn reader(pid: i32) -> Reader {
        Reader { pid }
    }

    /// Makes a call in the child.
    pub(crate) fn call(&mut self, call: &Call) -> io::Result<i64> {
        let mut bytes = [0; CALL];
        let words = std::iter::once(call.number).chain(call.args);
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        self.calls.write_all(&bytes)?;
        let mut result = [0; 8];
        self.calls.read_exact(&mut result)?;
        Ok(i64::from_ne_bytes(result))
    }

    /// Takes a copy of a descriptor of the child.
    pub(crate) fn descriptor(&self, number: i32) -> OwnedFd {
        // SAFETY: makes a descriptor.
        let process = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) };
        assert!(process >= 0, "{}", io::Error::last_os_error());
        // SAFETY: it was made just now.
        let process = unsafe { OwnedFd::from_raw_fd(process as i32) };
        // SAFETY: makes a descriptor.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: as above.
        unsafe { OwnedFd::from_raw_fd(fd as i32) }
    }

    /// Ends the child, which is then gone.
    pub(crate) fn end(&mut self) {
        let _ = self.calls.shutdown(std::net::Shutdown::Both);
        // SAFETY: waits for the child, writes no status.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

/// The memory of a child.
pub(crate) struct Reader {
    pid: i32,
}

impl Reader {
    /// Writes a word of the child's memory, as the child would.
    pub(crate) fn put(&self, at: usize, value: u64) -> io::Result<()> {
        // SAFETY: it is memory of a window.
        unsafe { crate::sys::remote::write(self.pid, at, &value.to_ne_bytes()) }
    }

    /// Reads a word of the child's memory.
    pub(crate) fn get(&self, at: usize) -> io::Result<u64> {
        let mut bytes = [0; 8];
        crate::sys::remote::read(self.pid, at, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}
