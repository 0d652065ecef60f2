//! The other programs of zfold, which this one starts.

use std::env;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Returns where a program of zfold is: beside this one, or else in a folder of `PATH`; `None`
/// without it.
pub fn find(name: &str) -> Option<PathBuf> {
    let own = env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    // An empty one would be the folder that this process happens to be in.
    let folders = env::split_paths(&path).filter(|folder| folder.is_absolute());
    beside.into_iter().chain(folders).map(|folder| folder.join(name)).find(|path| is_program(path))
}

/// Returns whether there is an executable file.
pub fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
