//! The statistics of a server, in the words of zram and zswap, as they are sent and shown.
//!
//! docs/use/stats.md says what each means, and the equations that hold between them.

use serde::{Deserialize, Serialize};
use zfold_disk::nbd::NbdStats;
use zfold_store::StoreStats;

use super::device::Device;
use crate::shared::far::FarReport;
use crate::shared::size::PAGE_LEN;

/// Name of this form of the statistics; another one has another name.
pub(crate) const SCHEMA: &str = "zfold.stat/1";

/// The statistics of a server.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    pub(crate) schema: String,
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) uptime_seconds: u64,
    pub(crate) nbd: Nbd,
    pub(crate) disks: Vec<DiskReport>,
}

/// The NBD frontend, for all devices together.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Nbd {
    pub(crate) connections: u64,
    pub(crate) connections_total: u64,
    pub(crate) refused_total: u64,
    pub(crate) failed_handshakes_total: u64,
    pub(crate) requests_total: u64,
    pub(crate) errors_total: u64,
}

/// A device.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct DiskReport {
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    pub(crate) max_size_bytes: u64,
    pub(crate) sector_bytes: u32,
    pub(crate) page_bytes: u64,
    pub(crate) read_only: bool,
    pub(crate) codec: String,
    pub(crate) allocator: String,
    pub(crate) addresses: Vec<String>,
    /// Bytes stored over bytes of memory held; 0 if nothing is stored.
    pub(crate) ratio: f64,
    pub(crate) mm_stat: MmStat,
    pub(crate) io_stat: IoStat,
    pub(crate) bd_stat: BdStat,
    pub(crate) zswap: Zswap,
    pub(crate) device: DeviceStat,
    pub(crate) store: StoreStat,
    /// The other machines, if pages go there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) far: Option<Box<FarReport>>,
}

/// zram's `mm_stat`, in bytes and pages.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct MmStat {
    pub(crate) orig_data_size: u64,
    pub(crate) compr_data_size: u64,
    pub(crate) mem_used_total: u64,
    pub(crate) mem_limit: u64,
    pub(crate) mem_used_max: u64,
    pub(crate) same_pages: u64,
    pub(crate) pages_compacted: u64,
    pub(crate) huge_pages: u64,
    pub(crate) huge_pages_since: u64,
}

/// zram's `io_stat`, in requests and pages.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct IoStat {
    pub(crate) failed_reads: u64,
    pub(crate) failed_writes: u64,
    pub(crate) invalid_io: u64,
    pub(crate) notify_free: u64,
}

/// zram's `bd_stat`, in pages.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct BdStat {
    pub(crate) bd_count: u64,
    pub(crate) bd_reads: u64,
    pub(crate) bd_writes: u64,
}

/// zswap's counters, in pages; `pool_total_size` in bytes.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Zswap {
    pub(crate) pool_limit_hit: u64,
    pub(crate) reject_reclaim_fail: u64,
    pub(crate) reject_alloc_fail: u64,
    pub(crate) reject_compress_fail: u64,
    pub(crate) reject_compress_poor: u64,
    pub(crate) decompress_fail: u64,
    pub(crate) written_back_pages: u64,
    pub(crate) pool_total_size: u64,
    pub(crate) stored_pages: u64,
    pub(crate) stored_incompressible_pages: u64,
}

/// What the device has served.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct DeviceStat {
    pub(crate) reads_total: u64,
    pub(crate) read_bytes_total: u64,
    pub(crate) writes_total: u64,
    pub(crate) written_bytes_total: u64,
    pub(crate) discards_total: u64,
    pub(crate) discarded_bytes_total: u64,
    pub(crate) write_zeroes_total: u64,
    pub(crate) flushes_total: u64,
}

/// What the kernel has no name for.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct StoreStat {
    pub(crate) metadata_bytes: u64,
    pub(crate) pool_idle_bytes: u64,
    pub(crate) pool_metadata_bytes: u64,
    pub(crate) duplicate_pages: u64,
    pub(crate) recompressed_total: u64,
    pub(crate) recompressed_saved_bytes_total: u64,
    pub(crate) backing_bytes: u64,
    pub(crate) backing_used_bytes: u64,
    pub(crate) backing_payload_bytes: u64,
    pub(crate) backing_failed_reads_total: u64,
    pub(crate) backing_failed_writes_total: u64,
    pub(crate) backing_damaged_total: u64,
}

impl From<NbdStats> for Nbd {
    fn from(stats: NbdStats) -> Self {
        Self {
            connections: stats.connections,
            connections_total: stats.connections_total,
            refused_total: stats.refused_total,
            failed_handshakes_total: stats.failed_handshakes_total,
            requests_total: stats.requests_total,
            errors_total: stats.errors_total,
        }
    }
}

impl MmStat {
    fn of(store: &StoreStats, limit: u64) -> Self {
        Self {
            orig_data_size: store.stored_pages * PAGE_LEN,
            compr_data_size: store.pool.payload_bytes,
            mem_used_total: store.held_bytes(),
            mem_limit: limit,
            mem_used_max: store.held_max_bytes,
            same_pages: store.same_filled_pages,
            pages_compacted: store.pool.pages_compacted_total,
            huge_pages: store.stored_incompressible_pages,
            huge_pages_since: store.incompressible_stores_total,
        }
    }
}

impl Zswap {
    fn of(store: &StoreStats) -> Self {
        Self {
            pool_limit_hit: store.pool_limit_hit_total,
            reject_reclaim_fail: store.reject_reclaim_fail_total,
            reject_alloc_fail: store.reject_alloc_fail_total,
            reject_compress_fail: 0,
            reject_compress_poor: store.reject_compress_poor_total,
            decompress_fail: store.decompress_fail_total,
            written_back_pages: store.backing_writes_total,
            pool_total_size: store.pool.pool_bytes(),
            stored_pages: store.stored_pages,
            stored_incompressible_pages: store.stored_incompressible_pages,
        }
    }
}

impl DiskReport {
    /// Returns the statistics of a device that is reached at `addresses`.
    pub(crate) fn of(device: &Device, addresses: Vec<String>) -> Self {
        let (disk, store) = (device.disk.stats(), device.store().stats());
        let limit = device.store().tunables().limit_bytes.unwrap_or(0);
        let page_size = store.pool.page_size;
        let ratio = (store.stored_pages * PAGE_LEN) as f64 / store.held_bytes().max(1) as f64;
        Self {
            name: device.made.name.clone(),
            size_bytes: device.disk.size(),
            max_size_bytes: device.disk.max_size(),
            sector_bytes: device.disk.sector().bytes(),
            page_bytes: PAGE_LEN,
            read_only: device.made.read_only,
            codec: device.made.codec.to_string(),
            allocator: device.made.allocator.to_string(),
            addresses,
            ratio,
            mm_stat: MmStat::of(&store, limit),
            io_stat: IoStat {
                failed_reads: disk.failed_reads_total,
                failed_writes: disk.failed_writes_total,
                invalid_io: 0,
                notify_free: disk.notify_free_total,
            },
            bd_stat: BdStat {
                bd_count: store.backed_pages,
                bd_reads: store.backing_reads_total,
                bd_writes: store.backing_writes_total,
            },
            zswap: Zswap::of(&store),
            device: DeviceStat {
                reads_total: disk.reads_total,
                read_bytes_total: disk.read_bytes_total,
                writes_total: disk.writes_total,
                written_bytes_total: disk.written_bytes_total,
                discards_total: disk.discards_total,
                discarded_bytes_total: disk.discarded_bytes_total,
                write_zeroes_total: disk.write_zeroes_total,
                flushes_total: disk.flushes_total,
            },
            store: StoreStat {
                metadata_bytes: store.metadata_bytes,
                pool_idle_bytes: store.pool.idle_pages.bytes(page_size),
                pool_metadata_bytes: store.pool.metadata_bytes,
                duplicate_pages: store.duplicate_pages,
                recompressed_total: store.recompressed_total,
                recompressed_saved_bytes_total: store.recompressed_saved_bytes_total,
                backing_bytes: store.backing_bytes,
                backing_used_bytes: store.backing_used_bytes,
                backing_payload_bytes: store.backed_payload_bytes,
                backing_failed_reads_total: store.backing_failed_reads_total,
                backing_failed_writes_total: store.backing_failed_writes_total,
                backing_damaged_total: store.backing_damaged_total,
            },
            far: device.far.as_deref().map(FarReport::of).map(Box::new),
        }
    }
}
