//! A folder for what an experiment writes.

use std::io;

use tempfile::TempDir;

/// Returns a new folder of this user only, which is removed with the value.
///
/// # Errors
/// It cannot be made.
pub(crate) fn scratch() -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("zfold-lab-").tempdir()
}
