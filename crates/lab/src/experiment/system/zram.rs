//! The kernel's compressed swap, on for as long as an experiment needs it: a zram device of the
//! experiment's own, which is removed whatever happens.
//!
//! It has the highest priority, and room for all that the experiment can page out, so that swap
//! that is on already sees none of it; zswap, which would take the pages first, is off meanwhile.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::child::{run, wait};
use super::cleanup::{Cleanup, patiently};
use crate::experiment::Error;

const CONTROL: &str = "/sys/class/zram-control";
const ZSWAP: &str = "/sys/module/zswap/parameters/enabled";
/// How long a device may take to appear.
const PATIENCE: Duration = Duration::from_secs(2);

/// Swap that is on. Dropping it turns it off and removes its device.
#[derive(Debug)]
pub(crate) struct ZramSwap {
    number: u32,
    _cleanup: Cleanup,
}

impl ZramSwap {
    /// Turns swap on to a new device of `bytes` bytes that compresses by `codec`, as the kernel
    /// names it; leaves existing devices alone.
    ///
    /// # Errors
    /// [`Error::Missing`] without zram, this codec, the tools or the right to do that; all is as
    /// before then.
    pub(crate) fn on(bytes: u64, codec: &str) -> Result<Self, Error> {
        let missing = |error: io::Error| {
            Error::Missing(match error.kind() {
                ErrorKind::NotFound => "the kernel has no zram (modprobe zram)".to_owned(),
                ErrorKind::PermissionDenied => "only root may add a zram device".to_owned(),
                _ => format!("no zram device with {codec}: {error}"),
            })
        };
        let mut cleanup = Cleanup::new()?;
        let added = fs::read_to_string(Path::new(CONTROL).join("hot_add")).map_err(missing)?;
        let number = added.trim().parse();
        let number: u32 = number.map_err(|_| Error::Missing("zram gave no number".to_owned()))?;
        // It is busy while another program looks what the new device is.
        cleanup.promise(&patiently(&format!(
            "echo 1 >/sys/block/zram{number}/reset && echo {number} >{CONTROL}/hot_remove"
        )))?;
        for (name, value) in [("comp_algorithm", codec), ("disksize", &*bytes.to_string())] {
            fs::write(attribute(number, name), value).map_err(missing)?;
        }
        let device = format!("/dev/zram{number}");
        if !wait(PATIENCE, || Path::new(&device).exists()) {
            return Err(Error::Missing(format!("{device} does not appear")));
        }
        if fs::read_to_string(ZSWAP).is_ok_and(|on| on.trim() == "Y") {
            cleanup.promise(&format!("echo Y >{ZSWAP}"))?;
            fs::write(ZSWAP, "N").map_err(missing)?;
        }
        run(Command::new("mkswap").arg(&device))?;
        cleanup.promise(&format!("swapoff {device}"))?;
        run(Command::new("swapon").args(["--priority", "32767"]).arg(&device))?;
        Ok(Self { number, _cleanup: cleanup })
    }

    /// Returns the bytes of memory that the compressed pages take; nothing if the system does not
    /// report it.
    pub(crate) fn used_bytes(&self) -> Option<u64> {
        let stat = fs::read_to_string(attribute(self.number, "mm_stat")).ok()?;
        stat.split_whitespace().nth(2)?.parse().ok()
    }
}

fn attribute(number: u32, name: &str) -> String {
    format!("/sys/block/zram{number}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::ALONE_WITH_SWAP;

    // One test, since the swap that is on belongs to the whole machine.
    #[test]
    fn swap_is_off_with_its_guard_and_nothing_is_left() {
        let _alone = ALONE_WITH_SWAP.lock();
        let swaps = || fs::read_to_string("/proc/swaps").unwrap_or_default();
        let before = swaps();
        match ZramSwap::on(64 << 20, "lz4") {
            Ok(swap) => {
                assert_ne!(swaps(), before);
                assert!(swap.used_bytes().unwrap() < 1 << 20);
                let entry = attribute(swap.number, "mm_stat");
                drop(swap);
                assert!(!Path::new(&entry).exists());
            }
            Err(Error::Missing(reason)) => zfold_testing::skip(reason),
            Err(error) => panic!("{error:?}"),
        }
        assert_eq!(swaps(), before);
        match ZramSwap::on(64 << 20, "no-such-codec") {
            Err(Error::Missing(_)) => assert_eq!(swaps(), before),
            other => panic!("{other:?}"),
        }
    }
}
