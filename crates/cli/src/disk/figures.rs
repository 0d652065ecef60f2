//! The figures of a device and its store, each declared once, by the names of zram and zswap where
//! these have one. The figures of requests are declared in `zfold_disk`.
//!
//! docs/use/stats.md has them as tables, which a test keeps right, and the equations that hold
//! between them.

use zfold_disk::table::{FAILED, PAGES};
use zfold_figures::{FIELD, View, figures, metric, state};

use super::device::Device;
use crate::shared::size::PAGE_LEN;

/// Titles of tables beside those of `zfold_disk`.
pub(crate) mod table {
    /// The memory held.
    pub(crate) const MEMORY: &str = "memory";
    /// The backing file.
    pub(crate) const BACKING: &str = "backing file";
}

use table::{BACKING, MEMORY};

figures! {
    /// The figures of a device and its store.
    pub(crate) struct DiskFigures;

    gauge size_bytes: Bytes, "size of the device", [FIELD, metric("size_bytes")];

    gauge orig_data_size: Bytes, "bytes of all pages stored, wherever they are",
        [state(MEMORY).within("mm_stat"), metric("stored_bytes")];
    gauge compr_data_size: Bytes, "compressed bytes of the pages in memory",
        [state(MEMORY).within("mm_stat"), metric("compressed_bytes")];
    gauge mem_used_total: Bytes, "all memory that the device holds",
        [state(MEMORY).within("mm_stat"), metric("memory_bytes")];
    gauge mem_limit: Bytes, "the most memory that may be held; 0: no limit",
        [state(MEMORY).within("mm_stat"), metric("memory_limit_bytes")];
    gauge mem_used_max: Bytes, "the most memory held so far",
        [state(MEMORY).within("mm_stat"), metric("memory_max_bytes")];
    gauge same_pages: Count, "pages that repeat one word, and take no memory",
        [state(PAGES).within("mm_stat"), metric("same_filled_pages")];
    total pages_compacted: Count, "pages of the pool that compaction has freed so far",
        [state(PAGES).within("mm_stat"), metric("compacted_pages_total")];
    gauge huge_pages: Count, "pages in memory stored uncompressed",
        [state(PAGES).within("mm_stat"), metric("incompressible_pages")];
    total huge_pages_since: Count, "pages stored uncompressed so far",
        [state(PAGES).within("mm_stat")];

    gauge bd_count: Count, "pages on the backing file",
        [state(BACKING).within("bd_stat"), metric("backed_pages")];
    total backing_reads_total: Count, "pages read from the backing file so far",
        [state(BACKING).named("bd_reads").within("bd_stat"), metric("backing_reads_total"),
         View::Rate];
    total backing_writes_total: Count, "pages written to the backing file so far",
        [state(BACKING).named("bd_writes").within("bd_stat"), metric("backing_writes_total"),
         View::Rate];

    gauge stored_pages: Count, "pages stored, wherever they are", [state(PAGES).within("zswap")];
    gauge pool_total_size: Bytes, "bytes of the pool's pages in use",
        [state(MEMORY).row("  pool_total_size").within("zswap"), metric("pool_bytes")];
    total pool_limit_hit: Count, "writes refused at the limit",
        [state(FAILED).within("zswap"), metric("limit_hit_total")];
    total reject_alloc_fail: Count, "writes refused because the system had no memory",
        [state(FAILED).within("zswap"), metric("alloc_fail_total")];
    total reject_reclaim_fail: Count, "times that writeback made no room",
        [state(FAILED).within("zswap")];
    total decompress_fail: Count, "reads of pages in memory whose bytes did not decode",
        [state(FAILED).within("zswap"), metric("decompress_fail_total")];

    gauge metadata_bytes: Bytes, "slots, codec contexts, buffers, tables of the store",
        [state(MEMORY).row("  tables").within("store")];
    gauge pool_metadata_bytes: Bytes, "the pool's tables",
        [state(MEMORY).row("  pool tables").within("store")];
    gauge pool_idle_bytes: Bytes, "idle pages kept for the next use",
        [state(MEMORY).row("  idle").within("store")];
    gauge duplicate_pages: Count, "pages that share another one's object",
        [state(PAGES).within("store"), metric("duplicate_pages")];
    total recompressed_total: Count, "pages that recompression made smaller",
        [state(PAGES).row("recompressed").within("store"), metric("recompressed_pages_total")];
    total recompressed_saved_bytes_total: Bytes, "bytes that recompression saved",
        [FIELD.within("store")];
    gauge backing_bytes: Bytes, "size of the backing file",
        [state(BACKING).row("size").within("store"), metric("backing_bytes")];
    gauge backing_used_bytes: Bytes, "bytes of the backing file in use",
        [state(BACKING).row("used").within("store"), metric("backing_used_bytes")];
    gauge backing_payload_bytes: Bytes,
        "of them, bytes of pages; the rest is unused space in each page's last unit",
        [FIELD.within("store")];
    total backing_failed_total: Count, "reads and writes of the backing file that failed",
        [metric("backing_failed_total")];
    total backing_failed_reads_total: Count, "pages that could not be read",
        [state(FAILED).row("backing_failed_reads").within("store")];
    total backing_failed_writes_total: Count,
        "pages that could not be written, and stayed in memory",
        [state(FAILED).row("backing_failed_writes").within("store")];
    total backing_damaged_total: Count, "pages read back with other bytes than were written",
        [state(FAILED).row("backing_damaged").within("store")];
}

impl DiskFigures {
    /// Returns those of a device.
    pub(super) fn of(device: &Device) -> Self {
        let limit = device.store().tunables().limit_bytes;
        let store = device.store().stats();
        Self {
            size_bytes: device.disk.size(),
            mem_limit: limit.unwrap_or(0),
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
            pool_total_size: store.pool.pool_bytes(),
            pool_limit_hit: store.pool_limit_hit_total,
            reject_alloc_fail: store.reject_alloc_fail_total,
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
        }
    }

    /// Returns the bytes stored over those held; 0 if nothing is stored.
    pub(super) fn ratio(&self) -> f64 {
        self.orig_data_size as f64 / self.mem_used_total.max(1) as f64
    }
}
