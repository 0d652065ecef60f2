//! Compaction: objects of sparse zspages move into fuller ones until no whole zspage's worth of
//! free objects is left in the class.
//!
//! Both algorithms of the kernel are here, so that their published object-copy counts can be
//! compared. A step handles one source or a bounded number of objects, whichever ends first;
//! between steps the shell lets other callers in. Between steps no zspage is off its list.
//!
//! An object that is pinned by a reader stays; its class is left alone until the next compaction.

use crate::core::{CompactCursor, CompactStep};
use crate::handle::Handle;
use crate::pins::Pins;
use crate::zsmalloc::Zsmalloc;
use crate::zsmalloc::class::SizeClass;
use crate::zsmalloc::geometry::ClassSpec;

/// Objects that one step moves at most, give or take a zspage.
const STEP_OBJECTS: u64 = 64;

/// The compaction algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compaction {
    /// Linux up to 6.3: takes a source from the emptier half and spreads it over targets, putting
    /// each target back after it was used; a target may become the next source.
    PerSource,
    /// Linux since 6.4: keeps filling the fullest zspage from the emptiest ones.
    #[default]
    KeepTarget,
}

/// How moving a source's objects ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drained {
    /// The source has no object left.
    Empty,
    /// The target is full.
    TargetFull,
    /// Readers hold objects of the source.
    Pinned,
    /// The target needs another page, and there is none.
    NoMemory,
}

impl Zsmalloc {
    /// Does a step of compaction in the class that `cursor` names, counted from the largest.
    pub(crate) fn compact_class_step(
        &mut self,
        cursor: &mut CompactCursor,
        pins: &Pins,
    ) -> CompactStep {
        let Some(class) = self.classes.len().checked_sub(cursor.0 as usize + 1) else {
            return CompactStep { freed: 0, done: true };
        };
        let before = self.arena.used().0;
        let class_done = self.classes[class].surplus_zspages() == 0
            || match self.compaction {
                Compaction::PerSource => self.step_per_source(class, pins),
                Compaction::KeepTarget => self.step_keep_target(class, pins),
            };
        let freed = before as i64 - self.arena.used().0 as i64;
        self.pages_compacted_total += u64::try_from(freed).unwrap_or(0);
        cursor.0 += u64::from(class_done);
        CompactStep { freed, done: false }
    }

    /// Empties the emptiest zspage into the fullest ones. Returns whether the class is done.
    fn step_per_source(&mut self, class: usize, pins: &Pins) -> bool {
        let Some(source) = self.take_off(class, SizeClass::emptiest) else { return true };
        let (mut from, mut drained) = (0, Drained::TargetFull);
        while drained == Drained::TargetFull {
            let Some(target) = self.take_off(class, SizeClass::fullest_with_room) else {
                break;
            };
            drained = self.drain(class, source, target, &mut from, pins);
            self.classes[class].list(&mut self.zspages, target);
        }
        self.put_back(class, source);
        drained != Drained::Empty
    }

    /// Fills the fullest zspage from the emptiest ones, until it is full or the step is long
    /// enough. Returns whether the class is done.
    fn step_keep_target(&mut self, class: usize, pins: &Pins) -> bool {
        let (moved_before, mut done) = (self.moved_total, true);
        let Some(target) = self.take_off(class, SizeClass::fullest_with_room) else { return true };
        while self.classes[class].surplus_zspages() > 0 {
            let Some(source) = self.take_off(class, SizeClass::emptiest) else { break };
            let drained = self.drain(class, source, target, &mut 0, pins);
            self.put_back(class, source);
            if matches!(drained, Drained::Pinned | Drained::NoMemory) {
                break;
            }
            let full = drained == Drained::TargetFull || self.is_full(class, target);
            if full || self.moved_total - moved_before >= STEP_OBJECTS {
                done = false;
                break;
            }
        }
        self.classes[class].list(&mut self.zspages, target);
        done
    }

    fn take_off(
        &mut self,
        class: usize,
        choose: impl Fn(&SizeClass) -> Option<u32>,
    ) -> Option<u32> {
        let class = &mut self.classes[class];
        let index = choose(class)?;
        class.unlist(&mut self.zspages, index);
        Some(index)
    }

    /// Lists a source again, or frees it if it is empty.
    fn put_back(&mut self, class: usize, source: u32) {
        if self.zspages.records.at(source).in_use == 0 {
            self.release_zspage(source);
        } else {
            self.classes[class].list(&mut self.zspages, source);
        }
    }

    fn is_full(&self, class: usize, index: u32) -> bool {
        u32::from(self.zspages.records.at(index).in_use) == self.classes[class].spec.objects
    }

    /// Moves the source's objects from index `from` on to the target; both are unlisted.
    fn drain(
        &mut self,
        class: usize,
        source: u32,
        target: u32,
        from: &mut u32,
        pins: &Pins,
    ) -> Drained {
        let spec = self.classes[class].spec;
        let mut pinned = false;
        while *from < spec.objects {
            let record = self.zspages.records.at(source);
            if let Some(handle) = self.zspages.handle_of(record, &spec, *from) {
                if self.is_full(class, target) {
                    return Drained::TargetFull;
                }
                if pins.contains(handle) {
                    pinned = true;
                } else if self.make_available(class, target).is_err() {
                    return Drained::NoMemory;
                } else {
                    self.move_object(&spec, (source, *from), target, handle);
                }
            }
            *from += 1;
        }
        if pinned { Drained::Pinned } else { Drained::Empty }
    }

    /// Moves one object into a free one of the target and points its cell there.
    fn move_object(
        &mut self,
        spec: &ClassSpec,
        (source, from): (u32, u32),
        target: u32,
        handle: Handle,
    ) {
        let to = self.zspages.take(target, spec, handle);
        let (from_at, to_at) = (
            self.zspages.payload(self.zspages.records.at(source), spec, from),
            self.zspages.payload(self.zspages.records.at(target), spec, to),
        );
        let cell = self.cells.at_mut(handle.index());
        let len = spec.payload_max() - cell.slack();
        *cell = cell.moved_to(target, to);
        // SAFETY: M1: the shell holds the lock, the object is not pinned (checked by `drain`),
        // and its new place was free until now.
        unsafe { self.zspages.frames.copy(from_at, to_at, len) };
        self.zspages.give(source, spec, from);
        self.moved_total += 1;
    }
}
