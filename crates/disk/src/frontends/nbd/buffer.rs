//! Bytes received and not yet used.

use std::io;

/// A buffer of fixed size: filled at the end, used at the front.
#[derive(Debug)]
pub(super) struct Buffer {
    space: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// Returns an empty buffer of `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        Self { space: vec![0; len].into(), start: 0, end: 0 }
    }

    /// Returns the bytes that are not used yet.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.space[self.start..self.end]
    }

    /// Returns how many bytes it can hold.
    pub(super) fn capacity(&self) -> usize {
        self.space.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops the first `len` bytes.
    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
        assert!(self.start <= self.end, "only what was received can be used");
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Appends what `receive` puts into the free space, and returns how much that was.
    pub(super) fn fill(
        &mut self,
        receive: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.start > 0 {
            self.space.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let received = receive(&mut self.space[self.end..])?;
        self.end += received;
        Ok(received)
    }
}
