//! Page codecs: one interface over three compression libraries and the page format.
//!
//! A [`CodecSpec`] names a codec and its level; [`CodecSpec::context`] makes a [`Codec`], the
//! working memory with which one thread compresses and decompresses pages. A codec writes a bare
//! block: no magic number, no length, no checksum. The caller that keeps the block keeps its length
//! and that of the page.
//!
//! Pages that have much in common can be compressed with a [`Dictionary`] of it, and then come back
//! only with the same one.
//!
//! No format carries a checksum, so damaged bytes may decode to a full page with wrong contents.
//! Damage is never worse than that: it cannot panic or reach memory outside the two slices.

mod contract;
mod dictionary;
mod error;
mod kind;
mod lz4;
#[cfg(feature = "lzo")]
mod lzo;
mod page;
#[cfg(all(test, feature = "zstd", feature = "lzo"))]
mod tests;
#[cfg(feature = "zstd")]
mod zstd;

use std::fmt;
use std::str::FromStr;

use lz4::Lz4;

pub use contract::{Codec, DecodeError};
pub use dictionary::Dictionary;
pub use error::{CodecError, MAX_DICTIONARY_LEN, MAX_PAGE_LEN};
pub use kind::CodecKind;
pub use page::reference_decode;

/// A codec and its level, written `zstd`, `zstd:3` or `page:deep`.
///
/// Parsing and displaying round-trip; the default level is not displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodecSpec {
    kind: CodecKind,
    /// Within `kind.levels()`.
    level: i32,
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
            Some(level) if kind.levels().contains(&level) => Ok(Self { kind, level }),
            Some(level) => Err(CodecError::Level { kind, level: level.to_string() }),
        }
    }

    /// Returns the codec.
    pub fn kind(&self) -> CodecKind {
        self.kind
    }

    /// Returns the level, given or default.
    pub fn level(&self) -> i32 {
        self.level
    }

    /// Returns the level as it is written.
    fn level_text(&self) -> String {
        let mut named = self.kind.levels().zip(self.kind.level_names());
        let name = named.find(|&(number, _)| number == self.level);
        name.map_or_else(|| self.level.to_string(), |(_, &name)| name.to_owned())
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
    pub(crate) fn context_with(
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
        Ok(match self.kind {
            CodecKind::Lz4 => Box::new(Lz4::new(self.level, dictionary)),
            CodecKind::Page => Box::new(page::Page::new(self.level, page_len)),
            #[cfg(feature = "zstd")]
            CodecKind::Zstd => Box::new(zstd::Zstd::new(self.level, page_len, dictionary)),
            #[cfg(feature = "lzo")]
            CodecKind::Lzo => Box::new(lzo::Lzo::new()),
            #[cfg(not(all(feature = "zstd", feature = "lzo")))]
            kind => return Err(CodecError::NotBuilt(kind)),
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
        if !kind.is_built() {
            return Err(CodecError::NotBuilt(kind));
        }
        let Some(level) = level else { return Ok(Self::from(kind)) };
        let names = kind.level_names();
        let number = match names.iter().position(|&name| name == level) {
            Some(at) => kind.levels().nth(at),
            None if names.is_empty() => level.parse().ok(),
            None => None,
        };
        match number {
            Some(number) => Self::new(kind, Some(number)),
            None => Err(CodecError::Level { kind, level: level.to_owned() }),
        }
    }
}

impl fmt::Display for CodecSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if self.level == self.kind.default_level() {
            return Ok(());
        }
        write!(f, ":{}", self.level_text())
    }
}
