//! The remote-free list: freed objects on their way to the heap that owns their zspages.
//!
//! A stack through the cells of the objects, which are going: any thread pushes; the thread that
//! has the heap's lock takes all at once. The head word holds the top cell and how many there are:
//!
//! ```text
//!   63 .......... 32 31 ....... 0
//!   | count         | cell or NIL |
//! ```
//!
//! - R1: a cell is on at most one stack, once; from `push` until `take_all` it belongs to the
//!   stack, and no thread changes it (its state *going* keeps handles and movers away).
//! - R2: what the pusher did before `push` is seen by the taker after `take_all`: this includes its
//!   last reads and writes of the object, so the object's memory may be reused.
//! - R3: a push never removes, and a take removes all, so a head that is pushed back looks the
//!   same only if the whole stack below it is the same, too: there is no ABA problem.

use crate::memory::list::NIL;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::zsmalloc::cell::Cell;

const EMPTY: u64 = NIL as u64;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct RemoteFrees {
    head: AtomicU64,
}

impl RemoteFrees {
    pub(crate) fn new() -> Self {
        Self { head: AtomicU64::new(EMPTY) }
    }

    /// Returns whether there may be something to take.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: what is pushed at this moment is seen next time.
        self.head.load(Ordering::Relaxed) == EMPTY
    }

    /// Retires the held cell `index` and pushes it; returns how many there are now.
    #[inline]
    pub(crate) fn push(&self, index: u32, cell: &Cell) -> u32 {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            cell.retire(head as u32);
            let count = (head >> 32) as u32 + 1;
            let new = u64::from(count) << 32 | u64::from(index);
            // Release pairs with the Acquire in `take_all` (R2).
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return count,
                Err(now) => head = now,
            }
        }
    }

    /// Takes everything; returns the first cell or `NIL`. The others follow by
    /// [`Cell::next_going`].
    #[inline]
    pub(crate) fn take_all(&self) -> u32 {
        // Acquire pairs with the Release in `push` (R2); earlier pushes are in its release
        // sequence, which read-modify-writes continue.
        self.head.swap(EMPTY, Ordering::Acquire) as u32
    }
}

/// Models of R1 and R2: two threads push while the owner takes. The twin pushes by a plain store,
/// and loses objects.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::UnsafeCell;
    use crate::zsmalloc::cell::Place;
    use loom::sync::Arc;

    /// Two objects, each with its cell.
    struct World {
        cells: [Cell; 2],
        objects: [UnsafeCell<u32>; 2],
        queue: RemoteFrees,
    }

    impl World {
        fn new() -> Arc<Self> {
            let world = Self {
                cells: [0, 1].map(|_| Cell::new()),
                objects: [0, 0].map(UnsafeCell::new),
                queue: RemoteFrees::new(),
            };
            for (object, cell) in (0..).zip(&world.cells) {
                let place = Place { class: 0, zspage: 0, object };
                cell.begin(object + 1, 0, place);
                cell.publish(place);
            }
            Arc::new(world)
        }

        /// Uses the object a last time, then frees it.
        fn free(&self, index: u32, push: impl Fn(&RemoteFrees, u32, &Cell)) {
            let cell = &self.cells[index as usize];
            cell.hold(index + 1).unwrap();
            // SAFETY: none but the protocol's: this is what the model checks.
            self.objects[index as usize].with_mut(|object| unsafe { *object = 1 });
            push(&self.queue, index, cell);
        }

        /// Takes everything and reuses the objects; returns how many.
        fn settle(&self) -> usize {
            let (mut next, mut count) = (self.queue.take_all(), 0);
            while next != NIL {
                let cell = &self.cells[next as usize];
                // SAFETY: as in `free`.
                self.objects[next as usize].with_mut(|object| unsafe { *object = 2 });
                let following = cell.next_going();
                cell.clear();
                (next, count) = (following, count + 1);
            }
            count
        }
    }

    fn two_pushers_and_an_owner(push: fn(&RemoteFrees, u32, &Cell)) {
        loom::model(move || {
            let world = World::new();
            let pushers = [0, 1].map(|index| {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || world.free(index, push))
            });
            let early = world.settle();
            pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
            assert_eq!(early + world.settle(), 2, "an object was lost");
        });
    }

    #[test]
    fn every_freed_object_reaches_the_owner_once() {
        two_pushers_and_an_owner(|queue, index, cell| {
            queue.push(index, cell);
        });
    }

    #[test]
    #[should_panic(expected = "an object was lost")]
    fn a_twin_that_pushes_by_a_store_is_caught() {
        two_pushers_and_an_owner(|queue, index, cell| {
            let head = queue.head.load(Ordering::Relaxed);
            cell.retire(head as u32);
            queue.head.store(index.into(), Ordering::Release);
        });
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn a_twin_that_pushes_without_release_is_caught() {
        two_pushers_and_an_owner(|queue, index, cell| {
            let mut head = queue.head.load(Ordering::Relaxed);
            loop {
                cell.retire(head as u32);
                let order = Ordering::Relaxed;
                match queue.head.compare_exchange(head, index.into(), order, order) {
                    Ok(_) => return,
                    Err(now) => head = now,
                }
            }
        });
    }
}
