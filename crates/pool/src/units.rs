//! Units: sizes and counts of pages that cannot be mixed up with plain numbers.

use std::fmt;

/// Size of a pool page in bytes: a power of two from 4 KiB to 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageSize(u32);

impl PageSize {
    /// 4 KiB, the page of most machines.
    pub const KIB4: Self = Self(4 << 10);
    /// 16 KiB.
    pub const KIB16: Self = Self(16 << 10);
    /// 64 KiB, the largest page.
    pub const KIB64: Self = Self(64 << 10);

    /// Returns the page size of `bytes`, or `None` if that is not a power of two from 4 KiB to
    /// 64 KiB.
    #[must_use]
    pub const fn new(bytes: usize) -> Option<Self> {
        if bytes.is_power_of_two() && bytes >= 4 << 10 && bytes <= 64 << 10 {
            Some(Self(bytes as u32))
        } else {
            None
        }
    }

    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }
}

impl Default for PageSize {
    fn default() -> Self {
        Self::KIB4
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB", self.0 >> 10)
    }
}

/// A number of pool pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageCount(pub u64);

impl PageCount {
    /// No page.
    pub const ZERO: Self = Self(0);
    /// As many as there are.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the bytes that this many pages of `size` span.
    #[must_use]
    pub const fn bytes(self, size: PageSize) -> u64 {
        self.0 * size.bytes() as u64
    }
}

impl fmt::Display for PageCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages", self.0)
    }
}

impl std::ops::Add for PageCount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl std::ops::AddAssign for PageCount {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// Index of a page frame in a pool's arena; `FrameIndex(i)` starts at byte `i * page_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FrameIndex(pub(crate) u32);

impl FrameIndex {
    /// Byte offset of the frame in the arena.
    pub(crate) const fn offset(self, size: PageSize) -> usize {
        self.0 as usize * size.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_size_takes_powers_of_two_from_4_to_64_kib() {
        assert_eq!(PageSize::new(4096), Some(PageSize::KIB4));
        assert_eq!(PageSize::new(65536).map(PageSize::bytes), Some(65536));
        for wrong in [0, 1, 2048, 4095, 12288, 131072] {
            assert_eq!(PageSize::new(wrong), None);
        }
    }
}
