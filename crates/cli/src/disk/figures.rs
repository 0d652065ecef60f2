//! The figures of a device and its store, each declared once, by the names of zram and zswap where
//! these have one. What the device has served is declared in `zfold_disk`.
//!
//! docs/use/stats.md has them as tables, which a test keeps right, and the equations that hold
//! between them.

use zfold_disk::table::{FAILED, PAGES};
use zfold_figures::{View, figures, metric, state};
use zfold_store::StoreStats;

use super::device::Device;
use crate::shared::size::PAGE_LEN;

/// Titles of tables beside those of `zfold_disk`.
pub(crate) mod table {
    /// What is held.
    pub(crate) const MEMORY: &str = "memory";
    /// The backing file.
    pub(crate) const BACKING: &str = "backing file";
}

use table::{BACKING, MEMORY};

/// A field that no table has.
const fn field(name: &'static str) -> View {
    state("", "").named(name)
}

figures! {
    /// What a device and its store hold and have done.
    pub(crate) struct DiskFigures;

    gauge size_bytes: Bytes, "size of the device", [field("size_bytes"), metric("size_bytes")];
    gauge max_size_bytes: Bytes, "the most it can grow to", [field("max_size_bytes")];

    gauge orig_data_size: Bytes, "bytes of all pages stored, wherever they are",
        [state(MEMORY, "orig_data_size").named("mm_stat.orig_data_size"),
         metric("stored_bytes")];
    gauge compr_data_size: Bytes, "compressed bytes of the pages in memory",
        [state(MEMORY, "compr_data_size").named("mm_stat.compr_data_size"),
         metric("compressed_bytes")];
    gauge mem_used_total: Bytes, "all memory held",
        [state(MEMORY, "mem_used_total").named("mm_stat.mem_used_total"),
         metric("memory_bytes")];
    gauge mem_limit: Bytes, "the most that may be held, 0 for any number",
        [state(MEMORY, "mem_limit").named("mm_stat.mem_limit"), metric("memory_limit_bytes")];
    gauge mem_used_max: Bytes, "the most held so far",
        [state(MEMORY, "mem_used_max").named("mm_stat.mem_used_max"),
         metric("memory_max_bytes")];
    gauge same_pages: Count, "pages that repeat one word, and take no memory",
        [state(PAGES, "same_pages").named("mm_stat.same_pages"), metric("same_filled_pages")];
    total pages_compacted: Count, "pages of the pool that compaction has freed so far",
        [state(PAGES, "pages_compacted").named("mm_stat.pages_compacted"),
         metric("compacted_pages_total")];
    gauge huge_pages: Count, "pages in memory stored uncompressed",
        [state(PAGES, "huge_pages").named("mm_stat.huge_pages"),
         metric("incompressible_pages")];
    total huge_pages_since: Count, "the same, so far",
        [state(PAGES, "huge_pages_since").named("mm_stat.huge_pages_since")];

    gauge bd_count: Count, "pages on the backing file",
        [state(BACKING, "bd_count").named("bd_stat.bd_count"), metric("backed_pages")];
    total backing_reads_total: Count, "pages read from the backing file so far",
        [state(BACKING, "bd_reads").named("bd_stat.bd_reads"), metric("backing_reads_total"),
         View::Rate];
    total backing_writes_total: Count, "pages written to the backing file so far",
        [state(BACKING, "bd_writes").named("bd_stat.bd_writes"), metric("backing_writes_total"),
         View::Rate];

    gauge stored_pages: Count, "pages stored, wherever they are",
        [state(PAGES, "stored_pages").named("zswap.stored_pages")];
    gauge stored_incompressible_pages: Count, "huge_pages",
        [field("zswap.stored_incompressible_pages")];
    gauge pool_total_size: Bytes, "bytes of the pool's pages in use",
        [state(MEMORY, "  pool_total_size").named("zswap.pool_total_size"), metric("pool_bytes")];
    total written_back_pages: Count, "bd_writes", [field("zswap.written_back_pages")];
    total pool_limit_hit: Count, "writes refused at the limit",
        [state(FAILED, "pool_limit_hit").named("zswap.pool_limit_hit"),
         metric("limit_hit_total")];
    total reject_alloc_fail: Count, "writes refused because the system had no memory",
        [state(FAILED, "reject_alloc_fail").named("zswap.reject_alloc_fail"),
         metric("alloc_fail_total")];
    total reject_compress_poor: Count,
        "writes refused because the page does not compress; a device stores such pages, so 0",
        [state(FAILED, "reject_compress_poor").named("zswap.reject_compress_poor")];
    total reject_compress_fail: Count, "always 0: codecs fail only by length",
        [field("zswap.reject_compress_fail")];
    total reject_reclaim_fail: Count, "times that writeback for room made none",
        [state(FAILED, "reject_reclaim_fail").named("zswap.reject_reclaim_fail")];
    total decompress_fail: Count, "reads of pages in memory whose bytes did not decode",
        [state(FAILED, "decompress_fail").named("zswap.decompress_fail"),
         metric("decompress_fail_total")];

    gauge metadata_bytes: Bytes, "slots, codec contexts, buffers, tables of the store",
        [state(MEMORY, "  tables").named("store.metadata_bytes")];
    gauge pool_metadata_bytes: Bytes, "the pool's tables",
        [state(MEMORY, "  pool tables").named("store.pool_metadata_bytes")];
    gauge pool_idle_bytes: Bytes, "idle pages kept for the next use",
        [state(MEMORY, "  idle").named("store.pool_idle_bytes")];
    gauge duplicate_pages: Count, "pages that share another one's object",
        [state(PAGES, "duplicate_pages").named("store.duplicate_pages"),
         metric("duplicate_pages")];
    total recompressed_total: Count, "pages that another codec made shorter",
        [state(PAGES, "recompressed").named("store.recompressed_total"),
         metric("recompressed_pages_total")];
    total recompressed_saved_bytes_total: Bytes, "by how much",
        [field("store.recompressed_saved_bytes_total")];
    gauge backing_bytes: Bytes, "size of the backing file",
        [state(BACKING, "size").named("store.backing_bytes"), metric("backing_bytes")];
    gauge backing_used_bytes: Bytes, "bytes of the backing file in use",
        [state(BACKING, "used").named("store.backing_used_bytes"), metric("backing_used_bytes")];
    gauge backing_payload_bytes: Bytes,
        "of them, bytes of pages; the rest is unused space in each page's last unit",
        [field("store.backing_payload_bytes")];
    total backing_failed_total: Count, "reads and writes of the backing file that failed",
        [metric("backing_failed_total")];
    total backing_failed_reads_total: Count, "pages that could not be read",
        [state(FAILED, "backing_failed_reads").named("store.backing_failed_reads_total")];
    total backing_failed_writes_total: Count,
        "pages that could not be written, and stayed in memory",
        [state(FAILED, "backing_failed_writes").named("store.backing_failed_writes_total")];
    total backing_damaged_total: Count, "pages read back with other bytes than were written",
        [state(FAILED, "backing_damaged").named("store.backing_damaged_total")];
}

impl DiskFigures {
    /// Returns those of a device.
    pub(super) fn of(device: &Device) -> Self {
        let limit = device.store().tunables().limit_bytes;
        Self {
            size_bytes: device.disk.size(),
            max_size_bytes: device.disk.max_size(),
            mem_limit: limit.unwrap_or(0),
            ..Self::of_store(&device.store().stats())
        }
    }

    fn of_store(store: &StoreStats) -> Self {
        Self {
            orig_data_size: store.stored_pages * PAGE_LEN,
            compr_data_size: store.pool.payload_bytes,
            mem_used_total: store.held_bytes(),
            mem_used_max: store.held_max_bytes,
            same_pages: store.same_filled_pages,
            pages_compacted: store.pool.pages_compacted_total,
            huge_pages: store.stored_incompressible_pages,
            huge_pages_since: store.incompressible_stores_total,
            bd_count: store.backed_pages,
            backing_reads_total: store.backing_reads_total,
            backing_writes_total: store.backing_writes_total,
            stored_pages: store.stored_pages,
            stored_incompressible_pages: store.stored_incompressible_pages,
            pool_total_size: store.pool.pool_bytes(),
            written_back_pages: store.backing_writes_total,
            pool_limit_hit: store.pool_limit_hit_total,
            reject_alloc_fail: store.reject_alloc_fail_total,
            reject_compress_poor: store.reject_compress_poor_total,
            reject_reclaim_fail: store.reject_reclaim_fail_total,
            decompress_fail: store.decompress_fail_total,
            metadata_bytes: store.metadata_bytes,
            pool_metadata_bytes: store.pool.metadata_bytes,
            pool_idle_bytes: store.pool.idle_pages.bytes(store.pool.page_size),
            duplicate_pages: store.duplicate_pages,
            recompressed_total: store.recompressed_total,
            recompressed_saved_bytes_total: store.recompressed_saved_bytes_total,
            backing_bytes: store.backing_bytes,
            backing_used_bytes: store.backing_used_bytes,
            backing_payload_bytes: store.backed_payload_bytes,
            backing_failed_total: store.backing_failed_reads_total
                + store.backing_failed_writes_total,
            backing_failed_reads_total: store.backing_failed_reads_total,
            backing_failed_writes_total: store.backing_failed_writes_total,
            backing_damaged_total: store.backing_damaged_total,
            ..Self::default()
        }
    }

    /// Returns the bytes stored over those held; 0 if nothing is stored.
    pub(super) fn ratio(&self) -> f64 {
        self.orig_data_size as f64 / self.mem_used_total.max(1) as f64
    }
}
