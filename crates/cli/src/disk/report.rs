//! The statistics of a server, in the words of zram and zswap, as they are sent.

use serde::{Deserialize, Serialize};
use zfold_disk::DiskStats;
use zfold_disk::nbd::NbdStats;

use super::device::Device;
use super::figures::DiskFigures;
use crate::shared::far::FarReport;
use crate::shared::figures::in_state;
use crate::shared::size::PAGE_LEN;

/// Name of this form of the statistics; another one has another name.
pub(crate) const SCHEMA: &str = "zfold.stat/1";

/// The statistics of a server.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Report {
    pub(crate) schema: String,
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) uptime_seconds: u64,
    /// The NBD frontend.
    #[serde(with = "in_state")]
    pub(crate) nbd: NbdStats,
    /// The device; JSON has a list.
    pub(crate) disks: [DiskReport; 1],
}

impl Report {
    /// Returns the device.
    pub(crate) fn disk(&self) -> &DiskReport {
        let [disk] = &self.disks;
        disk
    }
}

/// A device.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct DiskReport {
    pub(crate) name: String,
    pub(crate) sector_bytes: u32,
    pub(crate) page_bytes: u64,
    pub(crate) read_only: bool,
    pub(crate) codec: String,
    pub(crate) allocator: String,
    pub(crate) addresses: Vec<String>,
    /// Bytes stored over bytes of memory held; 0 if nothing is stored.
    pub(crate) ratio: f64,
    /// Its memory.
    #[serde(flatten, with = "in_state")]
    pub(crate) held: DiskFigures,
    /// Its requests.
    #[serde(flatten, with = "in_state")]
    pub(crate) served: DiskStats,
    /// The other machines, if pages go there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) far: Option<Box<FarReport>>,
}

impl DiskReport {
    /// Returns the statistics of a device that is reached at `addresses`.
    pub(crate) fn of(device: &Device, addresses: Vec<String>) -> Self {
        let held = DiskFigures::of(device);
        Self {
            name: device.plan.args.name.clone(),
            sector_bytes: device.disk.sector().bytes(),
            page_bytes: PAGE_LEN,
            read_only: device.plan.args.read_only,
            codec: device.plan.codec.to_string(),
            allocator: device.plan.args.allocator.to_string(),
            addresses,
            ratio: held.ratio(),
            held,
            served: device.disk.stats(),
            far: device.far.as_deref().map(FarReport::of).map(Box::new),
        }
    }
}
