//! A block device whose contents lie compressed in memory, for programs that need a disk without a
//! disk, and the frontends through which others reach it.
//!
//! ```
//! use std::sync::Arc;
//! use zfold_disk::{Disk, DiskOptions};
//! use zfold_store::{CodecKind, Store, StoreOptions};
//!
//! let size = 1 << 30;
//! let store = Store::open(&StoreOptions::new(size / 4096, CodecKind::Lz4.into()))?;
//! let disk = Disk::new(Arc::new(store), &DiskOptions::new(size))?;
//! disk.write(1000, b"any offset, any length")?;
//! let mut back = [0; 6];
//! disk.read(1004, &mut back)?;
//! assert_eq!(&back, b"offset");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Disk`] is the device: reads and writes of any offset and length, discard, write-zeroes, flush
//! and block status over a [`zfold_store::Store`]. It knows no protocol. Each frontend speaks one
//! protocol and knows only the device.
//!
//! # Features
//! `nbd`, `nbd-tls`, `fuse` and `vhost-user` are frontends, all on by default.

#![deny(unsafe_code)]

mod disk;
mod error;
mod frontends;
mod stats;

pub use disk::{Disk, DiskOptions, Extent, ExtentKind, Holes, SectorSize};
pub use error::{IoError, OpenError};
#[cfg(feature = "fuse")]
pub use frontends::fuse;
#[cfg(feature = "nbd")]
pub use frontends::nbd;
#[cfg(feature = "vhost-user")]
pub use frontends::vhost_user;
pub use stats::{DiskStats, table};
