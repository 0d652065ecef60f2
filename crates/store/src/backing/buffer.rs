//! Bytes whose address suits a backing that reads past the page cache.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::contract::MAX_ALIGN;

/// A buffer of fixed length whose address is a multiple of [`MAX_ALIGN`], which is enough for any
/// backing.
pub struct AlignedBuffer {
    /// As long as the buffer and up to an alignment more. It is never resized, so the bytes stay
    /// where they are.
    bytes: Vec<u8>,
    /// Where the buffer begins in `bytes`.
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// Returns `len` bytes of 0. It takes 4095 bytes more than that.
    pub fn new(len: usize) -> Self {
        let bytes = vec![0; len + MAX_ALIGN - 1];
        let address = bytes.as_ptr().addr();
        Self { start: address.next_multiple_of(MAX_ALIGN) - address, bytes, len }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_wherever_they_move() {
        for len in [0, 1, 512, 4096, 70_000] {
            let mut buffer = AlignedBuffer::new(len);
            buffer.fill(7);
            let moved = Box::new(buffer);
            assert_eq!(moved.as_ptr().addr() % MAX_ALIGN, 0);
            assert_eq!(moved.len(), len);
            assert!(moved.iter().all(|&byte| byte == 7));
        }
    }
}
