//! Why a codec cannot be selected or set up, and the limits that it has.

use thiserror::Error;

use super::kind::CodecKind;

/// The longest page a codec context can be made for: 1 GiB.
pub const MAX_PAGE_LEN: usize = 1 << 30;

/// The longest dictionary: 1 MiB. LZ4 refers to the last 64 KiB only; Zstandard reaches all of a
/// dictionary, but each context holds a copy and tables for it.
pub const MAX_DICTIONARY_LEN: usize = 1 << 20;

/// A codec cannot be selected or set up as requested.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodecError {
    /// No codec has this name.
    #[error("unknown codec '{0}' (choices: {all})", all = names(CodecKind::is_built))]
    UnknownCodec(String),
    /// The codec does not accept this level, or it is neither a number nor one of its names.
    #[error("bad level '{level}' for codec '{}' ({})", .kind.name(), levels(*.kind))]
    Level {
        /// The codec.
        kind: CodecKind,
        /// The level as it was given.
        level: String,
    },
    /// No context can be made for pages of this length.
    #[error("bad page length {0} (range: 1 to {MAX_PAGE_LEN})")]
    PageLen(usize),
    /// No dictionary has this many bytes.
    #[error("bad dictionary length {0} (range: 1 to {MAX_DICTIONARY_LEN})")]
    DictionaryLen(usize),
    /// The codec takes no dictionary.
    #[error(
        "codec '{}' takes no dictionary (choices: {})",
        .0.name(),
        names(CodecKind::takes_dictionary)
    )]
    NoDictionaries(CodecKind),
    /// The crate was built without the feature of this codec.
    #[error(
        "{codec}: this zfold was built without it; build with --features {codec}",
        codec = .0.name()
    )]
    NotBuilt(CodecKind),
    /// No dictionary could be trained; contains the library's message.
    #[error("cannot train a dictionary ({0}); give more or other samples")]
    Training(&'static str),
}

/// Returns the names of some codecs.
fn names(which: fn(CodecKind) -> bool) -> String {
    let able = CodecKind::ALL.into_iter().filter(|kind| which(*kind));
    able.map(CodecKind::name).collect::<Vec<_>>().join(", ")
}

/// Returns the levels of a codec.
fn levels(kind: CodecKind) -> String {
    match kind.level_names() {
        [] => format!("range: {} to {}", kind.levels().start(), kind.levels().end()),
        names => format!("choices: {}", names.join(", ")),
    }
}
