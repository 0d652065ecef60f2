//! The results of one allocator and one codec with one input.

use serde::Serialize;

use crate::latency::Summary;

/// The name of all inputs together in one pool.
pub(crate) const ALL_INPUTS: &str = "all";

/// The figures of one input in one allocator with one codec.
///
/// Sizes are in bytes, times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Name of the input; `all` when several were stored in one pool together.
    pub input: String,
    /// Name of the allocator.
    pub allocator: String,
    /// Most pages per zspage; `None` for allocators without zspages.
    pub chain: Option<u32>,
    /// How zsmalloc chose the pages per zspage; `None` for the others.
    pub chooser: Option<String>,
    /// Name of the codec.
    pub codec: String,
    /// The kernel that was imitated, if one was.
    pub preset: Option<String>,
    /// Bytes of a page.
    pub page_size: u64,
    /// Bytes the pool may take, if limited.
    pub limit_bytes: Option<u64>,
    /// The seed of the order of events.
    pub seed: u64,
    /// Pages of the input.
    pub pages: u64,
    /// Counts and bytes.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// How long stores took.
    pub store_ns: Summary,
    /// How long loads took.
    pub load_ns: Summary,
    /// Whether every byte that was loaded was the one stored; a run that finds another fails.
    pub verified: bool,
    /// Which input, counted from 0; of several, 0 stands for all together.
    #[serde(skip)]
    pub(crate) place: usize,
}

/// Counts of pages and bytes of memory.
///
/// The *filled point* is when every page has been stored once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// Pages of one repeated word, kept without an object.
    pub same_filled: u64,
    /// Pages that did not compress and were kept as they are.
    pub raw: u64,
    /// Pages that were not kept: they did not compress, were too large, or met the limit.
    pub rejected: u64,
    /// Objects in the pool at the filled point; each is one page, compressed or raw.
    pub objects: u64,
    /// Bytes of these objects.
    pub payload_bytes: u64,
    /// Bytes of pool pages at the filled point.
    pub pool_bytes: u64,
    /// Most bytes of pool pages at any time.
    pub pool_bytes_peak: u64,
    /// The pool after a random half was freed.
    pub pool_bytes_half_freed: u64,
    /// The pool after compaction of that state.
    pub pool_bytes_half_compacted: u64,
    /// The pool after the freed half was stored again.
    pub pool_bytes_refilled: u64,
    /// The pool after all was freed.
    pub pool_bytes_emptied: u64,
    /// Bytes of the tables that find and manage the objects, at the filled point.
    pub metadata_bytes: u64,
    /// Bytes of the codec's working memory, of all threads together; not part of the metadata.
    pub codec_bytes: u64,
    /// Bytes the anonymous resident memory grew by, from the first page to the filled point.
    pub rss_bytes: u64,
    /// The same to the point where all was freed.
    pub rss_bytes_emptied: u64,
}

impl Record {
    /// Returns the bytes that the input takes without a pool.
    pub(crate) fn original_bytes(&self) -> u64 {
        self.pages * self.page_size
    }

    /// Returns the bytes that the input takes with this pool: pool, metadata, rejected pages.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let Sizes { pool_bytes, metadata_bytes, rejected, .. } = self.sizes;
        pool_bytes + metadata_bytes + rejected * self.page_size
    }

    /// Returns the size of the pages in the pool over that of their objects, if there are any.
    pub(crate) fn compression_ratio(&self) -> Option<f64> {
        let pages = (self.sizes.objects * self.page_size) as f64;
        let payload = self.sizes.payload_bytes;
        (payload > 0).then(|| pages / payload as f64)
    }
}

/// The results of one run over an input.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) sizes: Sizes,
    pub(super) store_ns: Summary,
    pub(super) load_ns: Summary,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::latency::Latency;

    /// Returns a record of ten 4 KiB pages: one same-filled, one raw, one rejected.
    pub(crate) fn record(input: &str, allocator: &str, pool_bytes: u64) -> Record {
        let mut times = Latency::new();
        times.record(std::time::Duration::from_nanos(9_000));
        let zsmalloc = allocator == "zsmalloc";
        Record {
            input: input.to_owned(),
            allocator: allocator.to_owned(),
            chain: zsmalloc.then_some(8),
            chooser: zsmalloc.then(|| "new".to_owned()),
            codec: "lz4".to_owned(),
            preset: None,
            page_size: 4096,
            limit_bytes: None,
            seed: 1,
            pages: 10,
            sizes: sizes(pool_bytes),
            store_ns: times.summary(),
            load_ns: times.summary(),
            verified: true,
            place: 0,
        }
    }

    fn sizes(pool_bytes: u64) -> Sizes {
        Sizes {
            same_filled: 1,
            raw: 1,
            rejected: 1,
            objects: 8,
            payload_bytes: 8192,
            pool_bytes,
            pool_bytes_peak: pool_bytes,
            pool_bytes_half_freed: pool_bytes / 2 + 4096,
            pool_bytes_half_compacted: pool_bytes / 2,
            pool_bytes_refilled: pool_bytes,
            pool_bytes_emptied: 0,
            metadata_bytes: 512,
            codec_bytes: 16384,
            rss_bytes: pool_bytes + 512,
            rss_bytes_emptied: 0,
        }
    }

    #[test]
    fn rejected_pages_count_as_kept_outside() {
        let record = record("a", "zbud", 12288);
        assert_eq!(record.original_bytes(), 40960);
        assert_eq!(record.kept_bytes(), 12288 + 512 + 4096);
        assert_eq!(record.compression_ratio(), Some(4.0));
    }
}
