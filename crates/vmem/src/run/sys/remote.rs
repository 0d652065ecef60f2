//! Memory of another process.

use std::io;

fn pid_t(pid: i32) -> libc::pid_t {
    pid
}

/// Reads `into.len()` bytes of the process from `from` on. Waits for pages that the process asks
/// of a userfaultfd.
///
/// # Errors
/// `EFAULT` if the memory is not mapped or not readable, `ESRCH` if the process is gone, `EPERM`
/// without the right to trace it. Some of `into` may have been written.
pub(crate) fn read(pid: i32, from: usize, into: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < into.len() {
        let rest = &mut into[done..];
        let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let remote = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(from + done),
            iov_len: rest.len(),
        };
        // SAFETY: the kernel writes to `rest` only, which is borrowed across the call; the remote
        // address is looked up in the other process.
        let got = unsafe { libc::process_vm_readv(pid_t(pid), &local, 1, &remote, 1, 0) };
        done += advance(got)?;
    }
    Ok(())
}

/// Writes `bytes` to memory of the process from `to` on.
///
/// # Errors
/// As of [`read`]. Some may have been written.
///
/// # Safety
/// Nobody relies on what the process has there: it is reserved for the caller.
pub(crate) unsafe fn write(pid: i32, to: usize, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        let local = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
        let remote = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(to + done),
            iov_len: rest.len(),
        };
        // SAFETY: the kernel reads `rest`, which is borrowed across the call; the caller answers
        // for what is overwritten.
        let got = unsafe { libc::process_vm_writev(pid_t(pid), &local, 1, &remote, 1, 0) };
        done += advance(got)?;
    }
    Ok(())
}

/// What a call that transfers bytes returned. Nothing transferred would be tried for ever.
fn advance(result: isize) -> io::Result<usize> {
    match usize::try_from(result) {
        Ok(0) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(io::Error::last_os_error()),
    }
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
