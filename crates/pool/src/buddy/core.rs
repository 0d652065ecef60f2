//! An allocator without its lock: a single-threaded core that a shell wraps.
//!
//! A core never calls the system to release memory: it puts empty runs into its arena, and the
//! shell takes them out in batches and releases them without holding the lock. It never waits,
//! and each call does a bounded amount of work.

use std::fmt;
use std::ptr::NonNull;

use crate::buddy::pins::Pins;
use crate::handle::Handle;
use crate::memory::arena::Arena;
use crate::pool::{AllocError, HandleError, PoolStats};
use crate::reclaim::Victim;

/// One of the three allocators, single-threaded.
pub(crate) trait Core: Send + fmt::Debug + 'static {
    /// Longest object in bytes.
    fn len_max(&self) -> usize;

    /// Least length in bytes of an object that costs a whole page.
    fn huge_len(&self) -> usize;

    /// Allocates an object of `len` bytes, `1 <= len <= len_max` (checked by the shell); returns
    /// its handle and where its bytes are.
    fn alloc(&mut self, len: usize) -> Result<(Handle, NonNull<[u8]>), AllocError>;

    /// Frees the object, which is not pinned (checked by the shell); [`HandleError::Stale`] if
    /// there is none. Layout optimisation leaves the objects in `pins` where they are.
    fn free(&mut self, handle: Handle, pins: &Pins) -> Result<(), HandleError>;

    /// Returns where the object's bytes are; they stay there while it is pinned.
    fn locate(&self, handle: Handle) -> Result<NonNull<[u8]>, HandleError>;

    /// Puts layout optimisation off from now on: another thread will call
    /// [`Core::optimise_some`]. A core without a layout ignores it.
    fn defer_layout(&mut self) {}

    /// Returns whether enough pages wait for their optimisation that a thread should see to it.
    fn optimise_due(&self) -> bool {
        false
    }

    /// Optimises the layout of some pages that wait for it; returns how many still wait.
    fn optimise_some(&mut self, _: &Pins) -> usize {
        0
    }

    /// Does a small step of compaction.
    fn compact_step(&mut self, pins: &Pins) -> CompactStep;

    /// Takes the least recently used page (or zspage) out of allocation and returns its objects
    /// in the order of their eviction; `None` if there is no page.
    fn begin_reclaim(&mut self) -> Option<Victim>;

    /// Ends the reclaim of `victim`: an empty page leaves (the pages freed are returned), any
    /// other goes back into use as the most recently used.
    fn end_reclaim(&mut self, victim: &Victim) -> u64;

    /// The arena that the core's pages come from.
    fn arena(&mut self) -> &mut Arena;

    /// Bytes of pages, idle pages and metadata.
    fn held_bytes(&self) -> u64;

    /// Returns the counters.
    fn stats(&self) -> PoolStats;

    /// Asserts every invariant.
    fn check(&self);
}

/// The result of a step of compaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactStep {
    /// Pages that became free.
    pub(crate) freed: u64,
    /// Whether nothing is left to do.
    pub(crate) done: bool,
}
