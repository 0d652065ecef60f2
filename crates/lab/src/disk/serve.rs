//! The servers that are compared, over NBD and as FUSE files.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::bench::Bench;
use crate::experiment::Error;
use crate::experiment::harness::turns::Fault;
use crate::experiment::system::child::Child;
use crate::experiment::system::scratch::Scratch;
use crate::experiment::system::zfold_run::zfold;

/// A program that serves a block device out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// `zfold disk`, with a codec.
    Zfold(&'static str),
    /// nbdkit's memory plugin, with an allocator.
    Nbdkit(&'static str),
    /// QEMU's storage daemon on a file in a tmpfs.
    Qemu,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Zfold(codec) => format!("zfold disk {codec}"),
            Self::Nbdkit(allocator) => format!("nbdkit memory {allocator}"),
            Self::Qemu => "qemu-storage-daemon tmpfs".to_owned(),
        };
        f.pad(&name)
    }
}

/// A server at work. Dropping it ends the server and removes what it left.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    /// The Unix socket or the FUSE file.
    path: PathBuf,
    /// Whether the path is mounted.
    mounted: bool,
    /// The bytes of QEMU's device.
    _bytes: Option<Scratch>,
}

impl Server {
    /// Returns the Unix socket or the FUSE file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes of memory that are the server's.
    ///
    /// # Errors
    /// [`Fault::Failed`] if it has ended.
    pub(super) fn resident_bytes(&self) -> Result<u64, Fault> {
        self.child.resident_bytes()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.end();
        if self.mounted {
            // It is still mounted only if the server had to be killed.
            let _ = rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::DETACH);
        }
        // The socket is gone already if the server removed it.
        let _ = fs::remove_file(&self.path);
    }
}

impl Program {
    /// Serves the device of the experiment's size over NBD, at a Unix socket.
    ///
    /// # Errors
    /// [`Fault::Missing`] if the program is not there or cannot do that; [`Fault::Failed`] if it
    /// is zfold, which can.
    pub(super) fn serve_nbd(self, bench: &Bench<'_>) -> Result<Server, Fault> {
        let path = bench.path("nbd.sock");
        let (mut command, bytes) = self.command(bench)?;
        match self {
            Self::Zfold(_) => command.args(["--nbd", &format!("unix:{}", path.display())]),
            Self::Nbdkit(allocator) => command
                .arg("-U")
                .arg(&path)
                .arg("memory")
                .args([&format!("size={}", bench.span_bytes), &format!("allocator={allocator}")]),
            Self::Qemu => command.args([
                "--nbd-server",
                &format!("addr.type=unix,addr.path={}", path.display()),
                "--export",
                "type=nbd,id=export,node-name=disk,writable=on",
            ]),
        };
        let ready = || UnixStream::connect(&path).is_ok();
        let child =
            Child::start(&mut command, bench.path("log"), ready).map_err(|fault| {
                match (self, fault) {
                    (Self::Zfold(_), Fault::Missing(reason)) => Error::Other(reason).into(),
                    (_, fault) => fault,
                }
            })?;
        Ok(Server { child, path, mounted: false, _bytes: bytes })
    }

    /// Serves the device of the experiment's size as a FUSE file.
    ///
    /// # Errors
    /// [`Fault::Missing`] if the program is not there or the system lets it not.
    pub(super) fn serve_fuse(self, bench: &Bench<'_>) -> Result<Server, Fault> {
        let path = bench.path("disk.img");
        let (mut command, bytes) = self.command(bench)?;
        File::create(&path)?;
        match self {
            Self::Zfold(_) => command.arg("--fuse").arg(&path),
            Self::Nbdkit(_) => return Err(Fault::Missing("nbdkit serves no files".to_owned())),
            Self::Qemu => command.arg("--export").arg(format!(
                "type=fuse,id=export,node-name=disk,writable=on,mountpoint={}",
                path.display()
            )),
        };
        let ready = || path.metadata().is_ok_and(|file| file.len() == bench.span_bytes);
        let child = Child::start(&mut command, bench.path("log"), ready)?;
        Ok(Server { child, path, mounted: true, _bytes: bytes })
    }

    /// Returns what a result means: wrong bytes of another program are no failure of zfold.
    pub(super) fn judge<T>(self, result: Result<T, Fault>) -> Result<T, Fault> {
        match (self, result) {
            (Self::Nbdkit(_) | Self::Qemu, Err(Fault::Failed(Error::WrongBytes { what, .. }))) => {
                Err(Fault::Flawed(what))
            }
            (_, result) => result,
        }
    }

    /// Returns the command that makes the device, without a frontend, and the folder of its bytes.
    fn command(self, bench: &Bench<'_>) -> Result<(Command, Option<Scratch>), Fault> {
        let bytes = bench.span_bytes;
        Ok(match self {
            Self::Zfold(codec) => {
                let mut command = Command::new(zfold(bench.settings)?);
                command.args(["disk", "--size", &format!("{}KiB", bytes >> 10)]);
                command.args(["--codec", codec]).arg("--control").arg(bench.path("control"));
                (command, None)
            }
            Self::Nbdkit(_) => {
                let mut command = Command::new("nbdkit");
                command.args(["-f", "--exit-with-parent"]);
                (command, None)
            }
            Self::Qemu => {
                let folder = in_tmpfs()?;
                let file = folder.path().join("bytes");
                File::create(&file)?.set_len(bytes)?;
                let mut command = Command::new("qemu-storage-daemon");
                let node = format!("driver=file,node-name=disk,filename={}", file.display());
                command.args(["--blockdev", &node]);
                (command, Some(folder))
            }
        })
    }
}

/// Returns a new folder in memory.
fn in_tmpfs() -> Result<Scratch, Fault> {
    const SHM: &str = "/dev/shm";
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let is_tmpfs = rustix::fs::statfs(SHM).is_ok_and(|fs| fs.f_type as u64 == TMPFS_MAGIC);
    let folder = is_tmpfs.then(|| Scratch::within(Path::new(SHM)).ok()).flatten();
    folder.ok_or_else(|| Fault::Missing(format!("no tmpfs to write to at {SHM}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_bytes_of_others_are_no_failure_and_those_of_zfold_are() {
        let wrong = |program: Program| {
            let error = Error::WrongBytes { experiment: "disk", what: "page 7".to_owned() };
            program.judge::<()>(Err(error.into())).unwrap_err()
        };
        assert!(matches!(wrong(Program::Qemu), Fault::Flawed(what) if what == "page 7"));
        assert!(matches!(wrong(Program::Zfold("lz4")), Fault::Failed(Error::WrongBytes { .. })));
    }
}
