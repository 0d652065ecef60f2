//! `class-index`: a heap and a spin lock for each class, and no lock of the pool (goes on from the
//! kernel's zs_free series of 2026).
//!
//! | call | takes |
//! |:--|:--|
//! | alloc | the class's lock |
//! | free | the class's lock; which one the cell says. An emptied zspage leaves after that |
//! | read | no lock: the cell's word pins the object |
//! | compaction | the class's lock, but not while objects are copied |
//!
//! The kernel still takes a lock of the pool to read, because a zspage may vanish before it is
//! found. Here the tables of cells and records can always be read, and a pinned object keeps its
//! zspage.

use super::Design;

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
}
