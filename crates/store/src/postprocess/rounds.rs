//! What a round of work leaves: for the next one, and for who asked for it.

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
}
