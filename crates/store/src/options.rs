//! The options of a store, and those that can be changed while it works.

use std::sync::Arc;

use zfold_pool::{PoolOptions, builders};

use crate::backing::Backing;
use crate::codec::{CodecKind, CodecSpec, Dictionary};
use crate::entry::State;
use crate::error::OpenError;

/// What to do with a page that does not compress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Incompressible {
    /// Keep it as it is (zram's huge page, zswap since 6.18), as also a page that would cost as
    /// much compressed.
    #[default]
    Keep,
    /// Refuse it (zswap before 6.18).
    Reject,
}

/// A codec with its level, and the dictionary it works with.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CodecChoice {
    /// The codec.
    pub spec: CodecSpec,
    /// The dictionary of compressor and decompressor, if any.
    pub dictionary: Option<Dictionary>,
}

impl CodecChoice {
    builders! {
        with_dictionary => dictionary: impl Into<Option<Dictionary>>,
    }
}

impl From<CodecSpec> for CodecChoice {
    fn from(spec: CodecSpec) -> Self {
        Self { spec, dictionary: None }
    }
}

impl From<CodecKind> for CodecChoice {
    fn from(kind: CodecKind) -> Self {
        CodecSpec::from(kind).into()
    }
}

/// Where pages that leave memory go, as they lie: compressed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackingOptions {
    /// The file or device.
    pub backing: Arc<dyn Backing>,
}

impl BackingOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new(backing: Arc<dyn Backing>) -> Self {
        Self { backing }
    }
}

/// The options of a store: public fields with defaults. Start from [`StoreOptions::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreOptions {
    /// Number of keys: 0 up to `slots - 1`. Costs up to 25 bytes of address space each, and memory
    /// only around keys in use.
    pub slots: u64,
    /// The codec.
    pub codec: CodecSpec,
    /// The codec's dictionary, if it has one.
    pub dictionary: Option<Dictionary>,
    /// Codecs to recompress with, at most three: priorities 1, 2 and 3 of zram.
    pub recompression: Vec<CodecChoice>,
    /// What to do with pages that do not compress.
    pub incompressible: Incompressible,
    /// Whether pages of one repeated word are recognised and kept in their slot.
    pub same_filled: bool,
    /// Whether each object begins with its 8-byte key, as zswap does in pools that evict, so
    /// that an evict hook finds the key of an object.
    pub key_header: bool,
    /// Whether equal pages share one object.
    pub deduplicate: bool,
    /// Most bytes that the store may hold: pages, idle pages and metadata. `None`: no limit. The
    /// store makes room, or refuses pages, a little before: a 32nd of the limit, at most 32 pages.
    pub limit_bytes: Option<u64>,
    /// A full store takes pages again when it has shrunk to this share of what it may hold, in
    /// percent (zswap's `accept_threshold_percent`).
    pub accept_percent: u8,
    /// Where pages that leave memory go, if they can leave.
    pub backing: Option<BackingOptions>,
    /// The options of the pool of [`Store::open`](crate::Store::open).
    pub pool: PoolOptions,
}

impl StoreOptions {
    /// Returns the defaults for `slots` keys and `codec`: incompressible pages kept, same-filled
    /// pages recognised, no dictionary, no recompression, no key header, no deduplication, no
    /// limit, accept at 90 percent, no backing, a pool of fit with 4 KiB pages.
    #[must_use]
    pub fn new(slots: u64, codec: CodecSpec) -> Self {
        Self {
            slots,
            codec,
            dictionary: None,
            recompression: Vec::new(),
            incompressible: Incompressible::default(),
            same_filled: true,
            key_header: false,
            deduplicate: false,
            limit_bytes: None,
            accept_percent: 90,
            backing: None,
            pool: PoolOptions::default(),
        }
    }

    builders! {
        with_dictionary => dictionary: impl Into<Option<Dictionary>>,
        with_recompression => recompression: Vec<CodecChoice>,
        with_incompressible => incompressible: Incompressible,
        with_same_filled => same_filled: bool,
        with_key_header => key_header: bool,
        with_deduplicate => deduplicate: bool,
        with_limit_bytes => limit_bytes: impl Into<Option<u64>>,
        with_accept_percent => accept_percent: u8,
        with_backing => backing: impl Into<Option<BackingOptions>>,
        with_pool => pool: PoolOptions,
    }

    /// Returns all codecs, the first one first.
    pub(crate) fn codecs(&self) -> Vec<CodecChoice> {
        let first = CodecChoice { spec: self.codec, dictionary: self.dictionary.clone() };
        std::iter::once(first).chain(self.recompression.iter().cloned()).collect()
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        if self.slots == 0 {
            return Err(OpenError::Option("a store needs at least one slot".to_owned()));
        }
        if self.recompression.len() >= State::CODECS_MAX {
            let (given, most) = (self.recompression.len(), State::CODECS_MAX - 1);
            return Err(OpenError::Option(format!(
                "{given} codecs to recompress with are more than {most}"
            )));
        }
        if self.deduplicate && self.key_header {
            let what = "deduplication and key headers exclude each other";
            return Err(OpenError::Option(what.to_owned()));
        }
        self.tunables().check()
    }

    pub(crate) fn tunables(&self) -> Tunables {
        Tunables {
            limit_bytes: self.limit_bytes,
            accept_percent: self.accept_percent,
            same_filled: self.same_filled,
            writeback_limit_pages: None,
            writeback_batch_pages: self.batch_pages(),
            codec: 0,
        }
    }

    /// Returns how many pages a write holds by default: as many as the backing prefers if pages
    /// compress to a quarter, but few enough to be a small part of the limit.
    fn batch_pages(&self) -> u32 {
        let liked = self.backing.as_ref().map_or(0, |backing| backing.backing.write_bytes());
        let limit = self.limit_bytes.map_or(u64::MAX, |limit| limit / (64 << 10));
        let pages = (liked as u64 / 1024).max(BATCH_DEFAULT.into()).min(limit);
        pages.clamp(1, BATCH_MAX.into()) as u32
    }
}

/// The options that can be changed while a store works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tunables {
    /// As [`StoreOptions::limit_bytes`] (zram's `mem_limit`).
    pub limit_bytes: Option<u64>,
    /// As [`StoreOptions::accept_percent`].
    pub accept_percent: u8,
    /// As [`StoreOptions::same_filled`] (zswap's `same_filled_pages_enabled`).
    pub same_filled: bool,
    /// How many pages may still be written back; counts down. `None`: any number (zram's
    /// `writeback_limit` with `writeback_limit_enable`).
    pub writeback_limit_pages: Option<u64>,
    /// Most pages that one write of the backing file holds, 1 to 1024 (zram's
    /// `writeback_batch_size`). At first 32, more if the backing likes long writes, and fewer
    /// under a limit below 2 MiB.
    pub writeback_batch_pages: u32,
    /// With which codec pages are compressed from now on: 0 is [`StoreOptions::codec`], 1 to 3
    /// those of [`StoreOptions::recompression`].
    pub codec: u8,
}

/// Pages of one write of a backing that does not mind.
const BATCH_DEFAULT: u32 = 32;

/// Most pages of one write of the backing file.
const BATCH_MAX: u32 = 1024;

impl Tunables {
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        if self.accept_percent > 100 {
            let percent = self.accept_percent;
            return Err(OpenError::Option(format!(
                "an accept threshold of {percent} % is above 100 %"
            )));
        }
        match self.writeback_batch_pages {
            1..=BATCH_MAX => Ok(()),
            pages => Err(OpenError::Option(format!(
                "a writeback batch of {pages} pages is not within 1 to {BATCH_MAX}"
            ))),
        }
    }
}
