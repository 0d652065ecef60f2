//! Why a codec cannot be selected or set up, and the limits that it has.

use std::error::Error;
use std::fmt;

use super::kind::CodecKind;

/// The longest page a codec context can be made for: 1 GiB.
pub const MAX_PAGE_LEN: usize = 1 << 30;

/// The longest dictionary: 1 MiB. LZ4 refers to the last 64 KiB only; Zstandard reaches all of a
/// dictionary, but each context holds a copy and tables for it.
pub const MAX_DICTIONARY_LEN: usize = 1 << 20;

/// A codec cannot be selected or set up as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecError {
    /// No codec has this name.
    UnknownCodec(String),
    /// The codec does not accept this level, or it is neither a number nor one of its names.
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
                    Some(_) if !kind.level_names().is_empty() => {
                        write!(f, "(choices: {})", kind.level_names().join(", "))
                    }
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
                write!(f, "cannot train a dictionary ({reason}); give more or other samples")
            }
        }
    }
}

impl Error for CodecError {}
