//! The options of a device, and its description of its bytes.

use zfold_pool::builders;

/// Size of a sector: what clients align to. The device itself takes any offset and length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SectorSize {
    /// 512 bytes.
    B512,
    /// 4096 bytes.
    #[default]
    B4096,
}

impl SectorSize {
    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

/// The options of a device: public fields with defaults. Start from [`DiskOptions::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskOptions {
    /// Size in bytes, a multiple of the sector size.
    pub size: u64,
    /// Sector size reported to clients.
    pub sector: SectorSize,
    /// Whether writes are refused.
    pub read_only: bool,
}

impl DiskOptions {
    /// Returns the defaults for a size in bytes: sectors of 4096 bytes, not read-only.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self { size, sector: SectorSize::default(), read_only: false }
    }

    builders! {
        with_sector => sector: SectorSize,
        with_read_only => read_only: bool,
    }
}

/// Whether write-zeroes may leave a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holes {
    /// Pages are dropped, which frees their memory.
    Allow,
    /// Pages stay allocated as pages of zeros, 16 bytes each.
    Forbid,
}

/// The kind of a run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtentKind {
    /// Nothing; reads as zeros.
    Hole,
    /// Allocated zeros.
    Zero,
    /// Data.
    Data,
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub len: u64,
    /// Its kind.
    pub kind: ExtentKind,
}
