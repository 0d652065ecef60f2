//! The FUSE frontend: the device as one file.
//!
//! A file system whose root is not a directory but the device's file is mounted over a regular
//! file, so that a program, or a loop device, opens the device under the path its user chose. The
//! file has one length, no times worth reading and no page cache of its own: every read and write
//! reaches the device, which keeps the pages compressed, and a cache above it would keep them
//! twice. Only pages that a program has mapped are in the cache, for as long.
//!
//! - F1: the file's length is the device's size at that moment; nothing done to the file changes
//!   it. A file opened to be written anew (`O_TRUNC`) is zeros, and as long as before: `cp` and
//!   others skip holes of what they copy to a file that they have emptied.
//! - F2: a request is cut at the length before it reaches the device; a write that begins there
//!   fails with `ENOSPC`, as on a block device.
//! - F3: a mount made is a mount undone: by [`FuseFrontend::umount`] or when the frontend is
//!   dropped.
//!
//! The threads that serve requests are marked as part of the path to storage (`PR_SET_IO_FLUSHER`)
//! where the process may do that: memory that they allocate is then never freed by writing to the
//! very device that they serve.

mod error;
mod file;
#[cfg(test)]
mod tests;

use std::fs::OpenOptions;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use rustix::fs::Access;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

pub use error::FuseError;
use file::DeviceFile;

use crate::disk::Disk;

const DRIVER: &str = "/dev/fuse";
/// `f_type` of a FUSE file system in `statfs`.
const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
/// More threads than this only wait for each other.
const THREADS_MAX: usize = 128;

/// A device mounted as a file. Dropping it unmounts.
///
/// # Examples
/// ```no_run
/// use std::path::Path;
/// use std::sync::Arc;
/// use zfold_disk::Disk;
/// use zfold_disk::fuse::FuseFrontend;
///
/// # fn serve(disk: Arc<Disk>) -> Result<(), Box<dyn std::error::Error>> {
/// let path = Path::new("/mnt/disk.img");
/// let mut mounted = FuseFrontend::mount(disk, path)?;
/// // losetup --direct-io=on --show -f /mnt/disk.img
/// mounted.umount()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FuseFrontend {
    path: PathBuf,
    /// Whether the file below the mount was made for it.
    created: bool,
    /// Taken by the first attempt to unmount.
    unmounter: Option<SessionUnmounter>,
    /// Taken once unmounted.
    server: Option<JoinHandle<io::Result<()>>>,
}

impl FuseFrontend {
    /// Mounts `disk` over the regular file `path` and serves it.
    ///
    /// The mounted file has the owner and mode of the one it covers, less the right to write if
    /// the device is read-only. A file that does not exist is made, for its owner alone, and
    /// removed after unmounting.
    ///
    /// Users without the right to mount are helped by `fusermount3`, which is run before the first
    /// request can come.
    ///
    /// # Errors
    /// [`FuseError`]; nothing is mounted then, and no file is left behind.
    pub fn mount(disk: Arc<Disk>, path: &Path) -> Result<Self, FuseError> {
        check_driver()?;
        let created = create(path)?;
        Self::mount_over(disk, path, created).inspect_err(|_| {
            if created {
                // What is reported is why the mount failed.
                let _ = std::fs::remove_file(path);
            }
        })
    }

    fn mount_over(disk: Arc<Disk>, path: &Path, created: bool) -> Result<Self, FuseError> {
        let path = path.canonicalize().map_err(FuseError::path)?;
        let below = path.metadata().map_err(FuseError::path)?;
        if !below.is_file() {
            return Err(FuseError::NotAFile);
        }
        let magic = rustix::fs::statfs(&path).map_err(|e| FuseError::Path(e.into()))?.f_type;
        let parent = path.parent().and_then(|parent| parent.metadata().ok());
        let is_mount = parent.is_none_or(|parent| parent.dev() != below.dev());
        if is_mount && magic as u64 == FUSE_SUPER_MAGIC {
            return Err(FuseError::Mounted);
        }
        let config = config(&disk);
        let mut session = Session::new(DeviceFile::new(disk, &below), &path, &config)
            .map_err(FuseError::mount)?;
        let unmounter = Some(session.unmount_callable());
        let server = thread::Builder::new()
            .name("zfold-fuse".into())
            .spawn(move || {
                // Threads inherit it. Needs CAP_SYS_RESOURCE; all works without, but for loop
                // mounts under memory pressure.
                let _ = rustix::process::configure_io_flusher_behavior(true);
                session.run()
            })
            .map_err(FuseError::Mount)?;
        Ok(Self { path, created, unmounter, server: Some(server) })
    }

    /// Returns the path of the file, absolute and without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts and waits until the last request has been answered. Does nothing if that is done.
    ///
    /// # Errors
    /// [`FuseError::Busy`] while a program has the file open, [`FuseError::Unmount`]; the file is
    /// served as before. Without the right to unmount, `fusermount3` does it, and a file that is
    /// open stays open for its users: then this waits for them.
    pub fn umount(&mut self) -> Result<(), FuseError> {
        let Some(server) = self.server.take() else { return Ok(()) };
        if let Err(error) = self.try_umount() {
            self.server = Some(server);
            return Err(error);
        }
        // Its error would be one of a mount that is gone.
        let _ = server.join();
        self.remove_created();
        Ok(())
    }

    fn try_umount(&mut self) -> Result<(), FuseError> {
        let done = match self.unmounter.take() {
            Some(mut unmounter) => unmounter.unmount(),
            None => unmount(&self.path, UnmountFlags::NOFOLLOW).map_err(io::Error::from),
        };
        match done {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                Err(FuseError::Busy)
            }
            // Another process unmounted it.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
            done => done.map_err(FuseError::Unmount),
        }
    }

    fn remove_created(&self) {
        let empty =
            |path: &Path| path.symlink_metadata().is_ok_and(|m| m.is_file() && m.len() == 0);
        if self.created && empty(&self.path) {
            // An empty file left behind is no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for FuseFrontend {
    /// Unmounts. A file that is still open disappears from its path at once, and is served to
    /// programs that have it open until they close it or the process ends.
    fn drop(&mut self) {
        if self.umount().is_err() {
            // Nothing more can be done about a mount that will not go.
            let _ = unmount(&self.path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
            self.remove_created();
        }
    }
}

fn check_driver() -> Result<(), FuseError> {
    match rustix::fs::access(DRIVER, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => Ok(()),
        Err(Errno::ACCESS | Errno::PERM) => Err(FuseError::DriverDenied),
        Err(_) => Err(FuseError::NoDriver),
    }
}

/// Makes the file if there is none, and returns whether it did.
fn create(path: &Path) -> Result<bool, FuseError> {
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match new {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(FuseError::path(error)),
    }
}

fn config(disk: &Disk) -> Config {
    let mut config = Config::default();
    // The file's mode applies to all users; without this option it would not be checked.
    config.mount_options =
        vec![MountOption::FSName("zfold".into()), MountOption::DefaultPermissions];
    if disk.read_only() {
        config.mount_options.push(MountOption::RO);
    }
    config.acl = SessionACL::Owner;
    let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    config.n_threads = Some(cpus.min(THREADS_MAX));
    config.clone_fd = true;
    config
}
