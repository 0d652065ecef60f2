//! The kernel's compressed swap, on for as long as an experiment needs it: zram, or zswap before a
//! swap file.
//!
//! It has the highest priority, and room for all that the experiment can page out, so that swap
//! that is on already sees none of it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use zfold_compare::proc::bytes;

use super::child::run;
use super::cleanup::{Cleanup, quoted};
use super::zram::Zram;
use crate::experiment::harness::turns::Fault;

const ZSWAP: &str = "/sys/module/zswap/parameters";

/// Swap that is on. Dropping it turns it off and removes what it lay on.
#[derive(Debug)]
pub(crate) struct Swap {
    gauge: Gauge,
    _cleanup: Cleanup,
}

impl Swap {
    /// Turns swap to a new zram device of `bytes` bytes on; zswap is off meanwhile.
    ///
    /// # Errors
    /// [`Fault::Missing`] without zram, this codec, the tools or the right to do that; all is as
    /// before then.
    pub(crate) fn to_zram(bytes: u64, codec: &str) -> Result<Self, Fault> {
        let device = Zram::add(bytes, codec)?;
        let (path, gauge) = (device.path(), Gauge::Zram(device.used_bytes_path()));
        let mut cleanup = device.into_cleanup();
        if fs::read_to_string(Path::new(ZSWAP).join("enabled")).is_ok_and(|on| on.trim() == "Y") {
            set_zswap(&mut cleanup, "enabled", "N")?;
        }
        turn_on(&mut cleanup, &path)?;
        Ok(Self { gauge, _cleanup: cleanup })
    }

    /// Turns zswap with this codec on, and swap to a new file of `bytes` bytes in `folder`.
    ///
    /// # Errors
    /// [`Fault::Missing`] without zswap, its codec, the tools, the right to do that, or a file
    /// system that can swap; all is as before then.
    pub(crate) fn to_zswap(bytes: u64, codec: &str, folder: &Path) -> Result<Self, Fault> {
        let mut cleanup = Cleanup::new()?;
        set_zswap(&mut cleanup, "compressor", codec)?;
        set_zswap(&mut cleanup, "enabled", "Y")?;
        let file = folder.join("swap");
        cleanup.promise(&format!("rm -f {}", quoted(&file)))?;
        write_zeros(&file, bytes)?;
        turn_on(&mut cleanup, &file)?;
        Ok(Self { gauge: Gauge::Zswap, _cleanup: cleanup })
    }

    /// Returns the source for how much memory the compressed pages take.
    pub(crate) fn gauge(&self) -> Gauge {
        self.gauge.clone()
    }
}

/// Tells how much memory compressed pages take.
#[derive(Clone, Debug)]
pub(crate) enum Gauge {
    /// Of one device, by its `mm_stat`.
    Zram(PathBuf),
    /// Of all of zswap.
    Zswap,
}

impl Gauge {
    /// Returns the bytes of memory; nothing if the system does not report it.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Zram(path) => super::zram::used_bytes(&fs::read_to_string(path).ok()?),
            Self::Zswap => bytes(&fs::read_to_string("/proc/meminfo").ok()?, "Zswap:"),
        }
    }
}

/// Sets a parameter of zswap until `cleanup`.
fn set_zswap(cleanup: &mut Cleanup, parameter: &str, value: &str) -> Result<(), Fault> {
    let path = Path::new(ZSWAP).join(parameter);
    let refused = |error: std::io::Error| {
        Fault::Missing(match error.kind() {
            ErrorKind::NotFound => "the kernel has no zswap".to_owned(),
            ErrorKind::PermissionDenied => "only root may configure zswap".to_owned(),
            _ => format!("zswap takes no {parameter} {value}: {error}"),
        })
    };
    let before = fs::read_to_string(&path).map_err(refused)?;
    cleanup.promise(&format!("echo {} >{}", quoted(Path::new(before.trim())), quoted(&path)))?;
    fs::write(&path, value).map_err(refused)
}

/// Makes a device or a file swap, and turns it on until `cleanup`.
fn turn_on(cleanup: &mut Cleanup, path: &Path) -> Result<(), Fault> {
    run(Command::new("mkswap").arg(path))?;
    cleanup.promise(&format!("swapoff {}", quoted(path)))?;
    run(Command::new("swapon").args(["--priority", "32767"]).arg(path)).map(drop)
}

/// Makes a file without holes of its owner only.
fn write_zeros(path: &Path, bytes: u64) -> Result<(), Fault> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path)?;
    let allocated = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes);
    allocated.map_err(|error| {
        Fault::Missing(format!("no room for a swap file of {} MiB: {error}", bytes >> 20))
    })
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::experiment::harness::testing::alone_with_swap;
    use zfold_testing::skip;

    #[test]
    fn memory_of_zswap_is_in_kibibytes() {
        let text = "SwapFree:  7 kB\nZswap:             12 kB\nZswapped:          48 kB\n";
        assert_eq!(bytes(text, "Zswap:"), Some(12 << 10));
        assert_eq!(bytes("MemTotal: 7 kB\n", "Zswap:"), None);
    }

    /// Returns the paths of all swap that is on.
    fn swaps() -> String {
        fs::read_to_string("/proc/swaps").unwrap_or_default()
    }

    /// Turns swap on and off again, unless something is missing for it.
    fn is_off_after(on: impl FnOnce() -> Result<Swap, Fault>) {
        let before = swaps();
        match on() {
            Ok(swap) => {
                assert_ne!(swaps(), before);
                assert!(swap.gauge().bytes().is_some());
            }
            Err(Fault::Missing(reason)) => skip(reason),
            Err(fault) => panic!("{fault:?}"),
        }
    }

    // One test, since the swap that is on belongs to the whole machine.
    #[test]
    fn swap_is_off_with_its_guard_and_nothing_is_left() {
        let _alone = alone_with_swap();
        let before = swaps();
        is_off_after(|| Swap::to_zram(64 << 20, "lz4"));
        assert_eq!(swaps(), before);
        match tempfile::tempdir_in("/var/tmp") {
            Ok(folder) => {
                is_off_after(|| Swap::to_zswap(64 << 20, "lzo", folder.path()));
                assert_eq!(swaps(), before);
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
            }
            Err(error) => skip(format!("no folder in /var/tmp: {error}")),
        }
        match Swap::to_zram(64 << 20, "no-such-codec") {
            Err(Fault::Missing(_)) => assert_eq!(swaps(), before),
            other => panic!("{other:?}"),
        }
    }
}
