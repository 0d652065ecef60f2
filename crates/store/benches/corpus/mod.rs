//! What the benchmarks work on: the project's captures of real memory, whole and LZ4-compressed,
//! in a fixed random order.

// Each benchmark uses a part of it.
#![allow(dead_code)]

use zfold_store::{CodecKind, CodecSpec};

/// Bytes of a captured page.
pub(crate) const PAGE: usize = 4096;

const CAPTURES: [&[u8]; 5] = [
    include_bytes!("../../../../corpus/cc1.pages.zst"),
    include_bytes!("../../../../corpus/node.pages.zst"),
    include_bytes!("../../../../corpus/numpy.pages.zst"),
    include_bytes!("../../../../corpus/postgres.pages.zst"),
    include_bytes!("../../../../corpus/rustc.pages.zst"),
];

/// A sequence of random indices (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (((word ^ word >> 31) as u128 * end as u128) >> 64) as usize
    }
}

/// Returns all captured pages, shuffled.
pub(crate) fn pages() -> Vec<[u8; PAGE]> {
    let mut pages = Vec::new();
    for capture in CAPTURES {
        let mut raw = vec![0; 1024 * PAGE];
        let len = zstd_safe::decompress(&mut raw[..], capture).expect("a capture");
        let (chunks, rest) = raw[..len].as_chunks();
        assert!(rest.is_empty());
        pages.extend_from_slice(chunks);
    }
    let mut random = Random(1);
    (1..pages.len()).rev().for_each(|at| pages.swap(at, random.below(at + 1)));
    pages
}

/// Returns the pages that LZ4 makes shorter, compressed.
pub(crate) fn objects() -> Vec<Vec<u8>> {
    let mut codec = CodecSpec::from(CodecKind::Lz4).context(PAGE).expect("a context");
    let mut out = [0; PAGE];
    let compress =
        |page: &[u8; PAGE]| codec.compress(page, &mut out).map(|len| out[..len].to_vec());
    pages().iter().filter_map(compress).collect()
}
