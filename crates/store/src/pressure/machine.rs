//! A folder with the files of a machine, for tests.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// It goes with the value.
#[derive(Debug)]
pub(super) struct Machine(TempDir);

impl Machine {
    /// Makes one of which nothing is known.
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// Returns its topmost folder.
    pub(super) fn root(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of a file.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Writes a file, and makes its folders.
    pub(super) fn write(&self, path: &str, text: &str) {
        let file = self.file(path);
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(file, text).expect("written");
    }
}
