//! Models of A3: a release of idle pages beside an allocation, both of one arena behind a lock.
//! The twin gives a run back to the arena before its memory has gone to the system.

use super::*;
use crate::sync::UnsafeCell;
use crate::sync::spin::SpinLock;
use loom::sync::Arc as LoomArc;
use std::ptr::NonNull;

/// Two pages whose use loom watches.
#[derive(Debug)]
struct Watched([UnsafeCell<u8>; 2]);

impl Watched {
    fn touch(&self, page: FrameIndex) {
        // SAFETY: none but the protocol's: this is what the model checks.
        self.0[page.0 as usize].with_mut(|byte| unsafe { *byte += 1 });
    }
}

// SAFETY: no byte of it is ever reached through `base`.
unsafe impl Reservation for Watched {
    fn base(&self) -> NonNull<u8> {
        NonNull::dangling()
    }
    fn len(&self) -> usize {
        2 * 4096
    }
    fn commit(&self, _: usize, _: usize) -> Result<(), SourceError> {
        Ok(())
    }
    unsafe fn release(&self, offset: usize, len: usize) {
        for page in offset / 4096..(offset + len) / 4096 {
            // SAFETY: as in `touch`.
            self.0[page].with_mut(|byte| unsafe { *byte = 0 });
        }
    }
}

// SAFETY: loom checks every use of the cells.
unsafe impl Send for Watched {}
// SAFETY: as for Send.
unsafe impl Sync for Watched {}

fn release_beside_use(release: fn(&SpinLock<Arena>)) {
    loom::model(move || {
        let pages = Arc::new(Watched([0, 0].map(UnsafeCell::new)));
        let range: Arc<dyn Reservation> = Arc::clone(&pages) as _;
        let mut arena = Arena::new(range, PageSize::KIB4);
        let page = arena.take_page().unwrap();
        arena.put_page(page);
        let arena = LoomArc::new(SpinLock::new(arena));
        let other = LoomArc::clone(&arena);
        let releaser = loom::thread::spawn(move || release(&other));
        let page = arena.lock().unwrap().take_page().unwrap();
        pages.touch(page);
        releaser.join().unwrap();
        let mut arena = arena.lock().unwrap();
        arena.put_page(page);
        arena.check();
    });
}

#[test]
fn a_page_on_its_way_to_the_system_is_not_used() {
    release_beside_use(|arena| {
        let batch = arena.lock().unwrap().begin_release(PageCount::ZERO);
        batch.release();
        arena.lock().unwrap().end_release(batch);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_twin_that_takes_the_page_back_first_is_caught() {
    release_beside_use(|arena| {
        let mut held = arena.lock().unwrap();
        let batch = held.begin_release(PageCount::ZERO);
        let same = ReleaseBatch {
            range: Arc::clone(&batch.range),
            page_size: batch.page_size,
            runs: batch.runs.clone(),
        };
        held.end_release(batch);
        drop(held);
        same.release();
    });
}
