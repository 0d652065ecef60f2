//! Sources of page frames for tests: the heap, and sources that fail or report releases.
//!
//! A range of the heap is a block of its own, always usable, that is given back to the allocator
//! when the range is dropped. A range that is seen has another one behind it, to which all calls
//! go on. The count of commits that are left is one number that all ranges of a source share.

#![allow(unsafe_code, reason = "memory of its own, as a pool's source must have it")]

use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use zfold_pool::source::{PageSource, Reservation, SourceError};

/// Pages from the global allocator: runs without an operating system's mapping calls (Miri,
/// sanitizers, other systems). Released memory is zeroed but stays with the allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapPages;

/// Alignment of a heap range: that of a page.
const ALIGN: usize = 4 << 10;

impl PageSource for HeapPages {
    fn reserve(&self, bytes: usize) -> Result<Arc<dyn Reservation>, SourceError> {
        let no_space = SourceError::AddressSpace { bytes };
        // Zeros of a larger alignment would be written, and take memory.
        let with_slack = bytes.checked_add(ALIGN).ok_or(no_space)?;
        let layout = Layout::from_size_align(with_slack, 16).map_err(|_| no_space)?;
        // SAFETY: the layout's size is at least `ALIGN`, not zero.
        let block = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or(no_space)?;
        let base = block.as_ptr().align_offset(ALIGN);
        assert!(base < ALIGN, "alignment by offset works on every target with pages");
        // SAFETY: base < ALIGN, and the block is ALIGN longer than the range.
        let base = unsafe { block.add(base) };
        Ok(Arc::new(HeapRange { block, layout, base, len: bytes }))
    }
}

#[derive(Debug)]
struct HeapRange {
    block: NonNull<u8>,
    layout: Layout,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory owned by this value; its users agree on which thread touches which bytes.
unsafe impl Send for HeapRange {}
// SAFETY: as for Send; nothing in it is assigned after construction.
unsafe impl Sync for HeapRange {}

// SAFETY: source/I1: the fields are never assigned again and heap blocks are disjoint. source/I2:
// all of the block is always usable. source/I3: alloc_zeroed, and release writes zeros. source/I4:
// it does so with Release.
unsafe impl Reservation for HeapRange {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn commit(&self, offset: usize, len: usize) -> Result<(), SourceError> {
        assert!(offset + len <= self.len, "{offset}+{len} leaves a reservation of {}", self.len);
        Ok(())
    }

    unsafe fn release(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.len, "{offset}+{len} leaves a reservation of {}", self.len);
        for at in (offset..offset + len).step_by(8) {
            // SAFETY: inside the block.
            let word = unsafe { self.base.add(at) }.cast::<u64>();
            // SAFETY: aligned by the caller's promise; all concurrent accesses are atomic.
            unsafe { AtomicU64::from_ptr(word.as_ptr()) }.store(0, Ordering::Release);
        }
    }
}

impl Drop for HeapRange {
    fn drop(&mut self) {
        // SAFETY: block and layout are those of the allocation in `reserve`.
        unsafe { std::alloc::dealloc(self.block.as_ptr(), self.layout) };
    }
}

/// A source whose commits fail once a countdown is over, for tests of error paths.
///
/// The countdown is shared by all its reservations and by clones; [`FailingPages::allow`] changes
/// it at any time.
#[derive(Clone, Debug)]
pub struct FailingPages {
    inner: Arc<dyn PageSource>,
    left: Arc<AtomicI64>,
}

impl FailingPages {
    /// Returns a source over `inner` that lets `commits` commits pass and fails all later ones.
    #[must_use]
    pub fn new(inner: Arc<dyn PageSource>, commits: u32) -> Self {
        Self { inner, left: Arc::new(AtomicI64::new(commits.into())) }
    }

    /// Lets `commits` more commits pass from now on.
    pub fn allow(&self, commits: u32) {
        self.left.store(commits.into(), Ordering::SeqCst);
    }
}

impl PageSource for FailingPages {
    fn reserve(&self, bytes: usize) -> Result<Arc<dyn Reservation>, SourceError> {
        let left = Arc::clone(&self.left);
        let may_commit = move || left.fetch_sub(1, Ordering::SeqCst) > 0;
        let (inner, may_commit) = (self.inner.reserve(bytes)?, Box::new(may_commit));
        Ok(Arc::new(SeenRange { inner, may_commit, on_release: Arc::new(|| ()) }))
    }
}

/// Heap pages that call a function before each release, without any lock of the pool.
#[derive(Clone)]
pub struct HookedPages(pub Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for HookedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookedPages")
    }
}

impl PageSource for HookedPages {
    fn reserve(&self, bytes: usize) -> Result<Arc<dyn Reservation>, SourceError> {
        let (inner, may_commit) = (HeapPages.reserve(bytes)?, Box::new(|| true));
        Ok(Arc::new(SeenRange { inner, may_commit, on_release: Arc::clone(&self.0) }))
    }
}

/// A range of another source, whose commits may fail and whose releases are seen.
struct SeenRange {
    inner: Arc<dyn Reservation>,
    may_commit: Box<dyn Fn() -> bool + Send + Sync>,
    on_release: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for SeenRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

// SAFETY: base, len, and every commit and release that happens are those of `inner`.
unsafe impl Reservation for SeenRange {
    fn base(&self) -> NonNull<u8> {
        self.inner.base()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn commit(&self, offset: usize, len: usize) -> Result<(), SourceError> {
        if !(self.may_commit)() {
            return Err(SourceError::Memory { bytes: len });
        }
        self.inner.commit(offset, len)
    }

    unsafe fn release(&self, offset: usize, len: usize) {
        (self.on_release)();
        // SAFETY: the caller's promise is handed on unchanged.
        unsafe { self.inner.release(offset, len) };
    }

    unsafe fn release_all(&self, ranges: &[(usize, usize)]) {
        ranges.iter().for_each(|_| (self.on_release)());
        // SAFETY: the caller's promise is handed on unchanged.
        unsafe { self.inner.release_all(ranges) };
    }
}
