//! `per-cpu`: a heap with all classes for each CPU, each with zspages of its own; the default.
//!
//! | call | takes |
//! |:--|:--|
//! | alloc | the CPU's lock, which others hardly ever want |
//! | free | the CPU's lock, if the zspage is the CPU's; otherwise no lock |
//! | read | no lock: the cell's word pins the object, and nothing else is written |
//! | compaction | one CPU's lock, but not while objects are copied |
//!
//! A CPU that has no room in a class borrows a zspage from one that can spare it, with both locks,
//! before it asks the depot. An object in a zspage of another CPU is freed by pushing it to that
//! CPU's remote-free list. Compaction brings zspages of several CPUs together, with two locks at a
//! time.
//!
//! A thread finds its CPU by [`crate::sync::cpu::hint`]. It may be moved to another CPU right after
//! that: then it uses the heap of the CPU it came from, whose lock makes that safe; two threads may
//! then want one lock for a moment.
//!
//! - U1: the owner of a zspage changes only with both heaps locked, so it stays while one of
//!   them is.
//! - U2: objects in a remote-free list are settled by the next alloc or free of its CPU, and by the
//!   thread that pushes the 64th object since: so at most 64 objects (and what other threads push
//!   meanwhile) are held back for each CPU.
//! - U3: a heap can spare a zspage of a class if it has two with room: then a class takes at most
//!   one partly filled zspage more for each CPU, and no zspage goes to and fro between two that
//!   allocate in turns.

use std::ops::Range;

use super::{Design, Shared};
use crate::handle::Handle;
use crate::pool::{AllocError, HandleError};
use crate::sync::cpu;
use crate::sync::spin::{Dead, SpinGuard};
use crate::zsmalloc::heap::{Emptied, Heap, Taken};

/// Objects in a remote-free list that make the pusher settle it (U2).
const REMOTE_FREES_MAX: u32 = 64;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct PerCpu {
    heaps: usize,
}

impl PerCpu {
    /// Returns the heap of the calling thread's CPU.
    #[inline]
    fn own(&self) -> usize {
        let cpu = cpu::hint();
        if cpu < self.heaps { cpu } else { cpu % self.heaps }
    }

    /// Locks two heaps, `a` and `b`, in the order of their indices (L1); returns them in the
    /// requested order.
    fn lock_pair<'a>(
        shared: &'a Shared,
        a: usize,
        b: usize,
    ) -> Result<[SpinGuard<'a, Heap>; 2], Dead> {
        let first = shared.lock(a.min(b))?;
        let second = shared.lock(a.max(b))?;
        Ok(if a < b { [first, second] } else { [second, first] })
    }

    /// Gets a zspage with room from a heap that can spare it; returns whether there was one.
    #[cold]
    fn borrow(&self, shared: &Shared, own: usize, class: usize) -> Result<bool, Dead> {
        for other in (own + 1..self.heaps).chain(0..own) {
            if !shared.slots[other].can_spare(class) {
                continue;
            }
            let [mut to, mut from] = Self::lock_pair(shared, own, other)?;
            if from.class(class).can_spare() && from.hand_over(&shared.tables, class, &mut to) {
                shared.slots[other].note_spare(class, &mut from);
                return Ok(true);
            }
            shared.slots[other].note_spare(class, &mut from);
        }
        Ok(false)
    }
}

impl super::Slot {
    /// Returns whether the heap could spare a zspage of `class` a moment ago.
    fn can_spare(&self, class: usize) -> bool {
        self.spare[class / 64].get() >> (class % 64) & 1 != 0
    }

    /// Notes whether the heap, which is locked, can spare a zspage of `class` (a hint: what the
    /// settling of a remote-free list changes is noted by the next change).
    #[cold]
    fn note_spare(&self, class: usize, heap: &mut Heap) {
        let (word, bit) = (&self.spare[class / 64], 1 << (class % 64));
        let spares = heap.class(class).can_spare();
        let bits = word.get();
        if (bits & bit != 0) != spares {
            word.set(bits ^ bit);
        }
    }
}

impl Design for PerCpu {
    const LOCK: &'static str = "cpu";
    const CELLS_BATCH: usize = 32;
    const LOCKED_COPY: bool = false;

    fn new(heaps: usize) -> Self {
        Self { heaps }
    }

    fn heaps(classes: usize, cpus: usize) -> Vec<Range<usize>> {
        (0..cpus).map(|_| 0..classes).collect()
    }

    #[inline]
    fn alloc(&self, shared: &Shared, class: usize, len: usize) -> Result<Taken, AllocError> {
        let own = self.own();
        let mut heap = shared.lock(own)?;
        let spared = heap.class(class).can_spare();
        if let Some(taken) = heap.take(&shared.tables, class, len)? {
            if heap.class(class).can_spare() != spared {
                shared.slots[own].note_spare(class, &mut heap);
            }
            return Ok(taken);
        }
        drop(heap);
        if self.heaps > 1 && self.borrow(shared, own, class)? {
            // Other threads of this CPU may have used it up by now.
            if let Some(taken) = shared.lock(own)?.take(&shared.tables, class, len)? {
                return Ok(taken);
            }
        }
        shared.alloc_grown(class, len, || shared.lock(own))
    }

    #[inline]
    fn free(&self, shared: &Shared, handle: Handle) -> Result<Option<Emptied>, HandleError> {
        let cell = shared.cell(handle)?;
        let place = cell.hold(handle.serial())?;
        let own = self.own();
        if shared.owner(place) == own {
            let mut heap = shared.lock(own).inspect_err(|_| cell.publish(place))?;
            if shared.owner(place) == own {
                let spared = heap.class(place.class).can_spare();
                let emptied = shared.give(&mut heap, handle, cell, place);
                if heap.class(place.class).can_spare() != spared {
                    shared.slots[own].note_spare(place.class, &mut heap);
                }
                return Ok(emptied);
            }
        }
        let owner = shared.owner(place);
        let count = shared.slots[owner].remote_frees.0.push(handle.index(), cell);
        if count >= REMOTE_FREES_MAX {
            drop(shared.lock(owner)?);
        }
        Ok(None)
    }

    fn heaps_of(&self, _: &Shared, _: usize) -> Range<usize> {
        0..self.heaps
    }

    fn gather(&self, shared: &Shared, class: usize) -> Option<usize> {
        let own = self.own();
        for other in (0..self.heaps).filter(|&other| other != own) {
            loop {
                // A zspage for each time the two locks are held.
                let [mut to, mut from] = Self::lock_pair(shared, own, other).ok()?;
                let moved = from.hand_over(&shared.tables, class, &mut to);
                shared.slots[other].note_spare(class, &mut from);
                shared.slots[own].note_spare(class, &mut to);
                if !moved {
                    break;
                }
            }
        }
        Some(own)
    }
}
