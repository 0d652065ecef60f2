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
    /// `lz4hc`: the same blocks from a slower and more thorough search.
    Lz4Hc,
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
    pub const ALL: [Self; 5] = [Self::Lz4, Self::Lz4Hc, Self::Page, Self::Zstd, Self::Lzo];

    /// Returns the name by which the codec is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Lz4Hc => "lz4hc",
            Self::Page => "page",
            Self::Zstd => "zstd",
            Self::Lzo => "lzo",
        }
    }

    /// Returns the levels the codec accepts, or `None` if it has no levels.
    pub fn levels(self) -> Option<RangeInclusive<i32>> {
        match self {
            Self::Lz4 => Some(1..=65537),
            Self::Lz4Hc => Some(3..=12),
            Self::Page => Some(page::QUICK..=page::DEEP),
            Self::Zstd => Some(-7..=22),
            Self::Lzo => None,
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
        match self {
            Self::Lz4 | Self::Lz4Hc | Self::Zstd => true,
            Self::Page | Self::Lzo => false,
        }
    }

    /// Returns the level used when none is given, or `None` if the codec has no levels.
    pub(crate) fn default_level(self) -> Option<i32> {
        match self {
            Self::Lz4 => Some(1),
            Self::Lz4Hc => Some(9),
            Self::Page => Some(page::QUICK),
            Self::Zstd => Some(-1),
            Self::Lzo => None,
        }
    }
}
