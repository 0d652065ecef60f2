//! Directories: how each segment is cut into extents, used and free, in two bytes an extent.
//!
//! ```text
//!   entry:  15      14 ......... 0
//!           | free | first granule |
//! ```
//!
//! A segment's directory is a sorted array of entries. An extent ends where the next one begins,
//! the last one at the directory's end. The arrays lie in one table, apart from the objects, so
//! that taking and giving an extent touches two or three cache lines and no object.
//!
//! - E1: a directory covers the granules from 0 to its end, each once; of two neighbours at least
//!   one is used.
//! - E2: no free extent is a single granule, as far as taking decides: an object that would leave
//!   one takes it, too.
//! - E3: every array of the table belongs to one directory or is on the free list of its capacity.
//!
//! Cost: capacities are 16, 24, 32, 48, 64, ... entries, so of an array at least two thirds are
//! used once it has grown.

#[cfg(all(test, not(loom)))]
mod tests;

use super::place::SEGMENT;
use crate::memory::list::NIL;

const FREE: u16 = 1 << 15;

/// Capacities of arrays, in entries: one for each granule of a segment at most.
const CLASSES: usize = 19;

const fn capacity(class: u8) -> usize {
    (2 + class as usize % 2) << (3 + class / 2)
}

/// Returns the least capacity for `len` entries.
fn class_for(len: usize) -> u8 {
    (0..CLASSES as u8).find(|&class| capacity(class) >= len).expect("an entry a granule at most")
}

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

/// The table of all directories.
#[derive(Debug)]
pub(crate) struct Directories {
    entries: Vec<u16>,
    /// First free array of each capacity; its first two entries are the index of the next one.
    free: [u32; CLASSES],
}

#[inline]
fn start(entry: u16) -> u16 {
    entry & !FREE
}

#[inline]
fn is_free(entry: u16) -> bool {
    entry & FREE != 0
}

impl Directories {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: [NIL; CLASSES] }
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

    /// Returns a directory that covers nothing yet.
    pub(crate) fn open(&mut self) -> Directory {
        Directory { first: self.take_array(0), len: 0, end: 0, class: 0 }
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
        let (len, more) = (self.entries.len(), capacity(class));
        if self.entries.capacity() < len + more {
            // In small steps, so that a table costs about what it holds.
            self.entries.reserve_exact(more.max(len / 16));
        }
        self.entries.resize(len + more, 0);
        u32::try_from(len).expect("an arena has fewer granules than that")
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

    #[inline]
    fn entry(&mut self, directory: &Directory, index: usize) -> &mut u16 {
        debug_assert!(index < usize::from(directory.len));
        &mut self.entries[directory.first as usize + index]
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
        let entries = self.entries(directory);
        let at = start(entries[index]);
        let end = entries.get(index + 1).map_or(directory.end, |&next| start(next));
        Extent { at, len: end - at, free: is_free(entries[index]) }
    }

    /// Returns the index of the used extent that begins at `at`, if there is one.
    #[inline]
    fn index_of(&self, directory: &Directory, at: u16) -> Option<usize> {
        let entries = self.entries(directory);
        let index = entries.binary_search_by_key(&at, |&entry| start(entry)).ok()?;
        (!is_free(entries[index])).then_some(index)
    }

    /// Returns whether a used extent begins at `at`.
    pub(crate) fn is_used(&self, directory: &Directory, at: u16) -> bool {
        self.index_of(directory, at).is_some()
    }

    /// Returns the last hole whose length `bin_of` puts into `bin`.
    #[inline]
    pub(crate) fn find(
        &self,
        directory: &Directory,
        bin: u16,
        bin_of: impl Fn(u16) -> u16,
    ) -> Option<Found> {
        let entries = self.entries(directory);
        let (&last, _) = entries.split_last()?;
        let (mut index, mut count) = (0, 0);
        // Without a branch, so that it is done for many entries at once.
        for (n, (&entry, &next)) in (0_u16..).zip(entries.iter().zip(&entries[1..])) {
            let hit = is_free(entry) & (bin_of(start(next).wrapping_sub(start(entry))) == bin);
            index = if hit { n } else { index };
            count += u16::from(hit);
        }
        if is_free(last) && bin_of(directory.end - start(last)) == bin {
            index = directory.len - 1;
            count += 1;
        }
        (count > 0).then_some(Found { index: index.into(), more: count > 1 })
    }

    /// Returns the hole at the directory's end, if there is one, and its granules.
    #[inline]
    pub(crate) fn tail(&self, directory: &Directory) -> Option<(Found, u16)> {
        let index = usize::from(directory.len).checked_sub(1)?;
        let extent = self.extent(directory, index);
        extent.free.then_some((Found { index, more: false }, extent.len))
    }

    /// Takes `granules` from the beginning of a hole; returns where they are, how many were taken
    /// (E2), and how many of the hole are left.
    #[inline]
    pub(crate) fn take(
        &mut self,
        directory: &mut Directory,
        found: Found,
        granules: u16,
    ) -> (u16, u16, u16) {
        let Extent { at, len, free } = self.extent(directory, found.index);
        assert!(free && len >= granules, "E1: {granules} granules of {len} at {at}");
        *self.entry(directory, found.index) = at;
        let left = len - granules;
        if left <= 1 {
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
        let index = self.index_of(directory, at).expect("E1: a used extent begins here");
        let Extent { len, .. } = self.extent(directory, index);
        let entries = self.entries(directory);
        let free_before = index > 0 && is_free(entries[index - 1]);
        let free_after = entries.get(index + 1).is_some_and(|&entry| is_free(entry));
        let first = index - usize::from(free_before);
        if !free_before {
            *self.entry(directory, index) |= FREE;
        }
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
        directory.end = end;
    }

    /// Has the directory cover only the granules up to `end`, in the hole at its end.
    pub(crate) fn truncate(&mut self, directory: &mut Directory, end: u16) {
        let index = usize::from(directory.len) - 1;
        let Extent { at, free, .. } = self.extent(directory, index);
        assert!(free && at <= end && end <= directory.end, "E1: {end} is not in a hole at {at}");
        if at == end {
            self.remove(directory, index, 1);
        }
        directory.end = end;
    }

    #[inline]
    fn insert(&mut self, directory: &mut Directory, index: usize, entry: u16) {
        if usize::from(directory.len) == capacity(directory.class) {
            self.grow(directory);
        }
        let (from, len) = (directory.first as usize, usize::from(directory.len));
        self.entries.copy_within(from + index..from + len, from + index + 1);
        self.entries[from + index] = entry;
        directory.len += 1;
    }

    #[inline]
    fn remove(&mut self, directory: &mut Directory, index: usize, count: usize) {
        let (from, len) = (directory.first as usize, usize::from(directory.len));
        self.entries.copy_within(from + index + count..from + len, from + index);
        directory.len -= count as u16;
    }

    /// Moves a directory to an array of the next capacity.
    #[cold]
    fn grow(&mut self, directory: &mut Directory) {
        let to = self.take_array(directory.class + 1);
        self.move_to(directory, to);
        directory.class += 1;
    }

    fn move_to(&mut self, directory: &mut Directory, to: u32) {
        let from = directory.first as usize;
        self.entries.copy_within(from..from + usize::from(directory.len), to as usize);
        self.put_array(from as u32, directory.class);
        directory.first = to;
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
                let len = usize::from(directory.len);
                trimmed.entries[first as usize..][..len].copy_from_slice(self.entries(directory));
                (directory.first, directory.class) = (first, class);
            }
            *self = trimmed;
        }
        self.entries.shrink_to(self.entries.len() + idle_max);
    }

    /// Asserts E1 of a directory.
    ///
    /// # Panics
    /// If it is broken.
    pub(crate) fn check(&self, directory: &Directory) {
        let (mut end, mut free) = (0, false);
        assert!(usize::from(directory.len) <= capacity(directory.class), "E1: capacity");
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
        assert_eq!(in_use + self.idle_entries(), self.entries.len(), "E3: arrays");
    }
}
