//! A loop device over a FUSE file, as a file system or swap uses it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::bench::Bench;
use super::fio::Target;
use super::nbd;
use super::serve::Program;
use crate::experiment::harness::turns::{Fault, Found, in_turns};
use crate::experiment::system::child::{run as run_tool, wait};
use crate::experiment::{Error, Progress};

/// The prefix of the metrics.
const SECTION: &str = "loop device over FUSE";
/// Requests in flight.
const DEPTHS: [u32; 1] = [32];
/// How long the kernel may take to release the file.
const PATIENCE: Duration = Duration::from_secs(2);

/// The side that does not compress comes first, as the base.
const PROGRAMS: [Program; 2] = [Program::Qemu, Program::Zfold("lz4")];

/// Runs the comparison.
///
/// # Errors
/// As [`in_turns`].
pub(super) fn run(
    bench: &Bench<'_>,
    progress: Progress<'_>,
    found: &mut Found,
) -> Result<(), Error> {
    in_turns(bench.settings, (SECTION, progress), &PROGRAMS, found, |program, repeat, samples| {
        let server = program.serve_fuse(bench)?;
        let device = LoopDevice::over(server.path())?;
        let target = Target::Block(device.0.clone());
        nbd::load(bench, target, repeat, &DEPTHS, (*program, SECTION), samples)
    })
}

/// A loop device past the page cache. Dropping it detaches its file.
#[derive(Debug)]
struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Makes a free loop device one of `file`.
    ///
    /// # Errors
    /// [`Fault::Missing`] without the tool or the right to do that.
    fn over(file: &Path) -> Result<Self, Fault> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--direct-io=on", "--sector-size=4096"]).arg(file);
        Ok(Self(PathBuf::from(run_tool(&mut command)?.trim())))
    }

    /// Returns where the kernel names the file; it is there as long as the device has one.
    fn backing_file(&self) -> PathBuf {
        let name = self.0.file_name().unwrap_or_default();
        Path::new("/sys/block").join(name).join("loop/backing_file")
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // The server ends next, and could not unmount a file that is in use.
        let _ = run_tool(Command::new("losetup").arg("--detach").arg(&self.0));
        wait(PATIENCE, || !self.backing_file().exists());
    }
}
