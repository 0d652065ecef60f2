//! Bytes of pages on their way out, in memory of their own, which goes back to the system in parts
//! or stays for the next pages.
//!
//! Not from malloc: what it gets back it keeps, with holes between, which no limit counts.
//!
//! - B1: the first `len` bytes are within the reservation, which has room for [`ROOM`] bytes, all
//!   committed when it was made. Nobody but this value has a pointer to it.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use zfold_pool::source::{PageSource as _, Reservation, SystemPages};

use crate::link::BATCH_BYTES;

/// Most bytes.
const ROOM: usize = BATCH_BYTES;

/// A buffer whose memory, once written, is not cleared when it is reused: added bytes have
/// arbitrary values. Without any bytes ever added it takes no memory.
#[derive(Default)]
pub(crate) struct Bytes {
    memory: Option<Arc<dyn Reservation>>,
    len: usize,
    /// How many of the first bytes may have been written to since their memory came.
    used: usize,
}

impl Bytes {
    /// Adds `more` bytes at the end, for the caller to write to, and returns them.
    ///
    /// # Panics
    /// If there are more than a batch has, or the system has no address space.
    pub(crate) fn grow(&mut self, more: usize) -> &mut [u8] {
        let start = self.len;
        assert!(more <= ROOM - start, "{start} and {more} bytes of {ROOM}");
        if self.memory.is_none() {
            let memory = SystemPages.reserve(ROOM).expect("address space for a batch");
            memory.commit(0, ROOM).expect("memory for a batch");
            self.memory = Some(memory);
        }
        self.len += more;
        self.used = self.used.max(self.len);
        &mut self[start..]
    }

    /// Keeps the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Gives the memory back that more bytes have left behind these, which are whole pages.
    pub(crate) fn trim(&mut self) {
        let Some(memory) = self.memory.as_ref().filter(|_| self.used > self.len) else { return };
        // SAFETY: committed and within by B1, in whole pages; as this is borrowed mutably, no other
        // thread accesses it.
        unsafe { memory.release(self.len, self.used - self.len) };
        self.used = self.len;
    }

    /// Gives the memory of a range back, whole pages of the system; its bytes are zeros from then
    /// on.
    pub(crate) fn release(&mut self, range: Range<usize>) {
        let len = self[range.clone()].len();
        if let Some(memory) = &self.memory {
            // SAFETY: committed and within by B1, in whole pages; as this is borrowed mutably, no
            // other thread accesses it.
            unsafe { memory.release(range.start, len) };
        }
    }

    /// Returns whether it has memory.
    #[cfg(test)]
    pub(crate) fn has_memory(&self) -> bool {
        self.memory.is_some()
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let Some(memory) = &self.memory else { return &[] };
        // SAFETY: B1; zeros or what was written, which changes only where this is borrowed mutably.
        unsafe { std::slice::from_raw_parts(memory.base().as_ptr(), self.len) }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        let Some(memory) = &self.memory else { return &mut [] };
        // SAFETY: B1, and this is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(memory.base().as_ptr(), self.len) }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bytes").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfold_uffd::Pagemap;
    use zfold_uffd::page::page_len;

    #[test]
    fn what_was_cut_off_is_not_seen_and_its_memory_is_used_again() {
        let mut bytes = Bytes::default();
        assert!(bytes.is_empty() && !bytes.has_memory());
        bytes.grow(8).fill(1);
        bytes.truncate(3);
        bytes.truncate(5);
        assert_eq!(*bytes, [1; 3]);
        let memory = bytes.as_ptr();
        bytes.grow(2).fill(2);
        assert_eq!(*bytes, [1, 1, 1, 2, 2]);
        assert_eq!(bytes.as_ptr(), memory);
        bytes.truncate(0);
        assert!(bytes.is_empty() && bytes.has_memory());
    }

    #[test]
    fn memory_goes_back_in_parts() {
        let mut bytes = Bytes::default();
        bytes.grow(8 * page_len()).fill(7);
        let start = bytes.as_ptr().addr();
        let resident = || {
            let map = Pagemap::open(std::process::id() as i32).unwrap();
            let parts = map.present(&(start..start + 8 * page_len())).unwrap();
            parts.iter().map(ExactSizeIterator::len).sum::<usize>() / page_len()
        };
        assert_eq!(resident(), 8);
        bytes.release(2 * page_len()..6 * page_len());
        assert_eq!(resident(), 4);
        let [before, inside, behind] = [1, 2, 6].map(|page| bytes[page * page_len()]);
        assert_eq!((before, inside, behind), (7, 0, 7));
        bytes.truncate(page_len());
        assert_eq!(resident(), 5, "one was read since");
        bytes.trim();
        assert_eq!((resident(), bytes[9]), (1, 7));
        bytes.grow(page_len()).fill(8);
        bytes.trim();
        assert_eq!(resident(), 2);
    }
}
