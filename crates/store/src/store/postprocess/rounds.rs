//! The results of a round of work: for the next one, and for the caller.

use crate::backing::AlignedBuffer;

/// The work done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Processed {
    /// Pages that have a new form.
    pub pages: u64,
    /// Bytes that they took in the pool before.
    pub bytes_before: u64,
    /// Bytes that they take there now.
    pub bytes_after: u64,
}

/// The state that processing keeps between two rounds.
#[derive(Debug, Default)]
pub(crate) struct Processing {
    /// The key at which the clock hand stands.
    pub(super) hand: u64,
    /// Bytes of chosen pages.
    pub(super) buffer: Vec<u8>,
    /// The same as they are written. One for all threads: many would not fit under small limits.
    pub(super) write: Option<AlignedBuffer>,
    /// The length of a batch beyond which another page may not fit, if there is a most.
    full_above: Option<usize>,
}

impl Processing {
    /// Returns one that handles at most `len_max` bytes in a batch, of pages that take up to
    /// `page_max`. It has its buffers from the beginning, so that they need not grow while a store
    /// is at its limit.
    pub(crate) fn with_len_max(len_max: usize, page_max: usize) -> Self {
        Self {
            hand: 0,
            buffer: Vec::with_capacity(len_max),
            write: Some(AlignedBuffer::new(len_max)),
            full_above: Some(len_max - page_max),
        }
    }

    /// Returns whether a batch has no room for another page.
    pub(super) fn is_full(&self) -> bool {
        self.full_above.is_some_and(|len| self.buffer.len() > len)
    }

    /// Returns the bytes that the buffers take.
    pub(crate) fn bytes(&self) -> u64 {
        let write = self.write.as_ref().map_or(0, |buffer| buffer.len());
        (self.buffer.capacity() + write) as u64
    }
}
