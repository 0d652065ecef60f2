//! The holders of the pages: the kernel's zram, and stores with each allocator and codec.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use zfold_pool::{Allocator, PoolOptions};
use zfold_store::{CodecSpec, Recompress, Selection, Store, StoreOptions};

use super::pages::NAME;
use crate::experiment::Error;
use crate::experiment::content::PAGE_BYTES;
use crate::experiment::harness::turns::Fault;
use crate::experiment::system::zram::Zram;

/// The memory of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// All memory that it takes for its pages.
    pub(super) bytes: u64,
    /// The compressed pages alone.
    pub(super) payload_bytes: u64,
}

/// A holder of pages by key.
pub(super) trait Holder {
    /// Stores a page in the place of the one before.
    fn write(&self, key: u64, page: &[u8]) -> Result<(), Fault>;

    /// Reads the page of a key; zeros if it has none.
    fn read(&self, key: u64, page: &mut [u8]) -> Result<(), Fault>;

    /// Frees the page of a key.
    fn free(&self, key: u64) -> Result<(), Fault>;

    /// Closes holes where that happens by itself, with the pages in use.
    fn close_holes(&self);

    /// Does the background work on pages that are not used for long.
    fn rest(&self) -> Result<(), Fault>;

    /// Compacts, on request.
    fn compact(&self) -> Result<(), Fault>;

    /// Returns what is held now.
    fn held(&self) -> Result<Held, Fault>;
}

/// The kind of a holder and its codec.
#[derive(Clone, Copy, Debug)]
pub(super) enum Variant {
    /// The kernel's zram.
    Zram { codec: &'static str },
    /// A store.
    Store {
        allocator: Allocator,
        codec: &'static str,
        /// By which codec pages that lie still are compressed again.
        later: Option<&'static str>,
    },
}

impl Variant {
    /// zram by each codec, and stores of each of two allocators by codecs of which the last is
    /// that of zram at the kernel's level. The first is the base.
    pub(super) const ALL: [Self; 10] = [
        Self::Zram { codec: "lz4" },
        Self::Zram { codec: "zstd" },
        Self::store(Allocator::Zsmalloc, "lz4"),
        Self::store(Allocator::Zsmalloc, "page"),
        Self::deep(Allocator::Zsmalloc),
        Self::store(Allocator::Zsmalloc, "zstd:3"),
        Self::store(Allocator::Fit, "lz4"),
        Self::store(Allocator::Fit, "page"),
        Self::deep(Allocator::Fit),
        Self::store(Allocator::Fit, "zstd:3"),
    ];

    const fn store(allocator: Allocator, codec: &'static str) -> Self {
        Self::Store { allocator, codec, later: None }
    }

    const fn deep(allocator: Allocator) -> Self {
        Self::Store { allocator, codec: "page", later: Some("page:deep") }
    }

    /// Makes a holder for pages by keys below `keys`.
    ///
    /// # Errors
    /// [`Fault::Missing`] without zram, its codec or the right to use it.
    pub(super) fn open(self, keys: usize) -> Result<Box<dyn Holder>, Fault> {
        match self {
            Self::Zram { codec } => Ok(Box::new(Kernel::open(keys, codec)?)),
            Self::Store { allocator, codec, later } => {
                let spec = |name: &str| name.parse::<CodecSpec>().expect("it is a codec");
                let later = later.map(|name| spec(name).into()).into_iter().collect();
                let options = StoreOptions::new(keys as u64, spec(codec))
                    .with_pool(PoolOptions::new(allocator))
                    .with_recompression(later);
                Ok(Box::new(Store::open(&options).map_err(Error::from)?))
            }
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zram { codec } => write!(f, "zram {codec}"),
            Self::Store { allocator, codec, later } => {
                write!(f, "{} {}", allocator.name(), later.unwrap_or(codec))
            }
        }
    }
}

impl Holder for Store {
    fn write(&self, key: u64, page: &[u8]) -> Result<(), Fault> {
        Ok(self.store(key, page).map(drop).map_err(Error::from)?)
    }

    fn read(&self, key: u64, page: &mut [u8]) -> Result<(), Fault> {
        if !self.load(key, page).map_err(Error::from)? {
            page.fill(0);
        }
        Ok(())
    }

    fn free(&self, key: u64) -> Result<(), Fault> {
        self.invalidate(key);
        Ok(())
    }

    fn close_holes(&self) {
        self.compact_if_due();
    }

    fn rest(&self) -> Result<(), Fault> {
        // As many codecs as there are to compress with again.
        match self.recompress(&Recompress::new(Selection::All, 1)) {
            Ok(_) | Err(zfold_store::ProcessError::Priority { max: 0, .. }) => {}
            Err(error) => return Err(Error::Other(format!("{NAME}: {error}")).into()),
        }
        self.compact_if_due();
        Ok(())
    }

    fn compact(&self) -> Result<(), Fault> {
        Store::compact(self);
        Ok(())
    }

    fn held(&self) -> Result<Held, Fault> {
        let stats = self.stats();
        Ok(Held { bytes: stats.held_bytes(), payload_bytes: stats.pool.payload_bytes })
    }
}

/// A zram device, past the page cache.
#[derive(Debug)]
struct Kernel {
    // Before the device: closed before that is removed.
    file: File,
    device: Zram,
    table_bytes: u64,
}

impl Kernel {
    fn open(keys: usize, codec: &str) -> Result<Self, Fault> {
        let device = Zram::add((keys * PAGE_BYTES) as u64, codec)?;
        let mut options = OpenOptions::new();
        let direct = OFlags::DIRECT.bits().cast_signed();
        let file = options.read(true).write(true).custom_flags(direct).open(device.path())?;
        let table_bytes = keys as u64 * device.entry_bytes();
        Ok(Self { file, device, table_bytes })
    }
}

impl Holder for Kernel {
    fn write(&self, key: u64, page: &[u8]) -> Result<(), Fault> {
        Ok(self.file.write_all_at(page, key * PAGE_BYTES as u64)?)
    }

    fn read(&self, key: u64, page: &mut [u8]) -> Result<(), Fault> {
        Ok(self.file.read_exact_at(page, key * PAGE_BYTES as u64)?)
    }

    fn free(&self, key: u64) -> Result<(), Fault> {
        let discard = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (from, len) = (key * PAGE_BYTES as u64, PAGE_BYTES as u64);
        Ok(fallocate(&self.file, discard, from, len).map_err(std::io::Error::from)?)
    }

    fn close_holes(&self) {
        // The kernel compacts a pool when memory is short, or on request.
    }

    fn rest(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn compact(&self) -> Result<(), Fault> {
        Ok(self.device.compact()?)
    }

    fn held(&self) -> Result<Held, Fault> {
        let bytes = self.device.used_bytes()? + self.table_bytes;
        Ok(Held { bytes, payload_bytes: self.device.payload_bytes()? })
    }
}
