//! `hierarchical`: a heap and a spin lock for each class, below one reader-writer lock of the
//! pool against migration (Linux before 6.2 and from 6.12 to 7.2).
//!
//! | call | takes |
//! |:--|:--|
//! | alloc | the class's lock |
//! | free | the migrate lock to read, then the class's lock; memory is released under both |
//! | read | the migrate lock to read, to pin the object |
//! | compaction | the migrate lock to write and the class's lock, also while objects are copied |
//!
//! The migrate lock keeps handles from changing while they are looked up. Its count of readers
//! is what all CPUs write to.

use super::{Design, ForMoves, Shared};
use crate::handle::Handle;
use crate::options::Release;
use crate::pool::HandleError;
use crate::sync::order::Rank;
use crate::sync::rw::RwLock;
use crate::sync::spin::Dead;
use crate::sync::stat::LockStat;
use crate::zsmalloc::cell::Place;
use crate::zsmalloc::heap::Emptied;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Hierarchical {
    migrate: RwLock,
}

impl Design for Hierarchical {
    const LOCK: &'static str = "class";
    const CELLS_BATCH: usize = 8;
    const LOCKED_COPY: bool = true;
    const RELEASE: Release = Release::AtOnce;

    fn new(_: usize) -> Self {
        Self { migrate: RwLock::new(Rank::Migrate) }
    }

    #[inline]
    fn pin(&self, shared: &Shared, handle: Handle) -> Result<Place, HandleError> {
        let _migrate = self.migrate.read();
        shared.pin(handle)
    }

    #[inline]
    fn free(&self, shared: &Shared, handle: Handle) -> Result<Option<Emptied>, HandleError> {
        let _migrate = self.migrate.read();
        let emptied = shared.free(handle)?;
        if emptied.is_some() {
            shared.shrink(emptied);
        }
        Ok(None)
    }

    fn lock_for_moves<'a>(&'a self, shared: &'a Shared, heap: usize) -> Result<ForMoves<'a>, Dead> {
        let migrate = self.migrate.write();
        Ok(ForMoves { heap: shared.slots[heap].heap.lock()?, _migrate: Some(migrate) })
    }

    fn watch(&self, on: bool) {
        self.migrate.watch(on);
    }

    fn stats(&self, stats: &mut Vec<LockStat>) {
        stats.push(self.migrate.stat("migrate"));
    }
}
