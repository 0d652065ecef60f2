//! Objects on other machines that are written and read as streams, such as snapshots.
//!
//! Written bytes are sent in parts, and appear as a whole when the object is complete. A write that
//! ends before that, for whatever reason, leaves its parts there; the next write of the same object
//! sends only those that differ.

use std::fmt;
use std::io::{self, Read, Write};

/// An object on other machines. It need not be there yet.
pub trait Object: Send + Sync + fmt::Debug {
    /// Returns what messages call it, as `s3://bucket/key`. Without secrets.
    fn name(&self) -> &str;

    /// Returns its length in bytes, or none if it is not there.
    ///
    /// # Errors
    /// It cannot be reached within a minute, or the server refuses.
    fn size(&self) -> io::Result<Option<u64>>;

    /// Tries whether it could be written, and leaves no trace of that.
    ///
    /// # Errors
    /// As [`size`](Self::size).
    fn try_write(&self) -> io::Result<()>;

    /// Begins to read it.
    ///
    /// # Errors
    /// It is not there, cannot be reached within a minute, or the server refuses. So may each read;
    /// one also fails if the object is replaced meanwhile.
    ///
    /// # Cost
    /// Up to 16 MiB of memory: the next range is fetched while the caller works.
    fn read(&self) -> io::Result<Box<dyn Read + '_>>;

    /// Begins to write it, or goes on with a write that was interrupted. Until it is complete, the
    /// object that was there before is there.
    ///
    /// # Errors
    /// As [`size`](Self::size). So may each write; parts that were sent are kept for the next
    /// attempt.
    ///
    /// # Cost
    /// Up to 40 MiB of memory for the first 20 GiB, more beyond.
    fn write(&self) -> io::Result<Box<dyn ObjectWrite + '_>>;
}

/// An object that is being written. Dropped, it is left for the next attempt.
pub trait ObjectWrite: Write {
    /// Sends what is left, and replaces the object as a whole; returns what that took.
    ///
    /// # Errors
    /// It could not be completed, and the object is as before. Parts that were sent are kept.
    fn complete(self: Box<Self>) -> io::Result<Written>;

    /// Gives it up, and removes what was sent.
    ///
    /// # Errors
    /// It could not be removed; the next attempt replaces it.
    fn abort(self: Box<Self>) -> io::Result<()>;
}

/// The cost of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// Length of the object in bytes.
    pub bytes: u64,
    /// Of these, the bytes that were sent; the others were there from an earlier attempt.
    pub sent_bytes: u64,
}
