//! In what form pages are kept, as callers see it.

/// In what form a page was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stored {
    /// One repeated word, in the slot.
    SameFilled,
    /// Compressed to `len` bytes.
    Compressed {
        /// Compressed length in bytes.
        len: usize,
    },
    /// As it is.
    Raw,
}

/// The contents of a key, as [`Store::peek`](crate::Store::peek) sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content {
    /// No page.
    Absent,
    /// A page of this word repeated.
    SameFilled(u64),
    /// Any other page.
    Data,
}
