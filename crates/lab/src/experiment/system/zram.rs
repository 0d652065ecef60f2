//! A zram device of the experiment's own, which is removed whatever happens.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::child::wait;
use super::cleanup::{Cleanup, patiently};
use crate::experiment::harness::turns::Fault;

const CONTROL: &str = "/sys/class/zram-control";
/// How long a device may take to appear.
const PATIENCE: Duration = Duration::from_secs(2);

/// A zram device. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Zram {
    number: u32,
    cleanup: Cleanup,
}

impl Zram {
    /// Adds a device of `bytes` bytes that compresses by `codec`, as the kernel names it; leaves
    /// existing ones alone.
    ///
    /// # Errors
    /// [`Fault::Missing`] without zram, this codec or the right to add a device; none is left then.
    pub(crate) fn add(bytes: u64, codec: &str) -> Result<Self, Fault> {
        let mut cleanup = Cleanup::new()?;
        let added = fs::read_to_string(Path::new(CONTROL).join("hot_add"));
        let added = added.map_err(|error| missing(codec, &error))?;
        let number = added.trim().parse();
        let number: u32 = number.map_err(|_| Fault::Missing("zram gave no number".to_owned()))?;
        // It is busy while another program looks what the new device is.
        cleanup.promise(&patiently(&format!(
            "echo 1 >/sys/block/zram{number}/reset && echo {number} >{CONTROL}/hot_remove"
        )))?;
        let device = Self { number, cleanup };
        device.set("comp_algorithm", codec).map_err(|error| missing(codec, &error))?;
        device.set("disksize", &bytes.to_string()).map_err(|error| missing(codec, &error))?;
        if wait(PATIENCE, || device.path().exists()) {
            return Ok(device);
        }
        Err(Fault::Missing(format!("{} does not appear", device.path().display())))
    }

    /// Gives up the device for what removes it, by which more can be undone before that.
    pub(crate) fn into_cleanup(self) -> Cleanup {
        self.cleanup
    }

    /// Returns the block device.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.number))
    }

    /// Returns the file with the bytes of memory that the device takes ([`used_bytes`]).
    pub(crate) fn used_bytes_path(&self) -> PathBuf {
        self.attribute("mm_stat")
    }

    fn attribute(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/zram{}/{name}", self.number))
    }

    fn set(&self, attribute: &str, value: &str) -> io::Result<()> {
        fs::write(self.attribute(attribute), value)
    }
}

fn missing(codec: &str, error: &io::Error) -> Fault {
    Fault::Missing(match error.kind() {
        ErrorKind::NotFound => "the kernel has no zram (modprobe zram)".to_owned(),
        ErrorKind::PermissionDenied => "only root may add a zram device".to_owned(),
        _ => format!("no zram device with {codec}: {error}"),
    })
}

/// Returns the third field of an `mm_stat` text.
pub(crate) fn used_bytes(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_memory_is_the_third_field() {
        assert_eq!(used_bytes("  4096   74  12288  0  12288  0 0 0 0\n"), Some(12288));
        assert_eq!(used_bytes("4096 74"), None);
    }

    #[test]
    fn a_device_is_removed_with_its_guard() {
        let device = match Zram::add(1 << 20, "lz4") {
            Ok(device) => device,
            Err(Fault::Missing(reason)) => {
                return zfold_testing::skip(reason);
            }
            Err(fault) => panic!("{fault:?}"),
        };
        let entry = device.attribute("mm_stat");
        let stat = fs::read_to_string(device.used_bytes_path()).unwrap();
        assert!(used_bytes(&stat).unwrap() < 1 << 20);
        drop(device);
        assert!(!entry.exists());
    }
}
