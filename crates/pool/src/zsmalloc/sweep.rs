//! Compaction of a whole pool: which classes and heaps have their turn, on which threads.
//!
//! A class is taken by one thread, from the counter of those that are left, so no two threads plan
//! moves in one; all else that they share is sums, which order nothing. A heap is locked for each
//! step and given back between steps; in designs that can, also while a step copies, when the
//! cells that it holds keep others away (zsmalloc/compact/C1). Memory goes back to the system with
//! no lock held.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use crate::options::zsmalloc::{Compaction, Grouping};
use crate::sync::spin::Dead;
use crate::zsmalloc::class::SizeClass;
use crate::zsmalloc::compact::Compactor;
use crate::zsmalloc::locking::{Design, Shared};

/// Compaction of a whole pool: classes in turn, the largest objects first.
#[derive(Debug)]
pub(crate) struct Sweep<'a, D> {
    shared: &'a Shared,
    design: &'a D,
    algorithm: Compaction,
    stop: &'a AtomicBool,
    budget: i64,
    /// Pages freed so far, less those that targets needed.
    freed: AtomicI64,
    /// Classes that no thread has begun yet.
    classes_left: AtomicUsize,
}

impl<'a, D: Design> Sweep<'a, D> {
    /// Returns a compaction that ends when `pages` pages are freed or `stop` says so.
    pub(crate) fn new(
        shared: &'a Shared,
        design: &'a D,
        algorithm: Compaction,
        pages: u64,
        stop: &'a AtomicBool,
    ) -> Self {
        Self {
            shared,
            design,
            algorithm,
            stop,
            budget: i64::try_from(pages).unwrap_or(i64::MAX),
            freed: AtomicI64::new(0),
            classes_left: AtomicUsize::new(shared.tables.geometry.classes().len()),
        }
    }

    /// Compacts on the calling thread and on `helpers` others, as long as there is something to do.
    /// A dead pool compacts nothing any longer; memory that was freed before that counts.
    pub(crate) fn run(&self, helpers: usize) {
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                let helper = std::thread::Builder::new().name("zfold-compact".to_owned());
                // Without a helper, the caller does its share.
                let _ = helper.spawn_scoped(scope, || self.work());
            }
            let _ = self.work();
        });
    }

    /// Returns the pages freed.
    pub(crate) fn into_freed(self) -> u64 {
        self.freed.into_inner().try_into().unwrap_or(0)
    }

    /// Returns whether the budget is not used up and no stop was requested.
    pub(crate) fn goes_on(&self) -> bool {
        // Relaxed: a request and a sum, seen a step later at worst.
        !self.stop.load(Ordering::Relaxed) && self.freed.load(Ordering::Relaxed) < self.budget
    }

    /// Returns a class that is this caller's alone.
    fn next_class(&self) -> Option<usize> {
        let take = |left: usize| left.checked_sub(1);
        let before = self.classes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        before.ok().map(|left| left - 1)
    }

    /// Compacts classes until none is left, on the calling thread.
    fn work(&self) -> Result<(), Dead> {
        while self.goes_on()
            && let Some(class) = self.next_class()
        {
            let heaps = self.design.heaps_of(self.shared, class);
            if self.surplus(heaps.clone(), class)? == 0 {
                continue;
            }
            for heap in heaps.clone() {
                self.compact_class(heap, class)?;
            }
            if heaps.len() > 1
                && self.goes_on()
                && self.surplus(heaps, class)? > 0
                && let Some(heap) = self.design.gather(self.shared, class)
            {
                self.compact_class(heap, class)?;
            }
        }
        Ok(())
    }

    /// Returns the zspages that compaction could free in a class of some heaps.
    fn surplus(&self, heaps: Range<usize>, class: usize) -> Result<u64, Dead> {
        let spec = self.shared.tables.geometry.classes()[class];
        let mut sum = SizeClass::new(spec, Grouping::default());
        for heap in heaps {
            sum.add_counts(self.shared.lock(heap)?.class(class));
        }
        Ok(sum.surplus_zspages())
    }

    /// Compacts one class of one heap, step by step (see [`super::compact`]).
    fn compact_class(&self, heap: usize, class: usize) -> Result<(), Dead> {
        let tables = &self.shared.tables;
        let mut run = Compactor::new(class, self.algorithm);
        loop {
            let mut locked = self.design.lock_for_moves(self.shared, heap)?;
            let step = if self.goes_on() { run.plan(&mut locked.heap, tables) } else { None };
            let Some(step) = step else {
                let emptied = run.end(&mut locked.heap, tables);
                drop(locked);
                let pages = emptied.map_or(0, |emptied| i64::from(emptied.pages));
                self.freed.fetch_add(pages, Ordering::Relaxed);
                self.shared.shrink(emptied);
                return Ok(());
            };
            if D::LOCKED_COPY {
                step.run(tables);
            } else {
                drop(locked);
                step.run(tables);
                locked = self.design.lock_for_moves(self.shared, heap)?;
            }
            let emptied = run.finish(&step, &mut locked.heap, tables);
            drop(locked);
            let pages = emptied.map_or(0, |emptied| i64::from(emptied.pages));
            self.freed.fetch_add(pages - i64::from(step.pages), Ordering::Relaxed);
            if emptied.is_some() {
                self.shared.shrink(emptied);
                self.shared.tables.release_burst();
            }
        }
    }
}
