//! A device as the kernel sees it: the file that `zfold disk` serves, and a loop device over it.
//!
//! It is taken down from the top in any case; with a server that was killed, nothing of this
//! waits for it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use zfold_testing::skip::installed;
use zfold_testing::wait_until;

use crate::server::{Server, text};
use crate::tools::{Background, attempt, devices, run};

/// How the device becomes a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Frontend {
    /// By the server itself.
    Fuse,
    /// By libnbd's `nbdfuse`, a client of NBD.
    Nbdfuse,
}

/// A served device and what lies above it.
pub(crate) struct Looped {
    /// Path of the loop device.
    pub(crate) device: String,
    /// Where a file system on it is mounted.
    pub(crate) at: PathBuf,
    /// The device as a file.
    file: PathBuf,
    nbdfuse: Option<Background>,
    server: Option<Server>,
    /// The runtime directory of the server, and the scratch of the test.
    pub(crate) dir: TempDir,
}

impl Looped {
    /// Serves a device of `size`, or says what is missing for it or for the `programs`.
    pub(crate) fn new(frontend: Frontend, size: &str, programs: &[&str]) -> Option<Self> {
        let needed: &[&str] = match frontend {
            Frontend::Fuse => &["losetup", "fusermount3"],
            Frontend::Nbdfuse => &["losetup", "fusermount3", "nbdfuse"],
        };
        if !devices() || !installed(&[needed, programs].concat()) {
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().join("mnt");
        fs::create_dir(&at).expect("a directory");
        let (device, nbdfuse, server) = (String::new(), None, None);
        let mut on = Self { device, at, file: PathBuf::new(), nbdfuse, server, dir };
        on.serve(frontend, size);
        let file = text(&on.file).to_owned();
        on.device = run("losetup", &["--direct-io=on", "--show", "-f", &file]).trim().to_owned();
        Some(on)
    }

    /// Starts a server where the last one was.
    pub(crate) fn serve(&mut self, frontend: Frontend, size: &str) {
        let (path, socket) = (self.dir.path().to_owned(), self.dir.path().join("nbd.sock"));
        self.file = path.join("disk.img");
        let nbd = format!("unix:{}", socket.display());
        let mut line = vec!["--size", size, "--nbd", &nbd];
        let file = self.file.clone();
        if frontend == Frontend::Fuse {
            line.extend(["--fuse", text(&file)]);
        }
        let server = Server::start(&path, &line);
        if frontend == Frontend::Nbdfuse {
            let mount = path.join("nbdfuse");
            fs::create_dir_all(&mount).expect("a directory");
            self.file = mount.join("disk");
            let uri = format!("nbd+unix:///?socket={}", socket.display());
            self.nbdfuse =
                Some(Background::start(&path, "nbdfuse", &[text(&self.file), uri.as_str()]));
            wait_until("nbdfuse shows its file", || self.file.exists());
        }
        self.server = Some(server);
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("it serves")
    }

    /// Kills the server at once.
    pub(crate) fn kill_server(&mut self) {
        self.server.take().expect("it serves").kill();
    }

    /// Mounts the file system of this kind that is on the device.
    pub(crate) fn mount(&self, kind: &str) {
        run("mount", &["-t", kind, "-o", "discard", &self.device, text(&self.at)]);
    }

    /// Unmounts the file system.
    pub(crate) fn umount(&self) {
        run("umount", &[text(&self.at)]);
    }

    /// Returns what `zfold stat` says of the device.
    pub(crate) fn stat(&self) -> Value {
        self.server().stat()["disks"][0].take()
    }

    /// Returns the number of pages that the device holds, and of bytes of memory for them.
    pub(crate) fn held(&self) -> (u64, u64) {
        let stat = self.stat();
        let number = |value: &Value| value.as_u64().expect("a number");
        (number(&stat["zswap"]["stored_pages"]), number(&stat["mm_stat"]["mem_used_total"]))
    }

    /// Takes everything down but the directory; a server that is there ends in order.
    pub(crate) fn finish(mut self) {
        self.take_down();
        if let Some(server) = self.server.take() {
            let (status, said) = server.stop();
            assert_eq!(status, Some(0), "{said:?}");
        }
        assert!(!is_mounted(self.dir.path()), "nothing stays mounted");
    }

    /// Removes what is mounted and attached. Nothing of it may be there any more, or yet.
    pub(crate) fn take_down(&mut self) {
        if is_mounted(&self.at) {
            let _ = attempt("umount", &["-l", text(&self.at)]);
        }
        if !self.device.is_empty() {
            let _ = attempt("losetup", &["-d", &self.device]);
            self.device.clear();
        }
        if let Some(nbdfuse) = self.nbdfuse.take() {
            let directory = self.file.parent().expect("a directory");
            let _ = attempt("umount", &["-l", text(directory)]);
            drop(nbdfuse);
        } else if self.server.is_none() && is_mounted(&self.file) {
            let _ = attempt("umount", &["-l", text(&self.file)]);
        }
    }
}

impl Drop for Looped {
    fn drop(&mut self) {
        self.take_down();
        if self.server.take().is_some() && is_mounted(&self.file) {
            let _ = attempt("umount", &["-l", text(&self.file)]);
        }
    }
}

/// Returns whether something is mounted at or below `path`.
fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("a list of mounts");
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    places.map(Path::new).any(|place| place.starts_with(path))
}
