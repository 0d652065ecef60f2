//! Directories: how each segment is cut into extents, used and free, in two bytes an extent.
//!
//! ```text
//!   entry:  15      14 ......... 0
//!           | free | first granule |
//! ```
//!
//! A segment's directory is a sorted array of entries. An extent ends where the next one begins,
//! the last one at the directory's end. The arrays lie in one table, apart from the objects, so
//! that taking and giving an extent touches two or three cache lines and no object. The table has
//! one entry more than its arrays, so that each array has a next entry.
//!
//! - E1: a directory covers the granules from 0 to its end, each once; of two neighbours at least
//!   one is used.
//! - E2: an object that would leave a single granule of a hole takes it, too. An extent that moves
//!   does not: however often it moves, it is at most one granule longer than its object. Only if
//!   it is a single granule itself does it take another; so the last hole is never cut into two
//!   single granules.
//! - E3: every array of the table belongs to one directory or is on the free list of its capacity.
//! - E4: entries of an array after the directory's last, of which there is at least one, are its
//!   end, used.
//!
//! Cost: capacities are 32, 48, 64, 96, ... entries, so of an array at least two thirds are used
//! once it has grown. A search looks at all of an array, sixteen entries at a time.

mod scan;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use scan::Lens;
use scan::{FREE, is_free, start};

use super::place::SEGMENT;
use crate::memory::list::NIL;

/// Capacities of arrays, in entries: one for each granule of a segment at most.
const CLASSES: usize = 17;

#[inline]
const fn capacity(class: u8) -> usize {
    ((2 + class as usize % 2) * scan::STEP) << (class / 2)
}

/// Returns the class of the least capacity for `len` entries and one after them (E4).
fn class_for(len: usize) -> u8 {
    (0..CLASSES as u8).find(|&class| capacity(class) > len).expect("an entry a granule at most")
}

// An extent has a granule at least, the last hole two (E2).
const _: () = assert!(capacity(CLASSES as u8 - 1) == SEGMENT as usize);

/// A part of a segment: one object, or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) at: u16,
    pub(crate) len: u16,
    pub(crate) free: bool,
}

/// The directory of one segment: where its entries lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directory {
    /// Index of the first entry in the table.
    first: u32,
    len: u16,
    /// Granules that it covers.
    end: u16,
    class: u8,
}

impl Directory {
    /// Stands for no directory.
    pub(crate) const NONE: Self = Self { first: NIL, len: 0, end: 0, class: 0 };

    /// Granules that the directory covers.
    #[inline]
    pub(crate) fn end(&self) -> u16 {
        self.end
    }
}

/// A hole that was looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    index: usize,
    /// Whether the segment has another one of the same bin.
    pub(crate) more: bool,
}

/// The taker of a part of a hole, and the granules that it needs (E2).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taker {
    /// A new object.
    Object(u16),
    /// A used extent, which moves.
    Extent(u16),
}

impl Taker {
    #[inline]
    pub(crate) fn granules(self) -> u16 {
        let (Self::Object(granules) | Self::Extent(granules)) = self;
        granules
    }

    /// Returns whether it takes a single granule that it would leave.
    #[inline]
    fn takes_last(self) -> bool {
        matches!(self, Self::Object(_) | Self::Extent(1))
    }
}

/// The table of all directories.
#[derive(Debug)]
pub(crate) struct Directories {
    entries: Vec<u16>,
    /// First free array of each capacity; its first two entries are the index of the next one.
    free: [u32; CLASSES],
    /// The table may have grown since [`Directories::note_size`].
    resized: bool,
}

/// Returns the extent of an index of an array.
#[inline]
fn extent_of(array: &[u16], index: usize) -> Extent {
    let (entry, next) = (array[index], array[index + 1]);
    Extent { at: start(entry), len: start(next) - start(entry), free: is_free(entry) }
}

impl Directories {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: [NIL; CLASSES], resized: false }
    }

    /// Entries of all arrays, idle ones included.
    pub(crate) fn entries_len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of the table.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u16>()
    }

    /// Returns whether the table may have grown since [`Directories::note_size`].
    #[inline]
    pub(crate) fn is_resized(&self) -> bool {
        self.resized
    }

    /// Notes that its size is known.
    pub(crate) fn note_size(&mut self) {
        self.resized = false;
    }

    /// Returns a directory that covers nothing yet.
    pub(crate) fn open(&mut self) -> Directory {
        let directory = Directory { first: self.take_array(0), len: 0, end: 0, class: 0 };
        self.array(&directory).fill(0);
        directory
    }

    /// Takes a directory back.
    pub(crate) fn close(&mut self, directory: Directory) {
        self.put_array(directory.first, directory.class);
    }

    fn take_array(&mut self, class: u8) -> u32 {
        let first = self.free[usize::from(class)];
        if first != NIL {
            let [low, high] = [0, 1].map(|at| u32::from(self.entries[first as usize + at]));
            self.free[usize::from(class)] = high << 16 | low;
            return first;
        }
        // The entry after all arrays becomes the first of the new one.
        let first = self.entries.len().saturating_sub(1);
        let (len, more) = (first + capacity(class) + 1, capacity(class) + 1);
        if self.entries.capacity() < len {
            // In small steps, so that a table costs about what it holds.
            self.entries.reserve_exact(more.max(first / 16));
            self.resized = true;
        }
        self.entries.resize(len, 0);
        u32::try_from(first).expect("an arena has fewer granules than that")
    }

    fn put_array(&mut self, first: u32, class: u8) {
        let next = std::mem::replace(&mut self.free[usize::from(class)], first);
        self.entries[first as usize] = next as u16;
        self.entries[first as usize + 1] = (next >> 16) as u16;
    }

    #[inline]
    fn entries(&self, directory: &Directory) -> &[u16] {
        &self.entries[directory.first as usize..][..usize::from(directory.len)]
    }

    /// Returns all of a directory's array.
    #[inline]
    fn array(&mut self, directory: &Directory) -> &mut [u16] {
        &mut self.entries[directory.first as usize..][..capacity(directory.class)]
    }

    /// Returns all of a directory's array, and the entry after it.
    #[inline]
    fn array_and_next(&self, directory: &Directory) -> &[u16] {
        &self.entries[directory.first as usize..][..=capacity(directory.class)]
    }

    /// Returns the extents in order.
    pub(crate) fn extents(&self, directory: &Directory) -> impl Iterator<Item = Extent> + '_ {
        let entries = self.entries(directory);
        let ends = entries.iter().skip(1).map(|&next| start(next)).chain([directory.end]);
        entries.iter().zip(ends).map(|(&entry, end)| Extent {
            at: start(entry),
            len: end - start(entry),
            free: is_free(entry),
        })
    }

    /// Returns the extent of an index.
    #[inline]
    fn extent(&self, directory: &Directory, index: usize) -> Extent {
        extent_of(self.array_and_next(directory), index)
    }

    /// Returns whether a used extent begins at `at`.
    pub(crate) fn is_used(&self, directory: &Directory, at: u16) -> bool {
        let array = self.array_and_next(directory);
        at < directory.end && array[scan::before(array, at)] == at
    }

    /// Returns the last hole that has one of `lens`.
    #[inline]
    pub(crate) fn find(&self, directory: &Directory, lens: Lens) -> Option<Found> {
        let array = self.array_and_next(directory);
        let (count, at) = scan::holes(array, lens);
        (count > 0).then(|| Found { index: scan::before(array, at), more: count > 1 })
    }

    /// Returns the hole at the directory's end, if there is one, and its granules.
    #[inline]
    pub(crate) fn tail(&self, directory: &Directory) -> Option<(Found, u16)> {
        let index = usize::from(directory.len).checked_sub(1)?;
        let extent = self.extent(directory, index);
        extent.free.then_some((Found { index, more: false }, extent.len))
    }

    /// Takes a place from the beginning of a hole; returns where it is, how many granules were
    /// taken (E2), and how many of the hole are left.
    #[inline]
    pub(crate) fn take(
        &mut self,
        directory: &mut Directory,
        found: Found,
        taker: Taker,
    ) -> (u16, u16, u16) {
        let granules = taker.granules();
        let array = self.array(directory);
        let Extent { at, len, free } = extent_of(array, found.index);
        assert!(free && len >= granules, "E1: {granules} granules of {len} at {at}");
        array[found.index] = at;
        let left = len - granules;
        if left == 0 || left == 1 && taker.takes_last() {
            return (at, len, 0);
        }
        self.insert(directory, found.index + 1, (at + granules) | FREE);
        (at, granules, left)
    }

    /// Makes the used extent that begins at `at` free; returns its granules, and those of the
    /// hole that it is part of now.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub(crate) fn give(&mut self, directory: &mut Directory, at: u16) -> (u16, u16) {
        let end = directory.end;
        let array = self.array(directory);
        let index = scan::before(array, at);
        let Extent { len, .. } = extent_of(array, index);
        assert!(at < end && array[index] == at, "E1: a used extent begins at {at}");
        array[index] |= FREE;
        let free_before = index > 0 && is_free(array[index - 1]);
        let free_after = is_free(array[index + 1]);
        let first = index - usize::from(free_before);
        let joined = usize::from(free_before) + usize::from(free_after);
        if joined > 0 {
            self.remove(directory, first + 1, joined);
        }
        (len, self.extent(directory, first).len)
    }

    /// Has the directory cover the granules up to `end`; the new ones are free.
    pub(crate) fn extend(&mut self, directory: &mut Directory, end: u16) {
        debug_assert!(end > directory.end && end <= SEGMENT);
        if self.tail(directory).is_none() {
            let (index, at) = (directory.len.into(), directory.end);
            self.insert(directory, index, at | FREE);
        }
        self.set_end(directory, end);
    }

    /// Has the directory cover only the granules up to `end`, in the hole at its end.
    pub(crate) fn truncate(&mut self, directory: &mut Directory, end: u16) {
        let index = usize::from(directory.len) - 1;
        let Extent { at, free, .. } = self.extent(directory, index);
        assert!(free && at <= end && end <= directory.end, "E1: {end} is not in a hole at {at}");
        if at == end {
            self.remove(directory, index, 1);
        }
        self.set_end(directory, end);
    }

    /// Sets the end, and what says so (E4).
    fn set_end(&mut self, directory: &mut Directory, end: u16) {
        directory.end = end;
        let len = usize::from(directory.len);
        self.array(directory)[len..].fill(end);
    }

    #[inline]
    fn insert(&mut self, directory: &mut Directory, index: usize, entry: u16) {
        let len = usize::from(directory.len);
        if len + 1 == capacity(directory.class) {
            self.grow(directory);
        }
        let array = self.array(directory);
        array.copy_within(index..=len, index + 1);
        array[index] = entry;
        directory.len += 1;
    }

    #[inline]
    fn remove(&mut self, directory: &mut Directory, index: usize, count: usize) {
        let (len, end) = (usize::from(directory.len), directory.end);
        let array = self.array(directory);
        array.copy_within(index + count..len, index);
        array[len - count..len].fill(end);
        directory.len -= count as u16;
    }

    /// Moves a directory to an array of the next capacity.
    #[cold]
    fn grow(&mut self, directory: &mut Directory) {
        let old = *directory;
        directory.class += 1;
        directory.first = self.take_array(directory.class);
        let (from, len) = (old.first as usize, usize::from(old.len));
        self.entries.copy_within(from..from + len, directory.first as usize);
        self.put_array(old.first, old.class);
        self.set_end(directory, old.end);
    }

    /// Entries that arrays on free lists have.
    fn idle_entries(&self) -> usize {
        let mut idle = 0;
        for (class, &head) in (0..).zip(&self.free) {
            let mut next = head;
            while next != NIL {
                idle += capacity(class);
                let [low, high] = [0, 1].map(|at| u32::from(self.entries[next as usize + at]));
                next = high << 16 | low;
            }
        }
        idle
    }

    /// Shrinks the table to what `directories`, all there are, need, if more than `idle_max`
    /// entries are idle.
    ///
    /// # Cost
    /// In proportion to what is left then; less than that otherwise.
    pub(crate) fn trim<'a>(
        &mut self,
        directories: impl Iterator<Item = &'a mut Directory>,
        idle_max: usize,
    ) {
        if self.idle_entries() > idle_max {
            let mut trimmed = Self::new();
            for directory in directories {
                let class = class_for(directory.len.into());
                let first = trimmed.take_array(class);
                let entries = self.entries(directory);
                trimmed.entries[first as usize..][..entries.len()].copy_from_slice(entries);
                (directory.first, directory.class) = (first, class);
                trimmed.set_end(directory, directory.end);
            }
            *self = trimmed;
        }
        self.entries.shrink_to(self.entries.len() + idle_max);
    }

    /// Asserts E1 and E4 of a directory.
    ///
    /// # Panics
    /// If it is broken.
    pub(crate) fn check(&self, directory: &Directory) {
        let (mut end, mut free) = (0, false);
        let array = &self.array_and_next(directory)[..capacity(directory.class)];
        let after = &array[usize::from(directory.len)..];
        assert!(!after.is_empty() && after.iter().all(|&at| at == directory.end), "E4: {after:?}");
        for extent in self.extents(directory) {
            assert_eq!(extent.at, end, "E1: a gap or an overlap");
            assert!(extent.len > 0 && !(free && extent.free), "E1: {extent:?}");
            (end, free) = (extent.at + extent.len, extent.free);
        }
        assert_eq!(end, directory.end, "E1: end");
    }

    /// Asserts E3, where `directories` are all there are.
    ///
    /// # Panics
    /// If it is broken.
    pub(crate) fn check_table<'a>(&self, directories: impl Iterator<Item = &'a Directory>) {
        let in_use: usize = directories.map(|directory| capacity(directory.class)).sum();
        let arrays = self.entries.len().saturating_sub(1);
        assert_eq!(in_use + self.idle_entries(), arrays, "E3: arrays");
    }
}
