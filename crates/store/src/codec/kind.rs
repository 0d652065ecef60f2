//! The codecs by name, and the levels that each accepts.

use std::ops::RangeInclusive;

use super::page;

/// A compression algorithm together with the library that implements it, if it is not zfold's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CodecKind {
    /// `lz4`: LZ4 blocks, the fastest codec. The level is the acceleration: higher is faster and
    /// compresses less.
    Lz4,
    /// `page`: zfold's own format, made for pages of memory up to 64 KiB; longer ones are refused
    /// as incompressible. A quarter fewer bytes than `lz4` at nearly its speed; `page:deep`
    /// searches thoroughly, for pages that stay compressed for long.
    Page,
    /// `zstd`: Zstandard frames without magic number.
    Zstd,
    /// `lzo`: LZO1X streams. Compression takes about 200 µs per 4 KiB page, fifty times as long as
    /// `lz4`: this codec is for comparison.
    Lzo,
}

impl CodecKind {
    /// Every codec, in the order in which they are listed to people.
    pub const ALL: [Self; 4] = [Self::Lz4, Self::Page, Self::Zstd, Self::Lzo];

    /// Returns the name by which the codec is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Page => "page",
            Self::Zstd => "zstd",
            Self::Lzo => "lzo",
        }
    }

    /// Returns whether this crate was built with the codec.
    pub(crate) fn is_built(self) -> bool {
        match self {
            Self::Lz4 | Self::Page => true,
            Self::Zstd => cfg!(feature = "zstd"),
            Self::Lzo => cfg!(feature = "lzo"),
        }
    }

    /// Returns the levels the codec accepts.
    pub fn levels(self) -> RangeInclusive<i32> {
        match self {
            Self::Lz4 => 1..=65537,
            Self::Page => page::QUICK..=page::DEEP,
            Self::Zstd => -7..=22,
            Self::Lzo => 0..=0,
        }
    }

    /// Returns the names of the levels, the lowest first, if they have names instead of numbers.
    pub(crate) fn level_names(self) -> &'static [&'static str] {
        match self {
            Self::Page => &["quick", "deep"],
            _ => &[],
        }
    }

    /// Returns whether the codec compresses with a [`Dictionary`](crate::Dictionary).
    pub fn takes_dictionary(self) -> bool {
        matches!(self, Self::Lz4 | Self::Zstd)
    }

    /// Returns the level used when none is given.
    pub(crate) fn default_level(self) -> i32 {
        match self {
            Self::Lz4 => 1,
            Self::Page => page::QUICK,
            Self::Zstd => -1,
            Self::Lzo => 0,
        }
    }
}
