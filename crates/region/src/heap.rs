//! `Heap`: blocks of any size from a few regions, for thousands of arrays in one memory.
//!
//! ```text
//!   region:  | block | hole | block, whole pages   | hole ...
//! ```
//!
//! - A1: blocks and holes of a region do not overlap, and holes do not touch each other. Bytes in
//!   neither belong to a block that is being freed.
//! - A2: a page that lies in a hole as a whole holds zeros, and takes no memory unless it was
//!   brought ahead of a sequence of touches. A page that a block shares with a hole may hold
//!   anything there.
//! - A3: a block of [`whole`] bytes and more has its pages for itself.
//!
//! Only one lock, over the list of regions; it is not held while the pages of a block of A3 are
//! dropped. Freeing joins the block with the holes beside it; a region without blocks goes, but the
//! last one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, MutexGuard};

use zfold_pool::Lock;

use super::memory::Memory;
use super::options::RegionError;
use super::region::Region;
use zfold_uffd::page::page_len;

/// Blocks begin at a multiple of this.
const ALIGN: usize = 64;

/// Blocks of so many bytes have pages of their own.
fn whole() -> usize {
    4 * page_len()
}

/// The smallest and the largest region that is made for more than one block.
const REGION_MIN: usize = 64 << 20;
const REGION_MAX: usize = 4 << 30;

/// Holes that are looked at before one is taken that is large enough in any case.
const LOOKS: usize = 16;

/// Blocks of memory of any size out of few regions of one [`Memory`]. Clones are the same heap.
///
/// # Examples
/// ```
/// use zfold_region::{Heap, Memory, MemoryOptions};
///
/// let heap = Heap::new(&Memory::new(&MemoryOptions::new(1 << 20))?);
/// let blocks: Vec<_> = (0..10_000).map(|_| heap.alloc(300)).collect::<Result<_, _>>()?;
/// assert_eq!(heap.stats().regions, 1);
/// drop(blocks);
/// assert_eq!(heap.stats().blocks, 0);
/// # Ok::<(), zfold_region::RegionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Heap {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    memory: Memory,
    arenas: Lock<Vec<Arena>>,
}

/// A region, and what of it is in use.
#[derive(Debug)]
struct Arena {
    region: Arc<Region>,
    /// Start and length of each block.
    blocks: BTreeMap<usize, usize>,
    /// Start and length of each hole.
    holes: BTreeMap<usize, usize>,
    /// Length and start of each hole.
    by_len: BTreeSet<(usize, usize)>,
    /// Blocks that are being freed, and pins.
    busy: usize,
}

/// What a [`Heap`] holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapStats {
    /// Blocks in use.
    pub blocks: u64,
    /// Their bytes, as they take up in a region.
    pub block_bytes: u64,
    /// Regions that they lie in.
    pub regions: u64,
    /// Bytes of address space of these.
    pub region_bytes: u64,
}

/// A part of a region, zeros at first, freed when dropped.
#[derive(Debug)]
pub struct Block {
    heap: Heap,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: memory that belongs to the block, not to a thread.
unsafe impl Send for Block {}
// SAFETY: shared references give only its address.
unsafe impl Sync for Block {}

/// Pages that stay where they are until this is dropped; see [`Heap::pin`].
#[derive(Debug)]
pub struct HeapPin {
    heap: Heap,
    region: Arc<Region>,
    keys: Range<u32>,
}

impl Heap {
    /// Makes a heap without blocks, which takes its regions from `memory`.
    #[must_use]
    pub fn new(memory: &Memory) -> Self {
        let shared = Shared { memory: memory.clone(), arenas: Lock::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the memory that the blocks lie in.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.shared.memory
    }

    /// Returns whether this is the process that made the memory, not a forked child, where the
    /// blocks are not.
    #[must_use]
    pub fn is_here(&self) -> bool {
        !self.shared.memory.shared.is_elsewhere()
    }

    /// Returns a block of at least `len` bytes, all zeros, at a multiple of 64; a block of 16 KiB
    /// and more shares no page with others.
    ///
    /// # Errors
    /// Those of [`Memory::region`]; [`RegionError::Elsewhere`] in a forked child.
    ///
    /// # Cost
    /// A search in two trees; now and then a new region.
    pub fn alloc(&self, len: usize) -> Result<Block, RegionError> {
        if !self.is_here() {
            return Err(RegionError::Elsewhere);
        }
        let align = if len <= whole() - ALIGN { ALIGN } else { page_len() };
        let too_long = RegionError::NoCapacity { bytes: len };
        let len = len.max(1).checked_next_multiple_of(align).ok_or(too_long)?;
        let mut arenas = self.shared.arenas.lock();
        let start = match arenas.iter_mut().find_map(|arena| arena.take(len, align)) {
            Some(start) => start,
            None => {
                let mut arena = Arena::new(&self.shared.memory, &arenas, len)?;
                let start = arena.take(len, align).expect("a region made for it has room");
                arenas.push(arena);
                start
            }
        };
        drop(arenas);
        let block = Block { heap: self.clone(), start, len };
        if len < whole() {
            // A2: the pages may have been in use. SAFETY: `len` bytes of a region that no other
            // code uses (A1).
            unsafe { start.as_ptr().write_bytes(0, len) };
        }
        Ok(block)
    }

    /// Makes a block again from the result of [`Block::into_raw`]; `None` if no block of this heap
    /// begins there.
    ///
    /// # Safety
    /// No other `Block` of this address exists.
    #[must_use]
    pub unsafe fn from_raw(&self, start: NonNull<u8>) -> Option<Block> {
        let address = start.addr().get();
        let arenas = self.shared.arenas.lock();
        let arena = arenas.iter().find(|arena| arena.contains(address))?;
        let &len = arena.blocks.get(&(address - arena.base()))?;
        Some(Block { heap: self.clone(), start, len })
    }

    /// Returns whether an address lies in a region of this heap. Also true in a forked child that
    /// cannot know, because a thread of its parent was changing the heap.
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        let holds = |arenas: &Vec<Arena>| arenas.iter().any(|arena| arena.contains(address));
        if !self.is_here() {
            return self.shared.arenas.try_lock().is_none_or(|arenas| holds(&arenas));
        }
        holds(&self.shared.arenas.lock())
    }

    /// Brings in the pages of `len` bytes from `address` on and keeps them in their place until the
    /// result is dropped.
    ///
    /// # Errors
    /// [`RegionError::PinLimit`] if less than 128 KiB of the limit would be left;
    /// [`RegionError::NotOurs`] if the bytes do not lie in one region of this heap.
    pub fn pin(&self, address: usize, len: usize) -> Result<HeapPin, RegionError> {
        let (region, bytes) = self.enter(address, len)?;
        let keys = region.keys_touched(bytes);
        region.pin_keys(keys.clone()).inspect_err(|_| self.leave(&region))?;
        Ok(HeapPin { heap: self.clone(), region, keys })
    }

    /// Compresses the pages that have one of `len` bytes from `address` on, at once, as
    /// [`Region::pageout`] does.
    ///
    /// # Errors
    /// [`RegionError::StoreFull`], or [`RegionError::NotOurs`] if the bytes do not lie in one
    /// region of this heap.
    pub fn pageout(&self, address: usize, len: usize) -> Result<(), RegionError> {
        let (region, bytes) = self.enter(address, len)?;
        let done = region.pageout(bytes);
        self.leave(&region);
        done
    }

    /// Brings in the compressed pages that have one of `len` bytes from `address` on, as
    /// [`Region::prefetch`] does: as long as there is room.
    ///
    /// # Errors
    /// [`RegionError::NotOurs`] if the bytes do not lie in one region of this heap.
    pub fn prefetch(&self, address: usize, len: usize) -> Result<(), RegionError> {
        let (region, bytes) = self.enter(address, len)?;
        region.prefetch(bytes);
        self.leave(&region);
        Ok(())
    }

    /// Returns the figures of the heap.
    #[must_use]
    pub fn stats(&self) -> HeapStats {
        self.shared.arenas.lock().iter().fold(HeapStats::default(), |sum, arena| HeapStats {
            blocks: sum.blocks + arena.blocks.len() as u64,
            block_bytes: sum.block_bytes + arena.blocks.values().sum::<usize>() as u64,
            regions: sum.regions + 1,
            region_bytes: sum.region_bytes + arena.region.len() as u64,
        })
    }

    /// Finds the region of an address and keeps it alive.
    fn enter(
        &self,
        address: usize,
        len: usize,
    ) -> Result<(Arc<Region>, Range<usize>), RegionError> {
        if !self.is_here() {
            return Err(RegionError::Elsewhere);
        }
        let mut arenas = self.shared.arenas.lock();
        let arena = arenas.iter_mut().find(|arena| arena.contains(address));
        let arena = arena.ok_or(RegionError::NotOurs)?;
        let start = address - arena.base();
        let end = start.checked_add(len).filter(|&end| end <= arena.region.len());
        arena.busy += 1;
        let region = Arc::clone(&arena.region);
        drop(arenas);
        match end {
            Some(end) => Ok((region, start..end)),
            None => {
                self.leave(&region);
                Err(RegionError::NotOurs)
            }
        }
    }

    fn leave(&self, region: &Arc<Region>) {
        let mut arenas = self.shared.arenas.lock();
        if let Some(at) = arenas.iter().position(|arena| Arc::ptr_eq(&arena.region, region)) {
            arenas[at].busy -= 1;
            Self::drop_empty(arenas, at);
        }
    }

    /// Drops a region that is no longer in use, without the lock, unless it is the last one.
    fn drop_empty(mut arenas: MutexGuard<'_, Vec<Arena>>, at: usize) {
        let empty = arenas[at].blocks.is_empty() && arenas[at].busy == 0;
        let gone = (empty && arenas.len() > 1).then(|| arenas.swap_remove(at));
        drop(arenas);
        drop(gone);
    }

    fn free(&self, start: NonNull<u8>, len: usize) {
        // A forked child does not have the block, and may not be able to take the lock.
        if !self.is_here() {
            return;
        }
        let address = start.addr().get();
        let mut arenas = self.shared.arenas.lock();
        let Some(at) = arenas.iter().position(|arena| arena.contains(address)) else { return };
        let offset = address - arenas[at].base();
        arenas[at].blocks.remove(&offset);
        if len >= whole() {
            // A3: no block has a byte of these pages; they are in neither table meanwhile.
            arenas[at].busy += 1;
            let region = Arc::clone(&arenas[at].region);
            drop(arenas);
            // SAFETY: same as above.
            unsafe { region.clear(offset..offset + len) };
            let mut arenas = self.shared.arenas.lock();
            if let Some(arena) = arenas.iter_mut().find(|arena| Arc::ptr_eq(&arena.region, &region))
            {
                arena.give(offset, len);
            }
            drop(arenas);
            self.leave(&region);
            return;
        }
        let arena = &mut arenas[at];
        let hole = arena.give(offset, len);
        let page = page_len();
        let first = hole.start.next_multiple_of(page).max(offset / page * page);
        let end = (hole.end / page * page).min((offset + len).next_multiple_of(page));
        if first < end {
            // SAFETY: all of these pages lie in one hole (A1).
            unsafe { arena.region.clear(first..end) };
        }
        Self::drop_empty(arenas, at);
    }
}

impl Arena {
    /// A region with room for a block of `len` bytes: larger, the more there is already.
    fn new(memory: &Memory, others: &[Self], len: usize) -> Result<Self, RegionError> {
        let total: usize = others.iter().map(|arena| arena.region.len()).sum();
        let roomy = len.max((total / 2).clamp(REGION_MIN, REGION_MAX));
        let region = memory.region(roomy).or_else(|error| match error {
            RegionError::NoCapacity { .. } => memory.region(len),
            error => Err(error),
        })?;
        let len = region.len();
        Ok(Self {
            region: Arc::new(region),
            blocks: BTreeMap::new(),
            holes: BTreeMap::from([(0, len)]),
            by_len: BTreeSet::from([(len, 0)]),
            busy: 0,
        })
    }

    fn base(&self) -> usize {
        self.region.as_ptr().addr()
    }

    fn contains(&self, address: usize) -> bool {
        (self.base()..self.base() + self.region.len()).contains(&address)
    }

    /// Takes a block from the smallest hole that has it; returns its address.
    fn take(&mut self, len: usize, align: usize) -> Option<NonNull<u8>> {
        let fits =
            |&&(hole, start): &&(usize, usize)| start.next_multiple_of(align) - start + len <= hole;
        let close = self.by_len.range((len, 0)..).take(LOOKS).find(fits);
        // Large enough at any alignment.
        let sure = || self.by_len.range((len + align, 0)..).next();
        let &(hole, start) = close.or_else(sure)?;
        self.by_len.remove(&(hole, start));
        self.holes.remove(&start);
        let block = start.next_multiple_of(align);
        for (from, to) in [(start, block), (block + len, start + hole)] {
            if from < to {
                self.holes.insert(from, to - from);
                self.by_len.insert((to - from, from));
            }
        }
        self.blocks.insert(block, len);
        NonNull::new(self.region.as_ptr().wrapping_add(block))
    }

    /// Turns a block into a hole, joined with adjacent ones.
    fn give(&mut self, start: usize, len: usize) -> Range<usize> {
        let mut hole = start..start + len;
        if let Some((&before, &before_len)) = self.holes.range(..start).next_back()
            && before + before_len == start
        {
            self.holes.remove(&before);
            self.by_len.remove(&(before_len, before));
            hole.start = before;
        }
        if let Some(after_len) = self.holes.remove(&hole.end) {
            self.by_len.remove(&(after_len, hole.end));
            hole.end += after_len;
        }
        self.holes.insert(hole.start, hole.len());
        self.by_len.insert((hole.len(), hole.start));
        hole
    }
}

impl Block {
    /// Returns the address of the first byte, valid until the block is dropped.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the number of bytes, at least those that were asked for.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a block has at least one byte")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the heap that the block belongs to.
    #[must_use]
    pub fn heap(&self) -> &Heap {
        &self.heap
    }

    /// Leaks the block, which is then not freed when dropped; [`Heap::from_raw`] makes it a block
    /// again.
    #[must_use]
    pub fn into_raw(self) -> NonNull<u8> {
        let start = self.start;
        // Its `Drop` must not run, but its reference to the heap must be dropped.
        let mut this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is not used any more.
        unsafe { std::ptr::drop_in_place(&raw mut this.heap) };
        start
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.heap.free(self.start, self.len);
    }
}

impl Drop for HeapPin {
    fn drop(&mut self) {
        if self.heap.is_here() {
            self.heap.memory().shared.core.unpin(self.keys.clone());
            self.heap.leave(&self.region);
        }
    }
}
