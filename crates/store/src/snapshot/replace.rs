//! Replacing a file as a whole, or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Bytes written at once.
const BUFFER: usize = 1 << 20;

/// Lets `write` write a file of what memory held, which only its owner may read. The file at `path`
/// is replaced as a whole once the new one is complete and on stable storage; a link stays a link,
/// and what it leads to is replaced.
///
/// # Errors
/// What [`replaceable`], `write` or the system says; the file at `path` is then as it was.
pub fn replace_file<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    replace(path, write, |path, _| path.to_owned())
}

/// As [`replace_file`]; `target` says, once it is written, which file of that folder is replaced.
pub(super) fn replace<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
    target: impl FnOnce(&Path, &T) -> PathBuf,
) -> Result<T, E> {
    let path = &replaceable(path)?;
    let part = beside(path, &format!(".part{}", std::process::id()));
    let written = (|| {
        // What is left of a process of this number, or was put there: it is not written to.
        let _ = fs::remove_file(&part);
        let file = File::options().write(true).create_new(true).mode(0o600).open(&part)?;
        let mut out = BufWriter::with_capacity(BUFFER, file);
        let result = write(&mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&part, replaceable(&target(path, &result))?)?;
        // The name, too, must survive.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(result)
    })();
    if written.is_err() {
        // It may not be there; the error that counts is the first one.
        let _ = fs::remove_file(&part);
    }
    written
}

/// Returns the path of what would be replaced at `path`, links followed; nothing need be there.
///
/// # Errors
/// There is something that is not a regular file, such as a device or a pipe, or a link to nothing.
pub fn replaceable(path: &Path) -> io::Result<PathBuf> {
    let path = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path.to_owned()),
        _ => fs::canonicalize(path)?,
    };
    if fs::metadata(&path)?.is_file() {
        return Ok(path);
    }
    Err(io::Error::other("it is not a regular file"))
}

/// Returns the name of a file with something added.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    path.with_file_name(name)
}
