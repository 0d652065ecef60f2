//! Objects on other machines that are written and read as streams, such as snapshots.

use std::fmt;
use std::io::{self, Read, Write};

/// An object on other machines. It need not be there yet.
pub trait Object: Send + Sync + fmt::Debug {
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
    /// Up to 8 MiB of memory.
    fn read(&self) -> io::Result<Box<dyn Read + '_>>;

    /// Begins to write it. Until it is complete, the object that was there before is there.
    ///
    /// # Errors
    /// As [`size`](Self::size). So may each write.
    ///
    /// # Cost
    /// Up to 48 MiB of memory.
    fn write(&self) -> io::Result<Box<dyn ObjectWrite + '_>>;
}

/// An object that is being written. Dropped, it is given up, and what was sent is removed.
pub trait ObjectWrite: Write {
    /// Sends the rest, and replaces the object as a whole.
    ///
    /// # Errors
    /// It could not be completed, and the object is as before.
    fn complete(self: Box<Self>) -> io::Result<()>;
}
