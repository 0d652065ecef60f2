//! A folder with the files of a machine, for tests.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// It goes with the value.
#[derive(Debug)]
pub(crate) struct Machine(TempDir);

impl Machine {
    /// Makes one of which nothing is known.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// Returns its topmost folder.
    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of a file.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Has so much memory available, of 1000 KiB.
    pub(crate) fn available(&self, kib: u32) {
        let text = format!("MemTotal:       1000 kB\nMemAvailable:   {kib} kB\n");
        self.write("proc/meminfo", &text);
    }

    /// Has tasks have waited for so many microseconds since boot.
    pub(super) fn stalled(&self, path: &str, total: u64) {
        let rest = "avg10=0.00 avg60=0.00 avg300=0.00";
        self.write(path, &format!("some {rest} total={total}\n"));
    }

    /// Writes a file, and makes its folders.
    pub(super) fn write(&self, path: &str, text: &str) {
        let file = self.file(path);
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(file, text).expect("written");
    }
}
