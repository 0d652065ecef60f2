//! Sources of page frames: the system, and what another source must do.
//!
//! A [`PageSource`] reserves ranges; a [`Reservation`] is one such range. A range is committed
//! before it is used and released when its memory may go. Committing must precede use because
//! that is where a source may say no.
//!
//! Invariants of a reservation:
//! - I1: `base()` and `len()` never change while it lives, and ranges of two live reservations
//!   are disjoint.
//! - I2: after `commit(offset, len)` returned `Ok`, those bytes can be read and written until
//!   they are released or the reservation is dropped.
//! - I3: bytes that were never written since the reservation or since their release read as zero.
//! - I4: a thread that loads such a zero with Acquire sees everything that was done before the
//!   release. (A page of the system comes back by a fault, which its locks order after the
//!   release.)

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::sys;

/// Step by which [`SystemPages`] opens address space, in bytes: one call for many commits.
const OPEN_STEP_BYTES: usize = 16 << 20;

/// Why a source gave no pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceError {
    /// A range of this many bytes cannot be reserved.
    AddressSpace {
        /// Size of the requested range.
        bytes: usize,
    },
    /// The system has no memory left for this many bytes.
    Memory {
        /// Size of the range to commit.
        bytes: usize,
    },
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressSpace { bytes } => {
                write!(f, "cannot reserve {bytes} bytes of address space (see ulimit -v)")
            }
            Self::Memory { bytes } => write!(f, "the system gave no memory for {bytes} bytes"),
        }
    }
}

impl std::error::Error for SourceError {}

/// Where a pool's memory comes from.
pub trait PageSource: Send + Sync + fmt::Debug {
    /// Reserves a range of `bytes`, which must be a positive multiple of the system's page.
    ///
    /// # Errors
    /// [`SourceError::AddressSpace`]; nothing is left behind.
    fn reserve(&self, bytes: usize) -> Result<Arc<dyn Reservation>, SourceError>;
}

/// A reserved range of memory; dropped, it gives everything back.
///
/// # Safety
/// An implementation keeps I1 to I4 of the module documentation.
pub unsafe trait Reservation: Send + Sync + fmt::Debug {
    /// First byte of the range.
    fn base(&self) -> NonNull<u8>;

    /// Length of the range in bytes.
    fn len(&self) -> usize;

    /// Returns whether the range is empty; it never is.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes `len` bytes at `offset` usable.
    ///
    /// # Errors
    /// [`SourceError::Memory`]; the bytes stay as they were.
    ///
    /// # Panics
    /// If the range leaves the reservation.
    fn commit(&self, offset: usize, len: usize) -> Result<(), SourceError>;

    /// Gives the memory behind `len` bytes at `offset` back; they read as zeros when committed
    /// again.
    ///
    /// # Safety
    /// The range is committed, aligned to 8 bytes, and its contents are given up. Until the next
    /// commit no other thread accesses it, except through atomics that cope with finding either the
    /// old value or zero.
    unsafe fn release(&self, offset: usize, len: usize);

    /// Gives the memory behind many ranges, each an offset and a length in bytes, back; may cost
    /// less than one by one.
    ///
    /// # Safety
    /// As for [`Reservation::release`], for every range.
    unsafe fn release_all(&self, ranges: &[(usize, usize)]) {
        for &(offset, len) in ranges {
            // SAFETY: the caller's promise for this range.
            unsafe { self.release(offset, len) };
        }
    }
}

/// Pages straight from the system: reserved address space, memory on first touch.
///
/// # Cost
/// A reservation costs no memory; a commit makes a system call once in 16 MiB of new range.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemPages;

impl PageSource for SystemPages {
    fn reserve(&self, bytes: usize) -> Result<Arc<dyn Reservation>, SourceError> {
        let base = sys::reserve(bytes).map_err(|_| SourceError::AddressSpace { bytes })?;
        Ok(Arc::new(SystemRange { base, len: bytes, open: AtomicUsize::new(0) }))
    }
}

/// A mapping of which the first `open` bytes can be touched; `open` only grows.
#[derive(Debug)]
struct SystemRange {
    base: NonNull<u8>,
    len: usize,
    open: AtomicUsize,
}

// SAFETY: the range is plain memory owned by this value; its users agree on which thread may touch
// which bytes, and the methods only make system calls that are thread-safe.
unsafe impl Send for SystemRange {}
// SAFETY: as for Send; `open` is atomic.
unsafe impl Sync for SystemRange {}

// SAFETY: I1: base and len are never assigned again and mmap ranges are disjoint. I2: commit opens
// every byte below the requested end. I3: anonymous memory starts as zeros and MADV_DONTNEED
// restores that. I4: as said there, and `clear` for a part of a page.
unsafe impl Reservation for SystemRange {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn commit(&self, offset: usize, len: usize) -> Result<(), SourceError> {
        let end = checked_end(offset, len, self.len);
        // Relaxed: opening is idempotent, so a stale value only repeats a harmless call.
        let open = self.open.load(Ordering::Relaxed);
        if end <= open {
            return Ok(());
        }
        let target = end.next_multiple_of(OPEN_STEP_BYTES).min(self.len);
        // SAFETY: open <= target <= len, so the pointer and the range stay inside the mapping.
        let start = unsafe { self.base.add(open) };
        // SAFETY: same as above, the range lies in this live reservation.
        unsafe { sys::open(start, target - open) }
            .map_err(|_| SourceError::Memory { bytes: len })?;
        self.open.fetch_max(target, Ordering::Relaxed);
        Ok(())
    }

    unsafe fn release(&self, offset: usize, len: usize) {
        checked_end(offset, len, self.len);
        // SAFETY: the range was just checked to lie inside the mapping.
        let start = unsafe { self.base.add(offset) };
        if (offset | len).is_multiple_of(sys::page_bytes()) {
            // SAFETY: the caller says that the range is committed and unused.
            unsafe { sys::discard(start, len) };
        } else {
            // A system with pages larger than ours: a part of a page can only be cleared.
            // SAFETY: inside the mapping, committed, aligned by the caller's promise.
            unsafe { clear(start, len) };
        }
    }

    unsafe fn release_all(&self, ranges: &[(usize, usize)]) {
        let mut whole = Vec::with_capacity(ranges.len());
        for &(offset, len) in ranges {
            checked_end(offset, len, self.len);
            if (offset | len).is_multiple_of(sys::page_bytes()) {
                // SAFETY: the range was just checked to lie inside the mapping.
                whole.push((unsafe { self.base.add(offset) }, len));
            } else {
                // SAFETY: the caller's promise for this range.
                unsafe { self.release(offset, len) };
            }
        }
        // SAFETY: the caller says that the ranges are committed and unused.
        unsafe { sys::discard_all(&whole) };
    }
}

impl Drop for SystemRange {
    fn drop(&mut self) {
        // SAFETY: base and len come from one reserve call, and no user is left (self is owned).
        unsafe { sys::unreserve(self.base, self.len) };
    }
}

/// Writes zeros, word by word and atomically: other threads may be looking (see
/// [`Reservation::release`]).
///
/// # Safety
/// The range is committed memory, `start` and `len` are multiples of 8.
unsafe fn clear(start: NonNull<u8>, len: usize) {
    for offset in (0..len).step_by(8) {
        // SAFETY: inside the caller's range.
        let word = unsafe { start.add(offset) }.cast::<u64>();
        // SAFETY: aligned and committed; all concurrent accesses are atomic.
        unsafe { AtomicU64::from_ptr(word.as_ptr()) }.store(0, Ordering::Release); // I4
    }
}

/// End of the range `offset..offset + len`.
///
/// # Panics
/// If it lies beyond `limit`.
fn checked_end(offset: usize, len: usize, limit: usize) -> usize {
    let end = offset.checked_add(len).expect("range end overflows");
    assert!(end <= limit, "range {offset}+{len} leaves a reservation of {limit} bytes");
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FailingPages, HeapPages};

    fn zero_after_release(source: &dyn PageSource) {
        let page = sys::page_bytes();
        let range = source.reserve(4 * page).unwrap();
        range.commit(0, 4 * page).unwrap();
        // SAFETY: the range has four pages.
        let second = unsafe { range.base().add(page) };
        // SAFETY: the second page is committed and this test alone uses it.
        unsafe { second.write_bytes(7, page) };
        // SAFETY: committed whole page, not used until the next commit.
        unsafe { range.release(page, page) };
        range.commit(page, page).unwrap();
        // SAFETY: committed again, and this test alone uses it.
        assert_eq!(unsafe { second.read() }, 0);
    }

    #[test]
    fn released_pages_read_as_zeros() {
        zero_after_release(&SystemPages);
        zero_after_release(&HeapPages);
    }

    #[test]
    fn many_ranges_are_released_like_one() {
        let page = sys::page_bytes();
        for source in [&SystemPages as &dyn PageSource, &HeapPages] {
            let range = source.reserve(1000 * page).unwrap();
            range.commit(0, 1000 * page).unwrap();
            // SAFETY: the range is committed and this test alone uses it.
            unsafe { range.base().write_bytes(7, 1000 * page) };
            let ranges: Vec<_> = (0..1000).step_by(2).map(|at| (at * page, page)).collect();
            // SAFETY: committed whole pages, not used until the next commit.
            unsafe { range.release_all(&ranges) };
            for at in 0..1000 {
                // SAFETY: inside the range.
                let byte = unsafe { range.base().add(at * page) };
                // SAFETY: open memory that this test alone uses.
                assert_eq!(unsafe { byte.read() }, if at % 2 == 0 { 0 } else { 7 }, "page {at}");
            }
        }
    }

    #[test]
    fn failing_pages_count_down_and_can_be_allowed_again() {
        let source = FailingPages::new(Arc::new(HeapPages), 1);
        let range = source.reserve(8 << 10).unwrap();
        assert_eq!(range.commit(0, 4096), Ok(()));
        assert_eq!(range.commit(0, 4096), Err(SourceError::Memory { bytes: 4096 }));
        source.allow(1);
        assert_eq!(range.commit(0, 4096), Ok(()));
    }

    #[test]
    fn a_range_that_cannot_be_reserved_is_an_error() {
        let bytes = usize::MAX & !0xffff;
        assert_eq!(SystemPages.reserve(bytes).unwrap_err(), SourceError::AddressSpace { bytes });
        assert_eq!(HeapPages.reserve(bytes).unwrap_err(), SourceError::AddressSpace { bytes });
    }

    #[test]
    #[should_panic(expected = "leaves a reservation")]
    fn commit_outside_the_range_panics() {
        let range = HeapPages.reserve(4096).unwrap();
        let _ = range.commit(4096, 1);
    }
}
