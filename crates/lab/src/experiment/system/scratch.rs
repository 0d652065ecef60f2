//! A folder for what an experiment writes, which is gone afterwards, also after Ctrl-C.

use std::io;
use std::path::{Path, PathBuf};

use super::cleanup::{Cleanup, patiently, quoted};

/// A folder of this user only. Dropping it removes it with its contents, and so does the end of
/// this process, whatever caused it.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    _cleanup: Cleanup,
}

impl Scratch {
    /// Returns a new folder.
    ///
    /// # Errors
    /// It cannot be made, or there is no shell to remove it.
    pub(crate) fn new() -> io::Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    /// Returns a new folder in another.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn within(parent: &Path) -> io::Result<Self> {
        let mut cleanup = Cleanup::new()?;
        let folder = tempfile::Builder::new().prefix("zfold-lab-").tempdir_in(parent)?;
        // Programs in it may write a little longer than this process lives.
        cleanup.promise(&patiently(&format!("rm -rf {}", quoted(folder.path()))))?;
        Ok(Self { path: folder.keep(), _cleanup: cleanup })
    }

    /// Returns the path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_goes_with_the_value() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::create_dir(path.join("a")).unwrap();
        std::fs::write(path.join("a/b"), "").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
