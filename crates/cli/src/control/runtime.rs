//! The runtime directory: where servers put sockets without a given path, and where clients find
//! them.
//!
//! It belongs to one user and no other user may enter it, so a socket in it is that user's. Each
//! server's are named after its process: `PID.sock` for control, `PID.nbd` for NBD.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use zfold_disk::nbd::is_listening;

use crate::shared::exit::Failure;

/// Suffix of control sockets.
const CONTROL: &str = "sock";

/// Suffix of control sockets of runs, which are named after their fronts.
const RUN: &str = "run";

/// Suffix of control sockets of guest servers, and of those at which guests connect.
const GUESTS: &str = "guests";
const GUEST: &str = "guest";

/// Suffix of sockets at which guest servers receive machines.
const RECEIVE: &str = "receive";

/// Suffix of NBD sockets.
const NBD: &str = "nbd";

/// Returns the path of this process's control socket in the runtime directory, which is made.
pub(crate) fn control_path() -> Result<PathBuf, Failure> {
    Ok(make()?.join(format!("{}.{CONTROL}", std::process::id())))
}

/// Returns the path of the control socket of the run whose front has this number.
pub(crate) fn run_path(front: u32) -> Result<PathBuf, Failure> {
    Ok(make()?.join(format!("{front}.{RUN}")))
}

/// Returns the control sockets of this user's runs that answer, with the numbers of their fronts.
///
/// # Errors
/// Same as [`live_controls`].
pub(crate) fn live_runs() -> Result<Vec<(u32, PathBuf)>, Failure> {
    let numbered = |path: PathBuf| {
        let number = path.file_stem()?.to_str()?.parse().ok()?;
        (path.extension()? == RUN && answers(&path)).then_some((number, path))
    };
    let mut runs: Vec<_> = paths()?.into_iter().filter_map(numbered).collect();
    runs.sort();
    Ok(runs)
}

/// Returns the path of the control socket of this process, a guest server.
pub(crate) fn guests_path() -> Result<PathBuf, Failure> {
    Ok(make()?.join(format!("{}.{GUESTS}", std::process::id())))
}

/// Returns the path of the socket at which guests of an image connect to this process.
pub(crate) fn guest_path(image: &str) -> Result<PathBuf, Failure> {
    Ok(make()?.join(format!("{}.{image}.{GUEST}", std::process::id())))
}

/// Returns the path of the socket at which this process, a guest server, receives a machine.
pub(crate) fn receive_path(image: &str) -> Result<PathBuf, Failure> {
    Ok(make()?.join(format!("{}.{image}.{RECEIVE}", std::process::id())))
}

/// Returns the control sockets of this user's guest servers that answer.
///
/// # Errors
/// Same as [`live_controls`].
pub(crate) fn live_guests() -> Result<Vec<PathBuf>, Failure> {
    live(GUESTS)
}

/// Returns the path of this process's NBD socket in the runtime directory, which is made.
pub(crate) fn nbd_path() -> Result<PathBuf, Failure> {
    Ok(make()?.join(format!("{}.{NBD}", std::process::id())))
}

/// Returns the control sockets of this user's servers that answer.
///
/// # Errors
/// The runtime directory is there and not this user's alone: what answers may be anybody's.
pub(crate) fn live_controls() -> Result<Vec<PathBuf>, Failure> {
    live(CONTROL)
}

/// Returns the sockets of this suffix that answer.
fn live(suffix: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut live = paths()?;
    live.retain(|path| path.extension().is_some_and(|of| of == suffix) && answers(path));
    live.sort();
    Ok(live)
}

/// Removes the sockets that killed servers have left.
pub(crate) fn sweep() {
    // A directory that is not this user's alone is refused when something is to be made there.
    for path in paths().unwrap_or_default() {
        let suffixes = [CONTROL, NBD, RUN, GUESTS, GUEST, RECEIVE];
        let ours = path.extension().is_some_and(|of| suffixes.iter().any(|suffix| of == *suffix));
        if ours && is_stale(&path) {
            // Another server may sweep at the same time.
            let _ = fs::remove_file(&path);
        }
    }
}

/// Returns what is in the runtime directory, nothing if it is not there.
fn paths() -> Result<Vec<PathBuf>, Failure> {
    let path = directory();
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => check(&path, found)?,
    }
    let entries = fs::read_dir(&path).map_err(|error| refused(&path, &error.to_string()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// Returns whether a server listens at a socket; one that was stopped does.
fn answers(path: &Path) -> bool {
    is_listening(path).unwrap_or(false)
}

/// Returns whether no server listens at a socket any longer.
fn is_stale(path: &Path) -> bool {
    is_listening(path).is_ok_and(|listens| !listens)
}

fn directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(base) if Path::new(&base).is_absolute() => Path::new(&base).join("zfold"),
        _ => std::env::temp_dir().join(format!("zfold-{}", rustix::process::getuid().as_raw())),
    }
}

/// Makes the directory unless it is there, and checks that it is this user's alone.
fn make() -> Result<PathBuf, Failure> {
    let path = directory();
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(refused(&path, &error.to_string()));
        }
        _ => {}
    }
    check(&path, fs::symlink_metadata(&path))?;
    Ok(path)
}

/// Checks that `path` is a directory of this user's alone.
fn check(path: &Path, found: io::Result<Metadata>) -> Result<(), Failure> {
    let found = found.map_err(|error| refused(path, &error.to_string()))?;
    let mine = found.is_dir() && found.uid() == rustix::process::getuid().as_raw();
    if !mine || found.mode() & 0o077 != 0 {
        return Err(refused(path, "it is not a directory of yours alone"));
    }
    Ok(())
}

fn refused(path: &Path, why: &str) -> Failure {
    let path = path.display();
    Failure::new(format!(
        "cannot use the runtime directory {path}: {why}; set XDG_RUNTIME_DIR, or give --control \
         and --nbd or --sockets"
    ))
}
