//! `pool-lock`: one heap with all classes and one spin lock for everything (Linux 6.2 to 6.11,
//! "consolidate zs_pool's migrate_lock and size_class's locks").
//!
//! | call | takes |
//! |:--|:--|
//! | alloc, free | the pool's lock |
//! | read | the pool's lock, to pin the object |
//! | compaction | the pool's lock, also while objects are copied |
//!
//! The only design with reclaim: one lock can guard an age order of all zspages, which was the
//! kernel's reason for it.

use std::ops::Range;

use super::{Design, Shared};
use crate::handle::Handle;
use crate::pool::{AllocError, HandleError};
use crate::zsmalloc::cell::Place;
use crate::zsmalloc::heap::{Emptied, Taken};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct PoolLock;

impl Design for PoolLock {
    const LOCK: &'static str = "pool";
    const CELLS_BATCH: usize = 32;
    const LOCKED_COPY: bool = true;

    fn new(_: usize) -> Self {
        Self
    }

    fn heaps(classes: usize, _: usize) -> Vec<Range<usize>> {
        std::iter::once(0..classes).collect()
    }

    #[inline]
    fn alloc(&self, shared: &Shared, class: usize, len: usize) -> Result<Taken, AllocError> {
        shared.alloc_from(class, len, || shared.slots[0].heap.lock())
    }

    #[inline]
    fn pin(&self, shared: &Shared, handle: Handle) -> Result<Place, HandleError> {
        let _heap = shared.slots[0].heap.lock()?;
        shared.pin(handle)
    }

    #[inline]
    fn free(&self, shared: &Shared, handle: Handle) -> Result<Option<Emptied>, HandleError> {
        let mut heap = shared.slots[0].heap.lock()?;
        let cell = shared.cell(handle)?;
        let place = cell.hold(handle.serial())?;
        Ok(shared.give(&mut heap, handle, cell, place))
    }

    fn heaps_of(&self, _: &Shared, _: usize) -> Range<usize> {
        0..1
    }
}
