//! What the fuzz targets share: how bytes become a pool, its options and operations on it; and a
//! decoder that must stay within its page.

use std::sync::Arc;

use zfold_pool::source::{PageSource, SystemPages};
use zfold_pool::{
    Allocator, Chooser, Commit, Compaction, Grouping, KernelRules, PageSize, Pool, PoolOptions,
    create,
};
use zfold_store::{Codec, DecodeError};
use zfold_testing::pool::{FailingPages, HeapPages};

/// Bytes around the page that no decoder may touch.
const GUARD_BYTES: usize = 64;
const GUARD: u8 = 0xA5;

/// Decompresses `bytes` to a page between guards; returns the page, whatever it holds after an
/// error.
///
/// # Panics
/// If a byte outside of the page was touched.
pub fn decode_between_guards(
    codec: &mut dyn Codec,
    bytes: &[u8],
    page_len: usize,
) -> (Result<(), DecodeError>, Vec<u8>) {
    let mut framed = vec![GUARD; GUARD_BYTES + page_len + GUARD_BYTES];
    let page = GUARD_BYTES..GUARD_BYTES + page_len;
    let result = codec.decompress(bytes, &mut framed[page.clone()]);
    let (before, after) = (&framed[..page.start], &framed[page.end..]);
    assert!(before.iter().chain(after).all(|&byte| byte == GUARD), "{codec:?} left the page");
    (result, framed[page].to_vec())
}

/// Operations between two walks over all invariants.
pub const OPS_PER_CHECK: usize = 64;

/// Arena of a pool under test: small, so that running out is within reach.
const ARENA_BYTES: usize = 4 << 20;

/// A pool made as the first bytes of an input say.
pub struct Subject {
    /// The pool.
    pub pool: Box<dyn Pool>,
    /// Makes its memory fail.
    pub memory: Memory,
}

/// The memory of a pool, which runs out from time to time if the input says so.
pub struct Memory {
    source: FailingPages,
    may_fail: bool,
}

impl Memory {
    /// Decides by `word` how many commits pass from now on.
    pub fn ration(&self, word: u64) {
        if self.may_fail {
            self.source.allow(word as u32 & 15);
        }
    }
}

impl Subject {
    /// Returns the pool that the first four bytes of `data` describe, and the other bytes.
    pub fn from_bytes(data: &[u8]) -> Option<(Self, &[u8])> {
        let (&[kind, variant, chain, memory], rest) = data.split_first_chunk()?;
        let bit = |n: u8| variant >> n & 1 == 1;
        let source: Arc<dyn PageSource> = match memory & 1 {
            0 => Arc::new(HeapPages),
            _ => Arc::new(SystemPages),
        };
        let source = FailingPages::new(source, u32::MAX);
        let page_size = [PageSize::KIB4, PageSize::KIB16, PageSize::KIB64][kind as usize / 4 % 3];
        let allocator = Allocator::ALL[kind as usize % Allocator::ALL.len()];
        let rules = KernelRules {
            chain: 4 + u32::from(chain) % 13,
            chooser: if bit(0) { Chooser::UsedPercent } else { Chooser::LeastWaste },
            grouping: if bit(1) { Grouping::Four } else { Grouping::Twelve },
            compaction: if bit(2) { Compaction::PerSource } else { Compaction::KeepTarget },
            commit: if bit(3) { Commit::Eager } else { Commit::Lazy },
            ..KernelRules::default()
        };
        let options = PoolOptions::new(allocator)
            .with_page_size(page_size)
            .with_rules(rules)
            .with_reclaim(bit(4) && allocator.has_reclaim())
            .with_arena_bytes(ARENA_BYTES)
            .with_source(Arc::new(source.clone()));
        let pool = create("fuzz", &options).expect("the options are in range");
        Some((Self { pool, memory: Memory { source, may_fail: memory & 2 != 0 } }, rest))
    }
}

/// Returns the words in `bytes`; what is left over is not used.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word))
}
