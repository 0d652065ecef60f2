//! Memory of another process.
//!
//! Reads change nothing, here or there; what they return may mix several moments, since the process
//! runs. Writing is `unsafe`: it is for addresses that are reserved for the caller (helper/H1). No
//! pointer of the other process is ever followed here: addresses there are numbers.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Reads `into.len()` bytes of the process from `from` on. Waits for pages of the process's
/// userfaultfd.
///
/// # Errors
/// `EFAULT` if the memory is not mapped or not readable, `ESRCH` if the process is gone, `EPERM`
/// without the right to trace it. Some of `into` may have been written.
pub(crate) fn read(pid: i32, from: usize, into: &mut [u8]) -> io::Result<()> {
    // SAFETY: the call writes to `into` only; the remote address is looked up in the other process.
    unsafe { transfer(libc::process_vm_readv, pid, into.as_mut_ptr(), from, into.len()) }
}

/// The same for memory that the process itself may not read. Does not wait for pages.
///
/// # Errors
/// Same as [`read`], and where such a page is missing.
pub(crate) fn read_forced(pid: i32, from: usize, into: &mut [u8]) -> io::Result<()> {
    fs::File::open(format!("/proc/{pid}/mem"))?.read_exact_at(into, from as u64)
}

/// Writes `bytes` to memory of the process from `to` on.
///
/// # Errors
/// Same as [`read`]. Some may have been written.
///
/// # Safety
/// The memory there is reserved for the caller: nothing else relies on its contents.
pub(crate) unsafe fn write(pid: i32, to: usize, bytes: &[u8]) -> io::Result<()> {
    let here = bytes.as_ptr().cast_mut();
    // SAFETY: the call reads `bytes` only; the caller answers for what is overwritten.
    unsafe { transfer(libc::process_vm_writev, pid, here, to, bytes.len()) }
}

/// A call that transfers bytes between this process and another one.
type Transfer = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// Transfers `len` bytes between `here` and the address `there` of the process by `call`, in
/// several calls if necessary.
///
/// # Errors
/// Those of the call, and `EFAULT` if it transfers nothing, which would repeat for ever.
///
/// # Safety
/// `call` may access `len` bytes from `here` on, and change what it changes in the process.
unsafe fn transfer(
    call: Transfer,
    pid: i32,
    here: *mut u8,
    there: usize,
    len: usize,
) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let left = len - done;
        let local = libc::iovec { iov_base: here.wrapping_add(done).cast(), iov_len: left };
        let remote =
            libc::iovec { iov_base: std::ptr::without_provenance_mut(there + done), iov_len: left };
        // SAFETY: both vectors live during the call, and the caller answers for the bytes.
        let result = unsafe { call(pid, &local, 1, &remote, 1, 0) };
        match usize::try_from(result) {
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::EFAULT)),
            Ok(bytes) => done += bytes,
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_copied_both_ways_and_missing_memory_is_an_error() {
        let pid = std::process::id() as i32;
        let here = vec![7_u8; 10_000];
        let mut copy = vec![0; here.len()];
        read(pid, here.as_ptr().addr(), &mut copy).unwrap();
        assert_eq!(copy, here);
        let there = vec![0_u8; 10_000];
        // SAFETY: `there` is this test's own, and read only afterwards, through the kernel.
        unsafe { write(pid, there.as_ptr().addr(), &here) }.unwrap();
        read(pid, there.as_ptr().addr(), &mut copy).unwrap();
        assert_eq!(copy, here);
        let error = read(pid, 8, &mut copy).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    }
}
