//! What a round of work leaves: for the next one, and for who asked for it.

use crate::backing::AlignedBuffer;

/// What was done.
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

/// What processing keeps between two rounds.
#[derive(Debug, Default)]
pub(crate) struct Processing {
    /// The key at which the clock hand stands.
    pub(super) hand: u64,
    /// Bytes of chosen pages.
    pub(super) buffer: Vec<u8>,
    /// The same as they are written. One for all threads: many would not fit under small limits.
    pub(super) write: Option<AlignedBuffer>,
}

impl Processing {
    /// Returns the bytes that the buffers take.
    pub(super) fn bytes(&self) -> u64 {
        let write = self.write.as_ref().map_or(0, |buffer| buffer.len());
        (self.buffer.capacity() + write) as u64
    }
}
