//! Bytes of pages on their way out, in parts, each in memory of its own, which the next pages use
//! again or the system gets back.
//!
//! Not from malloc: what it gets back it keeps, with holes between, which no limit counts.
//!
//! - B1: a part's reservation has [`PART_BYTES`] bytes, all committed when it was made. Nobody but
//!   the part has a pointer to it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use zfold_pool::source::{PageSource as _, Reservation, SystemPages};
use zfold_uffd::page::pages_in;

/// Bytes of a part, a whole number of pages.
pub(crate) const PART_BYTES: usize = 64 << 10;

/// Returns the pages of a part.
pub(crate) fn part_pages() -> usize {
    pages_in(PART_BYTES)
}

/// A part: [`PART_BYTES`] bytes, zeros at first.
pub(crate) struct Part(Arc<dyn Reservation>);

impl Part {
    /// Returns a part, which takes no memory before it is written to.
    ///
    /// # Panics
    /// If the system has no address space.
    fn new() -> Self {
        let memory = SystemPages.reserve(PART_BYTES).expect("address space for a part");
        memory.commit(0, PART_BYTES).expect("memory for a part");
        Self(memory)
    }
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: B1; zeros or what was written, which changes only where this is borrowed mutably.
        unsafe { std::slice::from_raw_parts(self.0.base().as_ptr(), PART_BYTES) }
    }
}

impl DerefMut for Part {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: B1, and this is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.0.base().as_ptr(), PART_BYTES) }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").finish_non_exhaustive()
    }
}

/// Bytes that are added one after the other.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    parts: Vec<Part>,
    len: usize,
}

impl Bytes {
    /// Returns none, for which there are these parts, with arbitrary contents.
    pub(crate) fn in_parts(parts: Vec<Part>) -> Self {
        Self { parts, len: 0 }
    }

    /// Adds at most `most` bytes, as many as the part has room for, with arbitrary values, for the
    /// caller to write to.
    ///
    /// # Panics
    /// If the system has no address space.
    pub(crate) fn grow(&mut self, most: usize) -> &mut [u8] {
        let (part, start) = (self.len / PART_BYTES, self.len % PART_BYTES);
        if part == self.parts.len() {
            self.parts.push(Part::new());
        }
        let more = most.min(PART_BYTES - start);
        self.len += more;
        &mut self.parts[part][start..start + more]
    }

    /// Gives the memory back that their parts have behind them, from before: whole pages, as the
    /// bytes are.
    pub(crate) fn trim(&mut self) {
        self.parts.truncate(self.len.div_ceil(PART_BYTES));
        let end = self.len % PART_BYTES;
        if let Some(last) = self.parts.last_mut().filter(|_| end > 0) {
            // SAFETY: committed by B1, in whole pages; as the part is borrowed mutably, no other
            // thread accesses it.
            unsafe { last.0.release(end, PART_BYTES - end) };
        }
    }

    /// Forgets all bytes; their memory is used again.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the parts.
    pub(crate) fn into_parts(self) -> Vec<Part> {
        self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfold_uffd::page::page_len;

    #[test]
    fn bytes_fill_one_part_after_the_other_in_memory_that_is_used_again() {
        let mut bytes = Bytes::default();
        bytes.grow(8).fill(1);
        let lens = [PART_BYTES, PART_BYTES, 4].map(|most| {
            let more = bytes.grow(most);
            more.fill(2);
            more.len()
        });
        assert_eq!(lens, [PART_BYTES - 8, PART_BYTES, 4]);
        assert_eq!(bytes.len(), 2 * PART_BYTES + 4);
        bytes.clear();
        assert_eq!(*bytes.grow(9), [1, 1, 1, 1, 1, 1, 1, 1, 2], "what was there before");
        let parts = bytes.into_parts();
        assert_eq!((parts.len(), parts[2][3], parts[2][4]), (3, 2, 0));
        let at = parts[0].as_ptr();
        let mut again = Bytes::in_parts(parts);
        assert_eq!((again.len(), again.grow(1).as_ptr()), (0, at));
    }

    #[test]
    fn memory_behind_the_last_page_goes_back() {
        let mut bytes = Bytes::default();
        (0..3).for_each(|_| bytes.grow(PART_BYTES).fill(7));
        bytes.clear();
        bytes.grow(PART_BYTES);
        bytes.grow(page_len());
        bytes.trim();
        let parts = bytes.into_parts();
        let ends = [0, PART_BYTES - 1].map(|at| (parts[0][at], parts[1][at]));
        assert_eq!((parts.len(), ends), (2, [(7, 7), (7, 0)]));
    }
}
