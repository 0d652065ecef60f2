//! Bytes of pages on their way out, in memory that is reused.

use std::ops::{Deref, DerefMut};

/// A growable buffer whose memory, once written, is not cleared when it is reused: added bytes have
/// arbitrary values.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    memory: Vec<u8>,
    len: usize,
}

impl Bytes {
    /// Adds `more` bytes at the end, for the caller to write to, and returns them.
    pub(crate) fn grow(&mut self, more: usize) -> &mut [u8] {
        let start = self.len;
        self.len += more;
        if self.memory.len() < self.len {
            self.memory.resize(self.len, 0);
        }
        &mut self.memory[start..self.len]
    }

    /// Keeps the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Returns the bytes of memory that it takes.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.memory.capacity()
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_is_not_seen_and_its_memory_is_used_again() {
        let mut bytes = Bytes::default();
        bytes.grow(8).fill(1);
        bytes.truncate(3);
        bytes.truncate(5);
        assert_eq!(*bytes, [1; 3]);
        let memory = bytes.capacity();
        bytes.grow(2).fill(2);
        assert_eq!(*bytes, [1, 1, 1, 2, 2]);
        assert_eq!(bytes.capacity(), memory);
        bytes.truncate(0);
        assert!(bytes.is_empty());
    }
}
