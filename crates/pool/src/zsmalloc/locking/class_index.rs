//! `class-index`: a heap and a spin lock for each class, and no lock of the pool (goes on from the
//! kernel's zs_free series of 2026).
//!
//! | call | takes |
//! |:--|:--|
//! | alloc | the class's lock |
//! | free | the class's lock; which one the cell says. An emptied zspage leaves after that |
//! | read, write | no lock: the cell's word pins or holds the object |
//! | compaction | the class's lock, but not while objects are copied |
//!
//! The kernel still takes a lock of the pool to read, because a zspage may vanish before it is
//! found. Here the tables of cells and records can always be read, and a pinned object keeps its
//! zspage.

use super::{Design, Shared};
use crate::handle::Handle;
use crate::pool::HandleError;
use crate::zsmalloc::heap::Emptied;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct ClassIndex;

impl Design for ClassIndex {
    const LOCK: &'static str = "class";
    const CELLS_BATCH: usize = 8;
    const LOCKED_COPY: bool = false;

    fn new(_: usize) -> Self {
        Self
    }

    #[inline]
    fn free(&self, shared: &Shared, handle: Handle) -> Result<Option<Emptied>, HandleError> {
        let cell = shared.cell(handle)?;
        let place = cell.hold(handle.serial())?;
        let heap = shared.slots[place.class].heap.lock();
        let mut heap = heap.inspect_err(|_| cell.publish(place))?;
        Ok(shared.give(&mut heap, handle, cell, place))
    }
}
