//! The results of one allocator and one codec with one input.

use serde::Serialize;

use crate::latency::{Latency, Summary};

/// The name of all inputs together in one pool.
pub(crate) const ALL_INPUTS: &str = "all";

/// The figures of one input in one allocator with one codec.
///
/// Sizes are in bytes, times in nanoseconds. With repeats, sizes are medians and times are those
/// of all repeats together.
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
    /// Which locks guarded the pool.
    pub locking: String,
    /// Name of the codec.
    pub codec: String,
    /// The kernel that was imitated, if one was.
    pub preset: Option<String>,
    /// Bytes of a page.
    pub page_size: u64,
    /// Bytes the pool may take, if limited.
    pub limit_bytes: Option<u64>,
    /// Threads that stored and loaded.
    pub threads: u32,
    /// The number of runs.
    pub repeat: u32,
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
    /// The time of each store.
    #[serde(skip)]
    pub stores: Latency,
    /// The time of each load.
    #[serde(skip)]
    pub loads: Latency,
}

/// Declares figures, and the median of each.
macro_rules! sizes {
    ($(#[$of:meta])* struct Sizes { $($(#[$about:meta])* $name:ident,)* }) => {
        $(#[$of])*
        pub struct Sizes { $($(#[$about])* pub $name: u64,)* }

        impl Sizes {
            /// Returns the middle one of each figure, the larger of two.
            pub(crate) fn median(all: &[Self]) -> Self {
                let middle = |figure: fn(&Self) -> u64| {
                    let mut values: Vec<u64> = all.iter().map(figure).collect();
                    values.sort_unstable();
                    values[values.len() / 2]
                };
                Self { $($name: middle(|sizes| sizes.$name),)* }
            }
        }
    };
}

sizes! {
    /// Counts of pages and bytes of memory.
    ///
    /// The *filled point* is when every page has been stored once.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    struct Sizes {
        /// Pages of one repeated word, kept without an object.
        same_filled,
        /// Pages that did not compress and were kept as they are.
        raw,
        /// Pages that were not kept: they did not compress, were too large, or met the limit.
        rejected,
        /// Objects in the pool at the filled point; each is one page, compressed or raw.
        objects,
        /// Bytes of these objects.
        payload_bytes,
        /// Bytes of pool pages at the filled point.
        pool_bytes,
        /// Most bytes of pool pages at any time.
        pool_bytes_peak,
        /// The pool after a random half was freed.
        pool_bytes_half_freed,
        /// The pool after compaction of that state.
        pool_bytes_half_compacted,
        /// The pool after the freed half was stored again.
        pool_bytes_refilled,
        /// The pool after all was freed.
        pool_bytes_emptied,
        /// Bytes of the tables that find and manage the objects, at the filled point.
        metadata_bytes,
        /// Bytes of the codec's working memory, of all threads together; not part of the metadata.
        codec_bytes,
        /// Bytes the anonymous resident memory grew by, from the first page to the filled point.
        rss_bytes,
        /// The same to the point where all was freed.
        rss_bytes_emptied,
    }
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
    pub(super) stores: Latency,
    pub(super) loads: Latency,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

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
            locking: "pool-lock".to_owned(),
            codec: "lz4".to_owned(),
            preset: None,
            page_size: 4096,
            limit_bytes: None,
            threads: 1,
            repeat: 1,
            seed: 1,
            pages: 10,
            sizes: sizes(pool_bytes),
            store_ns: times.summary(),
            load_ns: times.summary(),
            verified: true,
            place: 0,
            stores: times.clone(),
            loads: times,
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

    #[test]
    fn medians_are_per_figure() {
        let mut all = [sizes(3), sizes(1), sizes(2)];
        all[1].rss_bytes = 1 << 30;
        let median = Sizes::median(&all);
        assert_eq!((median.pool_bytes, median.pool_bytes_peak), (2, 2));
        assert_eq!((median.rss_bytes, median.pool_bytes_refilled), (515, 2));
    }
}
