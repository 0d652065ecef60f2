//! The device: byte ranges on top of pages.
//!
//! ```text
//!   write:  whole pages -> store, without reading what was there
//!           parts of a page -> read, change and store under the page's lock
//!   read:   whole pages -> decompressed where the caller wants them
//!           parts of a page -> decompressed beside, and copied
//! ```
//!
//! - D1: a page changes as a whole: no request sees, or leaves, half of another one's write to the
//!   same page. Requests of several pages may interleave page by page, as on any disk.
//! - D2: bytes never written, discarded or zeroed read as zeros and hold no memory.
//! - D3: a request is checked against the size before it touches anything.
//! - D4: an acknowledged request was complete before the device closed (access/A1).

mod access;
mod options;
mod requests;

use std::sync::Arc;

use zfold_store::Store;

use access::Access;
pub use options::{DiskOptions, Extent, ExtentKind, Holes, SectorSize};

use crate::error::{IoError, OpenError};
use crate::stats::{Counters, DiskStats};

/// A block device. All methods take `&self`, from any number of threads.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use zfold_disk::{Disk, DiskOptions, SectorSize};
/// use zfold_store::{CodecKind, Store, StoreOptions};
///
/// let size = 64 << 20;
/// let store = Store::open(&StoreOptions::new(size / 4096, CodecKind::Lz4.into()))?;
/// let options = DiskOptions::new(size).with_sector(SectorSize::B512);
/// let disk = Disk::new(Arc::new(store), &options)?;
/// disk.write(1000, b"any offset, any length")?;
/// let mut back = [0; 10];
/// disk.read(1004, &mut back)?;
/// assert_eq!(&back, b"offset, an");
/// disk.discard(0, size)?;
/// assert_eq!(disk.extents(0, size, 8)?[0].len, size);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Disk {
    store: Arc<Store>,
    page_len: u64,
    sector: SectorSize,
    read_only: bool,
    size: u64,
    access: Access,
    counters: Counters,
}

impl Disk {
    /// Returns a device over `store`, which it should have for itself.
    ///
    /// # Errors
    /// [`OpenError::Size`], or [`OpenError::TooLarge`] if the store has too few slots.
    pub fn new(store: Arc<Store>, options: &DiskOptions) -> Result<Self, OpenError> {
        let (size, sector) = (options.size, options.sector.bytes());
        let page_len = store.page_len() as u64;
        let max = store.slots().saturating_mul(page_len);
        if size == 0 || !size.is_multiple_of(sector.into()) {
            return Err(OpenError::Size { size, sector });
        }
        if size > max {
            return Err(OpenError::TooLarge { size, max });
        }
        Ok(Self {
            page_len,
            store,
            sector: options.sector,
            read_only: options.read_only,
            size,
            access: Access::default(),
            counters: Counters::default(),
        })
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the sector size.
    #[must_use]
    pub fn sector(&self) -> SectorSize {
        self.sector
    }

    /// Returns the length of a page in bytes: aligned requests of whole pages are the fastest.
    #[must_use]
    pub fn page_len(&self) -> usize {
        self.page_len as usize
    }

    /// Returns whether writes are refused.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Ends all changes: from now on writes, discards and the like fail with [`IoError::Closed`],
    /// also those under way, which may have changed something. Acknowledged writes are in a
    /// snapshot of the store that begins after this returns. Does not wait.
    pub fn close(&self) {
        self.access.close();
    }

    /// Returns what was served.
    #[must_use]
    pub fn stats(&self) -> DiskStats {
        self.counters.read()
    }

    /// Checks a range against the size.
    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), IoError> {
        let size = self.size();
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(IoError::OutOfRange { offset, len, size }),
        }
    }
}

#[cfg(test)]
mod tests;
