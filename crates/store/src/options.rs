//! What a store is made of, and what of it can be changed while it works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::backing::Backing;
use crate::codec::{CodecSpec, Dictionary};
use crate::error::OpenError;

/// Most codecs of a store: the first, and those for recompression.
pub(crate) const CODECS_MAX: usize = 4;

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
pub struct CodecChoice {
    /// The codec.
    pub spec: CodecSpec,
    /// What compressor and decompressor know beforehand, if anything.
    pub dictionary: Option<Dictionary>,
}

impl From<CodecSpec> for CodecChoice {
    fn from(spec: CodecSpec) -> Self {
        Self { spec, dictionary: None }
    }
}

/// Where pages go that leave memory.
#[derive(Clone, Debug)]
pub struct BackingOptions {
    /// The file or device.
    pub backing: Arc<dyn Backing>,
    /// Whether pages are written as they lie, compressed, which takes less of the file and needs
    /// no codec; else as whole pages.
    pub compressed: bool,
}

/// What a store is made of. Public fields with defaults; start from [`StoreOptions::new`].
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Number of keys: 0 up to `slots - 1`. Costs 16 bytes of address space each, and memory only
    /// around keys in use.
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
    /// Most bytes that the store may hold: pages, idle pages and metadata. `None`: no limit.
    pub limit_bytes: Option<u64>,
    /// A full store takes pages again when it has shrunk to this share of its limit, in percent
    /// (zswap's `accept_threshold_percent`).
    pub accept_percent: u8,
    /// Where pages go that leave memory, if they can.
    pub backing: Option<BackingOptions>,
}

impl StoreOptions {
    /// Returns the defaults for `slots` keys and `codec`: incompressible pages kept, same-filled
    /// pages recognised, no dictionary, no recompression, no key header, no deduplication, no
    /// limit, accept at 90 percent, no backing.
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
        }
    }

    /// Returns all codecs, the first one first.
    pub(crate) fn codecs(&self) -> Vec<CodecChoice> {
        let first = CodecChoice { spec: self.codec, dictionary: self.dictionary.clone() };
        std::iter::once(first).chain(self.recompression.iter().cloned()).collect()
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        if self.slots == 0 {
            return Err(OpenError::NoSlots);
        }
        if self.recompression.len() >= CODECS_MAX {
            return Err(OpenError::TooManyCodecs(self.recompression.len()));
        }
        if self.deduplicate && self.key_header {
            return Err(OpenError::DeduplicateWithKeys);
        }
        self.tunables().check()
    }

    pub(crate) fn tunables(&self) -> Tunables {
        Tunables {
            limit_bytes: self.limit_bytes,
            accept_percent: self.accept_percent,
            same_filled: self.same_filled,
            writeback_limit_pages: None,
            writeback_batch_pages: 32,
        }
    }
}

/// What can be changed while a store works.
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
    /// `writeback_batch_size`).
    pub writeback_batch_pages: u32,
}

/// Most pages of one write of the backing file.
const BATCH_MAX: u32 = 1024;

impl Tunables {
    fn check(&self) -> Result<(), OpenError> {
        if self.accept_percent > 100 {
            return Err(OpenError::AcceptPercent(self.accept_percent));
        }
        match self.writeback_batch_pages {
            1..=BATCH_MAX => Ok(()),
            pages => Err(OpenError::WritebackBatch(pages)),
        }
    }
}

/// The tunables as threads read them: each by itself, in no order with anything.
#[derive(Debug)]
pub(crate) struct Tuning {
    /// `NONE` for no limit.
    limit_bytes: AtomicU64,
    accept_percent: AtomicU8,
    same_filled: AtomicBool,
    /// `NONE` for any number.
    writeback_limit_pages: AtomicU64,
    writeback_batch_pages: AtomicU32,
}

const NONE: u64 = u64::MAX;

fn option(value: u64) -> Option<u64> {
    (value != NONE).then_some(value)
}

// Relaxed throughout: a change is seen a moment later, and nothing else hangs on it.
impl Tuning {
    pub(crate) fn new(tunables: &Tunables) -> Self {
        Self {
            limit_bytes: AtomicU64::new(tunables.limit_bytes.unwrap_or(NONE)),
            accept_percent: AtomicU8::new(tunables.accept_percent),
            same_filled: AtomicBool::new(tunables.same_filled),
            writeback_limit_pages: AtomicU64::new(tunables.writeback_limit_pages.unwrap_or(NONE)),
            writeback_batch_pages: AtomicU32::new(tunables.writeback_batch_pages),
        }
    }

    pub(crate) fn get(&self) -> Tunables {
        Tunables {
            limit_bytes: self.limit_bytes(),
            accept_percent: self.accept_percent.load(Ordering::Relaxed),
            same_filled: self.same_filled(),
            writeback_limit_pages: option(self.writeback_limit_pages.load(Ordering::Relaxed)),
            writeback_batch_pages: self.writeback_batch_pages.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set(&self, to: &Tunables) -> Result<(), OpenError> {
        to.check()?;
        self.limit_bytes.store(to.limit_bytes.unwrap_or(NONE), Ordering::Relaxed);
        self.accept_percent.store(to.accept_percent, Ordering::Relaxed);
        self.same_filled.store(to.same_filled, Ordering::Relaxed);
        let pages = to.writeback_limit_pages.unwrap_or(NONE);
        self.writeback_limit_pages.store(pages, Ordering::Relaxed);
        self.writeback_batch_pages.store(to.writeback_batch_pages, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    pub(crate) fn limit_bytes(&self) -> Option<u64> {
        option(self.limit_bytes.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn same_filled(&self) -> bool {
        self.same_filled.load(Ordering::Relaxed)
    }

    /// Takes up to `pages` from the writeback budget; returns how many there were.
    pub(crate) fn take_budget(&self, pages: u64) -> u64 {
        let mut taken = pages;
        let take = |left: u64| {
            taken = pages.min(left);
            Some(if left == NONE { NONE } else { left - taken })
        };
        let _ = self.writeback_limit_pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken
    }

    /// Gives pages back to the budget that were not written after all.
    pub(crate) fn return_budget(&self, pages: u64) {
        let give = |left: u64| (left != NONE).then(|| left.saturating_add(pages).min(NONE - 1));
        let _ = self.writeback_limit_pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, give);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::CodecKind;

    #[test]
    fn the_budget_counts_down_and_can_be_given_back() {
        let options = StoreOptions::new(1, CodecKind::Lz4.into());
        let mut tunables = options.tunables();
        let tuning = Tuning::new(&tunables);
        assert_eq!(tuning.take_budget(1 << 40), 1 << 40, "no limit");
        tunables.writeback_limit_pages = Some(10);
        tuning.set(&tunables).unwrap();
        assert_eq!(
            (tuning.take_budget(7), tuning.take_budget(7), tuning.take_budget(7)),
            (7, 3, 0)
        );
        tuning.return_budget(4);
        assert_eq!(tuning.get().writeback_limit_pages, Some(4));
    }

    #[test]
    fn tunables_out_of_range_change_nothing() {
        let tunables = StoreOptions::new(1, CodecKind::Lz4.into()).tunables();
        let tuning = Tuning::new(&tunables);
        let (percent, batch) = (101, 0);
        let wrong = Tunables { accept_percent: percent, ..tunables };
        assert_eq!(tuning.set(&wrong), Err(OpenError::AcceptPercent(percent)));
        let wrong = Tunables { writeback_batch_pages: batch, ..tunables };
        assert_eq!(tuning.set(&wrong), Err(OpenError::WritebackBatch(batch)));
        assert_eq!(tuning.get(), tunables);
    }
}
