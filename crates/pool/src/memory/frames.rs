//! Access to the bytes of an arena's frames.
//!
//! Two kinds of bytes lie in a frame and are never reached in the same way:
//! - *header words* (object headers, free-list links, page headers): read and written here as
//!   relaxed atomics, so that no use of them can be a data race. Locks guard their meaning; the
//!   atomics order nothing.
//! - *payload bytes*: the bytes that the owner of a handle stores.
//!
//! - M1: payload bytes are written only by a thread that keeps all others from the object, and read
//!   only while no thread may write. With zbud and z3fold that is the pool's (or shard's) lock and
//!   a pin; with zsmalloc and fit the word of the object's cell (cell/H1), or its owner (owned/O2).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::source::Reservation;

/// A view of all bytes of an arena; valid as long as the arena's reservation lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the view is an address and a length; all access follows the rules above.
unsafe impl Send for Frames {}
// SAFETY: as for Send.
unsafe impl Sync for Frames {}

impl Frames {
    /// Returns a view of `range`, which its user keeps alive.
    pub(crate) fn new(range: &dyn Reservation) -> Self {
        Self { base: range.base(), len: range.len() }
    }

    /// Pointer to the byte at `at`, from which `len` bytes lie inside the arena.
    ///
    /// # Panics
    /// If they do not.
    #[inline]
    fn at(&self, at: usize, len: usize) -> NonNull<u8> {
        assert!(at <= self.len && len <= self.len - at, "offset {at}+{len} leaves the arena");
        // SAFETY: at <= len of the reservation, so the pointer stays inside it or one past it.
        unsafe { self.base.add(at) }
    }

    #[inline]
    #[expect(clippy::cast_ptr_alignment, reason = "the base is page aligned, `at` is checked")]
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "unaligned header word");
        let word = self.at(at, 8).as_ptr().cast::<AtomicU64>();
        // SAFETY: in bounds and aligned (the base is page aligned), committed because callers
        // name words of frames that the arena has handed out, and never payload (module rules).
        unsafe { &*word }
    }

    #[inline]
    #[expect(clippy::cast_ptr_alignment, reason = "the base is page aligned, `at` is checked")]
    fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4), "unaligned header half-word");
        let half = self.at(at, 4).as_ptr().cast::<AtomicU32>();
        // SAFETY: as in `word`, for four bytes.
        unsafe { &*half }
    }

    /// Reads the header word at byte `at`.
    #[inline]
    pub(crate) fn load_u64(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    /// Writes the header word at byte `at`.
    #[inline]
    pub(crate) fn store_u64(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Relaxed);
    }

    /// Reads the header half-word at byte `at`.
    #[inline]
    pub(crate) fn load_u32(&self, at: usize) -> u32 {
        self.half(at).load(Ordering::Relaxed)
    }

    /// Writes the header half-word at byte `at`.
    #[inline]
    pub(crate) fn store_u32(&self, at: usize, value: u32) {
        self.half(at).store(value, Ordering::Relaxed);
    }

    /// Returns the payload of `len` bytes at `at`, as an address; reaching it is subject to M1.
    #[inline]
    pub(crate) fn payload(&self, at: usize, len: usize) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.at(at, len), len)
    }

    /// Copies `len` bytes of an object (header word and payload) from `from` to `to`; the two
    /// may overlap.
    ///
    /// # Safety
    /// M1 holds for both ranges.
    #[inline]
    pub(crate) unsafe fn copy(&self, from: usize, to: usize, len: usize) {
        let source = self.at(from, len).as_ptr();
        let target = self.at(to, len).as_ptr();
        // SAFETY: both in bounds and committed; no other thread touches them (M1, lock held).
        unsafe { std::ptr::copy(source, target, len) };
    }
}
