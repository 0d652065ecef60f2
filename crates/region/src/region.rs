//! `Region`: memory of which a part is resident.
//!
//! A region owns its address space and its keys, one range of its memory's, from `adopt` to the end
//! of `drop`. It enters the registry, where faults look it up, before its address is known, and
//! leaves it first: from then on no touch is resolved and no page is moved, and its keys are
//! returned once no thread is working on one of its pages.
//!
//! References to its bytes follow the rules of any slice: moving pages changes no byte. Every call
//! that takes a lock or is in charge of a page blocks the thread's signals meanwhile, and calls on
//! many pages let them through every 64 (M6). A forked child does nothing when it drops one.

use std::ops::{Bound, Range, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;

use super::memory::Memory;
use super::options::{MemoryOptions, RegionError};
use super::registry::{self, Managed};
use super::space::Space;
use super::stats::MemoryStats;
use super::streams::Steps;
use super::word::State;
use crate::sys::map::Mapping;
use crate::sys::signal::Blocked;
use zfold_uffd::page::page_len;

/// Bytes of address space of which a [`Memory`] keeps as many uncompressed as its limit allows.
/// The rest lies compressed and comes back when it is touched. Zeros at first.
///
/// All of it can be used as ordinary memory, from any thread; but see the [module](super) about
/// system calls, `fork` and `madvise`. Dropping a region frees all of it.
///
/// # Examples
/// ```
/// use zfold_region::{MemoryOptions, Region};
///
/// // 16 MiB, of which 1 MiB is resident.
/// let mut region = Region::new(16 << 20, &MemoryOptions::new(1 << 20))?;
/// for (number, page) in region.as_mut_slice::<u8>().chunks_mut(4096).enumerate() {
///     page.fill(number as u8);
/// }
/// assert_eq!(region.as_slice::<u8>()[5 * 4096], 5);
/// assert!(region.stats().stored_pages > 3000);
/// # Ok::<(), zfold_region::RegionError>(())
/// ```
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    memory: Memory,
    /// `None` only while it is dropped.
    space: Option<Arc<Space>>,
}

// SAFETY: the memory is the region's own and belongs to no thread; faults are resolved in any.
unsafe impl Send for Region {}
// SAFETY: shared references only allow reading; moving pages changes no byte.
unsafe impl Sync for Region {}

impl Memory {
    /// Makes a region of at least `bytes`, rounded up to whole pages, all zeros.
    ///
    /// # Errors
    /// [`RegionError`] if the capacity is used up, there are too many regions, or the system
    /// refuses.
    pub fn region(&self, bytes: usize) -> Result<Region, RegionError> {
        if bytes == 0 {
            return Err(RegionError::Empty);
        }
        let _blocked = Blocked::new();
        let pages = u32::try_from(bytes.div_ceil(page_len())).ok();
        let keys = || self.shared.keys.lock();
        let first = pages.and_then(|pages| Some((keys().take(pages)?, pages)));
        let (first, pages) = first.ok_or(RegionError::NoCapacity { bytes })?;
        let adopted = Region::adopt(self, first, pages);
        if adopted.is_err() {
            keys().give(first, pages);
        }
        adopted
    }
}

impl Region {
    /// Makes a region of at least `bytes`, rounded up to whole pages, with a memory of its own. The
    /// capacity in the options is not used.
    ///
    /// # Errors
    /// Those of [`Memory::new`] and [`Memory::region`].
    pub fn new(bytes: usize, options: &MemoryOptions) -> Result<Self, RegionError> {
        let options = MemoryOptions { capacity: bytes.max(1), ..options.clone() };
        Memory::new(&options)?.region(bytes)
    }

    /// Maps a region for keys that were taken.
    fn adopt(memory: &Memory, first: u32, pages: u32) -> Result<Self, RegionError> {
        let core = &memory.shared.core;
        let map = Mapping::managed(pages as usize * page_len())?;
        let (base, len) = (map.base(), map.len());
        core.frames.adopt(&map)?;
        let space = Arc::new(Space::new(map, first, pages));
        let managed = Managed { core: Arc::clone(core), space: Arc::clone(&space) };
        if !registry::add(managed) {
            return Err(RegionError::TooManyRegions);
        }
        core.add_space(Arc::clone(&space));
        Ok(Self { base, len, memory: memory.clone(), space: Some(space) })
    }

    /// Returns the number of bytes, a multiple of the page size.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region has at least one page")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of the first byte, for threads and foreign code that synchronise their
    /// own accesses. Valid until the region is dropped: a touch afterwards raises `SIGSEGV`.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns all of the region as a slice of `T`: bytes, numbers, any type for which every bit
    /// pattern is a valid value. Trailing bytes that do not fill a `T` are left out.
    ///
    /// Code that writes to the region through [`as_ptr`](Self::as_ptr) must make sure that no
    /// reference is in use meanwhile.
    ///
    /// # Panics
    /// If `T` has no bytes, or is aligned to more than a page.
    #[must_use]
    pub fn as_slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(&self.bytes_of()[..self.whole::<T>()])
    }

    /// Returns all of the region as a slice for reading and writing, as
    /// [`as_slice`](Self::as_slice) does.
    ///
    /// # Panics
    /// If `T` has no bytes, or is aligned to more than a page.
    #[must_use]
    pub fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        let whole = self.whole::<T>();
        bytemuck::cast_slice_mut(&mut self.bytes_mut()[..whole])
    }

    /// Returns how many bytes whole values of `T` take.
    fn whole<T>(&self) -> usize {
        assert!(size_of::<T>() > 0, "values without bytes fill no region");
        self.len - self.len % size_of::<T>()
    }

    fn bytes_of(&self) -> &[u8] {
        // SAFETY: mapped, readable and initialised (zeros) for the lifetime of `self`. No code
        // writes during the borrow, by the contract of `as_ptr`; paging changes no byte.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes_of`, and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }

    /// Returns the memory that the region belongs to.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the figures of the whole [`Memory`].
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        self.memory.stats()
    }

    fn space(&self) -> &Arc<Space> {
        self.space.as_ref().expect("taken only by drop")
    }

    /// Turns bytes into byte positions.
    ///
    /// # Panics
    /// If the range ends before it begins, or after the region.
    fn bytes(&self, range: impl RangeBounds<usize>) -> Range<usize> {
        let start = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&at) => at + 1,
            Bound::Excluded(&at) => at,
            Bound::Unbounded => self.len,
        };
        assert!(start <= end && end <= self.len, "{start}..{end} of {} bytes", self.len);
        start..end
    }

    /// Keys of all pages that have a byte in the range.
    pub(super) fn keys_touched(&self, range: impl RangeBounds<usize>) -> Range<u32> {
        let (bytes, first, page) = (self.bytes(range), self.space().keys().start, page_len());
        if bytes.is_empty() {
            return first..first;
        }
        first + (bytes.start / page) as u32..first + bytes.end.div_ceil(page) as u32
    }

    /// Compresses the pages that have a byte in the range, at once, in the calling thread. Pinned
    /// pages and pages that a device uses stay, and so may some that other threads touch meanwhile.
    ///
    /// # Errors
    /// [`RegionError::StoreFull`]; pages that the store refused are unchanged.
    ///
    /// # Panics
    /// If the range is not inside the region.
    ///
    /// # Cost
    /// The codec's compression, and a microsecond a page.
    pub fn pageout(&self, range: impl RangeBounds<usize>) -> Result<(), RegionError> {
        let all = self.memory.shared.core.pageout(self.space(), self.keys_touched(range));
        if all { Ok(()) } else { Err(RegionError::StoreFull) }
    }

    /// Brings compressed pages of the range back before they are touched, as long as there is
    /// room.
    ///
    /// # Panics
    /// If the range is not inside the region.
    pub fn prefetch(&self, range: impl RangeBounds<usize>) {
        let keys = self.keys_touched(range);
        for piece in pieces(keys) {
            let _blocked = Blocked::new();
            let core = &self.memory.shared.core;
            core.prefetch(self.space(), Steps::upwards(&piece), core.room.reserve());
        }
    }

    /// Brings in the pages of the range and keeps them in their place until the result is dropped:
    /// for system calls, devices and foreign code, which cannot wait for a page.
    ///
    /// # Errors
    /// [`RegionError::PinLimit`] if less than 32 pages of the limit would be left.
    ///
    /// # Panics
    /// If the range is not inside the region.
    pub fn pin(&self, range: impl RangeBounds<usize>) -> Result<Pin<'_>, RegionError> {
        let keys = self.keys_touched(range);
        self.pin_keys(keys.clone())?;
        Ok(Pin { region: self, keys })
    }

    /// Pins pages until [`Core::unpin`](super::core::Core::unpin) of the same ones.
    pub(super) fn pin_keys(&self, keys: Range<u32>) -> Result<(), RegionError> {
        let core = &self.memory.shared.core;
        self.memory.reserve_pins(keys.end - keys.start)?;
        for piece in pieces(keys.clone()) {
            let _blocked = Blocked::new();
            for key in piece {
                core.pin(self.space(), Steps::upwards(&(key..keys.end)));
            }
        }
        Ok(())
    }

    /// Fills the range with zeros, and frees the memory of its whole pages. Pages whose pins were
    /// forgotten (`mem::forget`) are filled with zeros where they are.
    ///
    /// # Panics
    /// If the range is not inside the region.
    pub fn discard(&mut self, range: impl RangeBounds<usize>) {
        let bytes = self.bytes(range);
        let page = page_len();
        let whole = bytes.start.next_multiple_of(page)..bytes.end / page * page;
        if whole.start >= whole.end {
            self.bytes_mut()[bytes].fill(0);
            return;
        }
        self.bytes_mut()[bytes.start..whole.start].fill(0);
        self.bytes_mut()[whole.end..bytes.end].fill(0);
        // SAFETY: borrowed uniquely.
        unsafe { self.clear(whole) };
    }

    /// Makes whole pages zeros and frees their memory.
    ///
    /// # Safety
    /// No other code reads or writes them meanwhile.
    pub(super) unsafe fn clear(&self, whole: Range<usize>) {
        let (core, keys) = (&self.memory.shared.core, self.keys_touched(whole));
        for piece in pieces(keys.clone()) {
            let _blocked = Blocked::new();
            let left = core.forget(self.space(), piece, true);
            core.room.give(left);
        }
        // Pinned ones stay, and can be touched.
        let first = self.space().keys().start;
        for key in keys.filter(|&key| core.page(key).load().state() == State::Pinned) {
            let at = self.base.as_ptr().wrapping_add((key - first) as usize * page_len());
            // SAFETY: a page of the region, which only the caller uses.
            unsafe { at.write_bytes(0, page_len()) };
        }
    }
}

/// Cuts a range of keys into pieces, between which signals are let through (M6).
fn pieces(keys: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    const PIECE: u32 = 64;
    keys.clone()
        .step_by(PIECE as usize)
        .map(move |key| key..keys.end.min(key.saturating_add(PIECE)))
}

impl Drop for Region {
    fn drop(&mut self) {
        let shared = &self.memory.shared;
        if shared.is_elsewhere() {
            return;
        }
        let Some(space) = self.space.take() else { return };
        let _blocked = Blocked::new();
        let (core, keys) = (&shared.core, space.keys());
        // From here on a touch is not resolved, and no page is moved.
        registry::remove(&space);
        core.remove_space(&space);
        // Pins that were forgotten end with the region that they borrowed.
        core.unpin_all(keys.clone());
        let left = core.forget(&space, keys.clone(), false);
        core.await_entries(keys.clone());
        drop(space);
        core.room.give(left);
        shared.keys.lock().give(keys.start, keys.end - keys.start);
    }
}

/// Pages that stay where they are until this is dropped.
#[derive(Debug)]
pub struct Pin<'a> {
    region: &'a Region,
    keys: Range<u32>,
}

impl Pin<'_> {
    /// Returns the address of the first pinned page.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        let at = (self.keys.start - self.region.space().keys().start) as usize * page_len();
        self.region.base.as_ptr().wrapping_add(at)
    }

    /// Returns the number of pinned bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.keys.end - self.keys.start) as usize * page_len()
    }

    /// Returns whether nothing is pinned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if !self.region.memory.shared.is_elsewhere() {
            self.region.memory.shared.core.unpin(self.keys.clone());
        }
    }
}
