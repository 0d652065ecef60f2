//! Page codecs: one interface over five compression libraries.
//!
//! A [`CodecSpec`] names a codec and its level; [`CodecSpec::context`] makes a [`Codec`], the
//! working memory with which one thread compresses and decompresses pages. What a codec writes is
//! a bare block: no magic number, no length, no checksum. Whoever keeps the block keeps its length
//! and the length of the page.
//!
//! Pages that have much in common can be compressed with a [`Dictionary`] of it, and then come back
//! only with the same one.
//!
//! No format carries a checksum, so damaged bytes may decode to a full page with wrong contents.
//! Damage is never worse than that: it cannot panic or reach memory outside the two slices.

#[cfg(feature = "deflate")]
mod deflate;
mod dictionary;
mod lz4;
mod lz4_dictionary;
#[cfg(feature = "lzo")]
mod lzo;
#[cfg(all(test, feature = "zstd", feature = "deflate", feature = "lzo"))]
mod tests;
#[cfg(feature = "zstd")]
mod zstd;

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use lz4_dictionary::Lz4Dictionary;

pub use dictionary::{Dictionary, MAX_DICTIONARY_LEN};

/// The longest page a codec context can be made for: 1 GiB.
pub const MAX_PAGE_LEN: usize = 1 << 30;

/// A compression algorithm together with the library that implements it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CodecKind {
    /// `lz4`: LZ4 blocks, the fastest codec. The level is the acceleration: higher is faster and
    /// compresses less.
    Lz4,
    /// `lz4hc`: the same blocks from a slower and more thorough search.
    Lz4Hc,
    /// `zstd`: Zstandard frames without magic number.
    Zstd,
    /// `deflate`: raw DEFLATE streams.
    Deflate,
    /// `lzo`: LZO1X streams. Compression takes about 200 µs per 4 KiB page, fifty times as long as
    /// `lz4`: this codec is for comparison.
    Lzo,
}

impl CodecKind {
    /// Every codec, in the order in which they are listed to people.
    pub const ALL: [Self; 5] = [Self::Lz4, Self::Lz4Hc, Self::Zstd, Self::Deflate, Self::Lzo];

    /// Returns the name by which the codec is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Lz4Hc => "lz4hc",
            Self::Zstd => "zstd",
            Self::Deflate => "deflate",
            Self::Lzo => "lzo",
        }
    }

    /// Returns the levels the codec accepts, or `None` if it has no levels.
    pub fn levels(self) -> Option<RangeInclusive<i32>> {
        match self {
            Self::Lz4 => Some(1..=65537),
            Self::Lz4Hc => Some(3..=12),
            Self::Zstd => Some(-7..=22),
            Self::Deflate => Some(1..=12),
            Self::Lzo => None,
        }
    }

    /// Returns whether the codec compresses with a [`Dictionary`].
    pub fn takes_dictionary(self) -> bool {
        match self {
            Self::Lz4 | Self::Lz4Hc | Self::Zstd => true,
            Self::Deflate | Self::Lzo => false,
        }
    }

    /// Returns the level used when none is given, or `None` if the codec has no levels.
    pub fn default_level(self) -> Option<i32> {
        match self {
            Self::Lz4 | Self::Deflate => Some(1),
            Self::Lz4Hc => Some(9),
            Self::Zstd => Some(-1),
            Self::Lzo => None,
        }
    }
}

/// A codec and its level, written `zstd` or `zstd:3`.
///
/// Parsing and displaying round-trip; the default level is not displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodecSpec {
    kind: CodecKind,
    /// Within `kind.levels()`, or `None` if there are none.
    level: Option<i32>,
}

impl CodecSpec {
    /// Returns `kind` at `level`, or at its default level.
    ///
    /// # Errors
    ///
    /// [`CodecError::Level`] if `kind` does not accept `level`.
    pub fn new(kind: CodecKind, level: Option<i32>) -> Result<Self, CodecError> {
        match level {
            None => Ok(Self::from(kind)),
            Some(n) if kind.levels().is_some_and(|levels| levels.contains(&n)) => {
                Ok(Self { kind, level })
            }
            Some(n) => Err(CodecError::Level { kind, level: n.to_string() }),
        }
    }

    /// Returns the codec.
    pub fn kind(&self) -> CodecKind {
        self.kind
    }

    /// Returns the level, given or default, or `None` if the codec has no levels.
    pub fn level(&self) -> Option<i32> {
        self.level
    }

    /// Makes a context for pages of `page_len` bytes, without a dictionary.
    ///
    /// Costs the allocation of [`Codec::working_bytes`], all of which happens here rather than in
    /// the first call of the context.
    ///
    /// # Errors
    ///
    /// [`CodecError::PageLen`] if `page_len` is 0 or above [`MAX_PAGE_LEN`].
    ///
    /// # Panics
    ///
    /// If a library cannot allocate its context.
    pub fn context(&self, page_len: usize) -> Result<Box<dyn Codec>, CodecError> {
        self.context_with(page_len, None)
    }

    /// Makes a context for pages of `page_len` bytes that may refer to `dictionary`.
    ///
    /// Only contexts with an equal dictionary read what it writes. With another one, or none,
    /// decompression gives an error or a page of wrong bytes; no codec notices for sure.
    ///
    /// The contexts share the bytes of a dictionary, but for those of zstd, each of which has a
    /// copy. [`Codec::working_bytes`] counts what each has of its own.
    ///
    /// # Errors
    ///
    /// - [`CodecError::PageLen`] if `page_len` is 0 or above [`MAX_PAGE_LEN`].
    /// - [`CodecError::NoDictionaries`] if the codec [takes none](CodecKind::takes_dictionary).
    /// - [`CodecError::NotBuilt`] if the crate was built without the codec.
    ///
    /// # Panics
    ///
    /// If a library cannot allocate its context.
    pub fn context_with(
        &self,
        page_len: usize,
        dictionary: Option<&Dictionary>,
    ) -> Result<Box<dyn Codec>, CodecError> {
        if !(1..=MAX_PAGE_LEN).contains(&page_len) {
            return Err(CodecError::PageLen(page_len));
        }
        if dictionary.is_some() && !self.kind.takes_dictionary() {
            return Err(CodecError::NoDictionaries(self.kind));
        }
        let level = self.level.unwrap_or_default();
        Ok(match (self.kind, dictionary) {
            (CodecKind::Lz4, None) => Box::new(lz4::Lz4::fast(level)),
            (CodecKind::Lz4, Some(bytes)) => Box::new(Lz4Dictionary::fast(level, bytes)),
            (CodecKind::Lz4Hc, None) => Box::new(lz4::Lz4::high(level)),
            (CodecKind::Lz4Hc, Some(bytes)) => Box::new(Lz4Dictionary::high(level, bytes)),
            #[cfg(feature = "zstd")]
            (CodecKind::Zstd, _) => Box::new(zstd::Zstd::new(level, page_len, dictionary)),
            #[cfg(feature = "deflate")]
            (CodecKind::Deflate, _) => Box::new(deflate::Deflate::new(level)),
            #[cfg(feature = "lzo")]
            (CodecKind::Lzo, _) => Box::new(lzo::Lzo::new()),
            #[cfg(not(all(feature = "zstd", feature = "deflate", feature = "lzo")))]
            (kind, _) => return Err(CodecError::NotBuilt(kind)),
        })
    }
}

impl From<CodecKind> for CodecSpec {
    /// Returns `kind` at its default level.
    fn from(kind: CodecKind) -> Self {
        Self { kind, level: kind.default_level() }
    }
}

impl FromStr for CodecSpec {
    type Err = CodecError;

    fn from_str(text: &str) -> Result<Self, CodecError> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        let kind = CodecKind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| CodecError::UnknownCodec(name.to_owned()))?;
        let Some(level) = level else {
            return Ok(Self::from(kind));
        };
        match level.parse() {
            Ok(n) => Self::new(kind, Some(n)),
            Err(_) => Err(CodecError::Level { kind, level: level.to_owned() }),
        }
    }
}

impl fmt::Display for CodecSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match self.level {
            Some(level) if self.level != self.kind.default_level() => write!(f, ":{level}"),
            _ => Ok(()),
        }
    }
}

/// A codec context: the working memory of one thread.
///
/// What a context writes depends on the page and the dictionary alone, never on the pages before
/// it, and every context of the same codec and dictionary reads it, whatever its level. The page is
/// as long as the context was made for; any other length that is not 0 works as well, but may grow
/// the working memory.
pub trait Codec: Send + fmt::Debug {
    /// Compresses `page` into the front of `out` and returns the compressed length.
    ///
    /// Returns `None`, with the contents of `out` unspecified, if the result does not fit; some
    /// libraries need a few bytes more than the result itself. Give an `out` shorter than the page
    /// to have an incompressible page refused.
    fn compress(&mut self, page: &[u8], out: &mut [u8]) -> Option<usize>;

    /// Decompresses `bytes`, one compressed page and nothing else, so that it fills `page`.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if `bytes` is malformed or decodes to any other length than that of
    /// `page`. The contents of `page` are then unspecified.
    fn decompress(&mut self, bytes: &[u8], page: &mut [u8]) -> Result<(), DecodeError>;

    /// Returns the bytes of working memory this context holds between calls, by the account of the
    /// library itself.
    fn working_bytes(&self) -> usize;
}

/// Compressed bytes are malformed or do not decode to exactly one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeError;

impl DecodeError {
    /// Returns `Ok` if a decoder that reported `decoded` bytes filled `page`.
    fn unless_full(decoded: usize, page: &[u8]) -> Result<(), Self> {
        if decoded == page.len() { Ok(()) } else { Err(Self) }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("compressed bytes do not decode to one page")
    }
}

impl Error for DecodeError {}

/// A codec cannot be selected or set up as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecError {
    /// No codec has this name.
    UnknownCodec(String),
    /// The codec does not accept this level, or it is not a number.
    Level {
        /// The codec.
        kind: CodecKind,
        /// The level as it was given.
        level: String,
    },
    /// No context can be made for pages of this length.
    PageLen(usize),
    /// No dictionary has this many bytes.
    DictionaryLen(usize),
    /// The codec takes no dictionary.
    NoDictionaries(CodecKind),
    /// The crate was built without the feature of this codec.
    NotBuilt(CodecKind),
    /// No dictionary could be trained, and what the library says of it.
    Training(&'static str),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCodec(name) => {
                let choices = CodecKind::ALL.map(CodecKind::name).join(", ");
                write!(f, "unknown codec '{name}' (choices: {choices})")
            }
            Self::Level { kind, level } => {
                write!(f, "bad level '{level}' for codec '{}' ", kind.name())?;
                match kind.levels() {
                    Some(levels) => write!(f, "(range: {} to {})", levels.start(), levels.end()),
                    None => write!(f, "(it has no levels)"),
                }
            }
            Self::PageLen(len) => write!(f, "bad page length {len} (range: 1 to {MAX_PAGE_LEN})"),
            Self::DictionaryLen(len) => {
                write!(f, "bad dictionary length {len} (range: 1 to {MAX_DICTIONARY_LEN})")
            }
            Self::NoDictionaries(kind) => {
                let able = CodecKind::ALL.into_iter().filter(|kind| kind.takes_dictionary());
                let choices: Vec<_> = able.map(CodecKind::name).collect();
                let choices = choices.join(", ");
                write!(f, "codec '{}' takes no dictionary (choices: {choices})", kind.name())
            }
            Self::NotBuilt(kind) => {
                write!(f, "codec '{0}' is not in this build (feature {0})", kind.name())
            }
            Self::Training(reason) => {
                write!(f, "no dictionary can be trained ({reason}); give more or other samples")
            }
        }
    }
}

impl Error for CodecError {}
