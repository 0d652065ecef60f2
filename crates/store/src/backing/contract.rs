//! The contract of every backing (E1 to E3).

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// The smallest alignment of a backing, in bytes: a sector.
pub const MIN_ALIGN: usize = 512;

/// The largest alignment of a backing, in bytes.
pub const MAX_ALIGN: usize = 4096;

/// Bytes by offset, which outlive the memory that they came from.
pub trait Backing: Send + Sync + fmt::Debug {
    /// Returns the length in bytes, a multiple of [`MAX_ALIGN`]. It never changes.
    fn len(&self) -> u64;

    /// Returns whether there is no room at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the alignment in bytes, 512 or 4096: the offsets, lengths and buffer addresses of
    /// all calls are multiples of it. [`AlignedBuffer`](super::AlignedBuffer) has such an address.
    fn align(&self) -> usize;

    /// Reads the bytes from `offset` on into all of `out`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a range that is not aligned or ends beyond the end, and what the system
    /// says. The contents of `out` are then unspecified.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`. It is durable only after a [`sync`](Self::sync).
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a range that is not aligned or ends beyond the end, with no effect;
    /// otherwise what the system says, and the range then holds anything.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Declares the `len` bytes from `offset` on unneeded; afterwards their contents are undefined.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the backing cannot use this; otherwise the system's error. Either may be
    /// ignored.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Returns whether it wants a [`discard`](Self::discard) of each range that is no longer
    /// needed, before the range is written again. Discards are frequent and come under locks of the
    /// thread that frees the range, so a backing that wants them neither waits nor calls back. The
    /// default is no: what is on a file may lie there.
    fn wants_discards(&self) -> bool {
        false
    }

    /// Returns the bytes of memory that it takes to know where things are, now. They count as the
    /// store's own. Called for each page stored under a limit, so it only looks at a counter. The
    /// default is none.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Returns how long a write should be, in bytes: what it moves well. A store chooses its first
    /// batches by it. The default, 0, is for one that does not mind.
    fn write_bytes(&self) -> usize {
        0
    }

    /// Returns its descriptor if that is all that a copy of this process needs to use it. The
    /// default is none: it has threads, or connections.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Waits until everything written by finished calls is on stable storage.
    ///
    /// # Errors
    ///
    /// The system's error. Any write since the last successful call may then be lost, also if a
    /// later call succeeds.
    fn sync(&self) -> io::Result<()>;
}

/// Returns an error unless `bytes` may be read into or written from at `offset` (E2).
pub(super) fn check_access(
    backing: &(impl Backing + ?Sized),
    offset: u64,
    bytes: &[u8],
) -> io::Result<()> {
    if !bytes.as_ptr().addr().is_multiple_of(backing.align()) {
        return Err(invalid(format!("a buffer is not aligned to {} bytes", backing.align())));
    }
    check_range(backing, offset, bytes.len() as u64)
}

/// Returns an error unless `len` bytes at `offset` are a range of the backing (E2).
pub(super) fn check_range(
    backing: &(impl Backing + ?Sized),
    offset: u64,
    len: u64,
) -> io::Result<()> {
    let align = backing.align() as u64;
    if !offset.is_multiple_of(align) || !len.is_multiple_of(align) {
        return Err(invalid(format!("bytes {offset}+{len} are not aligned to {align}")));
    }
    match offset.checked_add(len) {
        Some(end) if end <= backing.len() => Ok(()),
        _ => Err(invalid(format!("bytes {offset}+{len} are beyond the end {}", backing.len()))),
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
