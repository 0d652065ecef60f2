//! The part that all comparisons of devices share.

use std::path::PathBuf;
use std::time::Duration;

use crate::experiment::harness::sized;
use crate::experiment::system::scratch::Scratch;
use crate::experiment::{Error, Settings};

/// Name of the experiment.
pub const NAME: &str = "disk";

/// The part that all comparisons share.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) settings: &'a Settings,
    /// Sockets, mounts and logs; of its owner only.
    pub(super) scratch: Scratch,
    /// Size of each device, a multiple of 1 MiB.
    pub(super) span_bytes: u64,
    /// How long a random load is measured.
    pub(super) time: Duration,
    /// How long a device is overwritten before its memory is looked at.
    pub(super) overwriting: Duration,
}

impl<'a> Bench<'a> {
    pub(super) fn new(settings: &'a Settings) -> Result<Self, Error> {
        let milliseconds =
            |full, quick| Duration::from_millis(sized(settings, full, quick).max(100) as u64);
        Ok(Self {
            settings,
            scratch: Scratch::new()?,
            span_bytes: (sized(settings, 1024, 64).max(4) as u64) << 20,
            time: milliseconds(3000, 400),
            overwriting: milliseconds(60_000, 3000),
        })
    }

    /// Returns a path in the folder of this run.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }
}
