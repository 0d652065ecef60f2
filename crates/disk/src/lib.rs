//! A block device over a compressed page store, and the doors through which clients reach it.
//!
//! [`Disk`] is the device: reads and writes of any offset and length, discard, write-zeroes, flush
//! and block status over a [`zfold_store::Store`]. It knows no protocol. Each door speaks one
//! protocol and knows only the device.

#![forbid(unsafe_code)]

mod disk;
mod error;
mod frontends;
mod stats;

pub use disk::access::{Claim, User};
pub use disk::{Disk, DiskOptions, Extent, ExtentKind, Holes, SectorSize};
pub use error::{IoError, OpenError};
#[cfg(feature = "ublk")]
pub use frontends::ublk;
pub use frontends::{fuse, nbd, vhost_user};
pub use stats::DiskStats;
