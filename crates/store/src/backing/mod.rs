//! Where pages go that leave memory: files and devices, addressed by byte.
//!
//! A [`Backing`] is a fixed number of bytes that are read and written in whole multiples of its
//! alignment. It has no notion of pages and keeps no checksums: the caller that writes remembers
//! where each page lies, and must notice wrong bytes when it reads. [`FileBacking`] is a file or a
//! block device. For tests (feature `testing`), `MemoryBacking` is a vector, and `FaultyBacking`
//! stands before another one and does what bad disks do.
//!
//! # Invariants
//!
//! - E1: a read or write is all of its range or an error.
//! - E2: a range beyond the end, or not aligned, is an error of the kind `InvalidInput` that
//!   touches nothing.
//! - E3: after a failed write, and after a discard, the range holds anything, and every other byte
//!   what it held.
//!
//! All methods take `&self` and may run at the same time; of a write and another access of the
//! same bytes at the same time, the result is any mixture.

mod buffer;
mod claim;
mod contract;
mod error;
pub(crate) mod extents;
#[cfg(any(test, feature = "testing"))]
#[path = "../../tests/testing/faulty.rs"]
mod faulty;
mod file;
#[cfg(any(test, feature = "testing"))]
#[path = "../../tests/testing/memory.rs"]
mod memory;

pub use buffer::AlignedBuffer;
pub use contract::{Backing, MAX_ALIGN, MIN_ALIGN};
pub use error::BackingError;
pub use extents::Extents;
#[cfg(any(test, feature = "testing"))]
pub use faulty::{Fault, Faults, FaultyBacking};
pub use file::{FileBacking, FileOptions};
#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryBacking;
