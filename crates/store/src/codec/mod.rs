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

use lz4::{Lz4, Search};

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

    /// Returns the level as it is written, or `None` if the codec has no levels.
    pub fn level_text(&self) -> Option<String> {
        let level = self.level?;
        let names = self.kind.level_names().iter();
        let mut named = self.kind.levels().into_iter().flatten().zip(names);
        let name = named.find(|&(number, _)| number == level).map(|(_, &name)| name.to_owned());
        Some(name.unwrap_or_else(|| level.to_string()))
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
            (CodecKind::Lz4, _) => Box::new(Lz4::new(Search::Fast(level), dictionary)),
            (CodecKind::Lz4Hc, _) => Box::new(Lz4::new(Search::High(level), dictionary)),
            (CodecKind::Page, _) => Box::new(page::Page::new(level, page_len)),
            #[cfg(feature = "zstd")]
            (CodecKind::Zstd, _) => Box::new(zstd::Zstd::new(level, page_len, dictionary)),
            #[cfg(feature = "lzo")]
            (CodecKind::Lzo, _) => Box::new(lzo::Lzo::new()),
            #[cfg(not(all(feature = "zstd", feature = "lzo")))]
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
        let Some(level) = level else { return Ok(Self::from(kind)) };
        let names = kind.level_names();
        let number = match names.iter().position(|&name| name == level) {
            Some(at) => kind.levels().and_then(|mut levels| levels.nth(at)),
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
        match self.level_text() {
            Some(level) if self.level != self.kind.default_level() => write!(f, ":{level}"),
            _ => Ok(()),
        }
    }
}
