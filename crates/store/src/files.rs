//! Files by name, in folders where others may have been first.
//!
//! A user who may write to a folder, such as `/tmp`, can put a link or a file there under a name
//! that another program is about to use. An entry of such a folder is *planted* if it belongs
//! neither to this user nor to root nor to the owner of the folder, as for Linux's
//! `protected_symlinks` and `protected_regular`, which do not cover lookups and renames by a
//! program itself.
//!
//! - T1: no planted link is followed, and nothing planted is believed or written to.
//! - T2: a file that zfold trusts is checked by the descriptor by which it is read, and must not be
//!   writable for all users.
//! - T3: a new file appears complete, and is readable only for users who could read the old one.
//! - T4: to open a file for reading waits for no other program: the writer of a FIFO may never
//!   come. What is read of a pipe or a device has an end or a bound.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, SeekFrom, accessat,
    fcntl_getfl, fcntl_setfl, fstat, fstatfs, open, readlinkat, seek,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Bytes written at once.
const BUFFER: usize = 1 << 20;

/// Most links in a row, as for Linux.
const LINKS_MAX: usize = 40;

/// `f_type` of the file system in which pipes without a name are.
const PIPEFS_MAGIC: u64 = 0x5049_5045;

/// Which users may read a file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Its owner.
    Owner,
    /// The users who could read the old file, if it has the same owner and group; of a new one,
    /// whom the process's mask permits.
    AsBefore,
}

/// Returns where `path` leads: its last name's links are followed one by one, which need not lead
/// to anything. A link of the kernel's own, such as `/dev/stdout`, is as far as it goes.
///
/// # Errors
/// A link is planted; the system's error.
pub fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = match open(&path, flags, Mode::empty()) {
            Ok(link) => link,
            Err(Errno::NOENT) => return Ok(path),
            Err(errno) => return Err(errno.into()),
        };
        let found = fstat(&link)?;
        let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
        if !is_link || fstatfs(&link)?.f_type == PROC_SUPER_MAGIC {
            return Ok(path);
        }
        if is_planted(&path, found.st_uid)? {
            return Err(io::Error::other(
                "it is a link that another user made, in a folder where others may write; name \
                 what it should lead to",
            ));
        }
        let target = readlinkat(&link, c"", Vec::new())?;
        path = folder(&path).join(OsStr::from_bytes(target.as_bytes()));
    }
    Err(Errno::LOOP.into())
}

/// Opens for reading what a user names: a file, a device, or a pipe that a shell has made, such as
/// `<(COMMAND)` or `/dev/stdin`. Of the last two the caller bounds what it reads (T4).
///
/// # Errors
/// It is a folder, a socket or a FIFO; the system's error.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = File::options();
    let opened = options.read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => io::Error::other("it is a socket or a device without driver"),
        _ => error,
    })?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    // A pipe without a name has, or had, a writer from the beginning.
    if kind.is_fifo() && fstatfs(&file)?.f_type as u64 != PIPEFS_MAGIC {
        return Err(io::Error::other("it is a FIFO, whose writer might never come: name a file"));
    }
    // It is read as if it had been opened without: what a pipe does not have yet is waited for.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Returns the next range of a file's bytes, from `at` on and before `end`, that holds data; `None`
/// if there is none. A file system without holes has data everywhere.
///
/// # Errors
/// The system's.
pub fn next_data(file: &File, at: u64, end: u64) -> io::Result<Option<Range<u64>>> {
    if at >= end {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::NOTSUP) => at,
        Err(errno) => return Err(errno.into()),
    };
    if start >= end {
        return Ok(None);
    }
    let stop = match seek(file, SeekFrom::Hole(start)) {
        Ok(stop) => stop.min(end),
        Err(Errno::INVAL | Errno::NOTSUP | Errno::NXIO) => end,
        Err(errno) => return Err(errno.into()),
    };
    Ok(Some(start..stop))
}

/// Opens a file for reading what this process then acts on, as [`open_to_read`] does.
///
/// # Errors
/// It is planted or all users may write to it; what [`followed`] or [`open_to_read`] says.
pub fn open_believed(path: &Path) -> io::Result<File> {
    let path = followed(path)?;
    let file = open_to_read(&path)?;
    let found = file.metadata()?;
    refuse_planted(&path, &found)?;
    if found.is_file() && found.mode() & 0o002 != 0 {
        return Err(io::Error::other(
            "everybody may write to it: check its contents, then chmod o-w",
        ));
    }
    Ok(file)
}

/// Opens what is there and no file, such as a terminal or a pipe, for writing.
///
/// # Errors
/// It is planted; the system's error.
pub fn open_special(path: &Path) -> io::Result<File> {
    // To append: the descriptor of a log may be what it leads to.
    let file = File::options().append(true).open(path)?;
    refuse_planted(path, &file.metadata()?)?;
    Ok(file)
}

/// Tries whether [`open_special`] could open what is at `path`; waits for no reader of a pipe.
///
/// # Errors
/// What [`open_special`] would say.
pub fn check_special(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    refuse_planted(path, &found)?;
    if found.file_type().is_socket() {
        return Err(io::Error::other("it is a socket"));
    }
    Ok(accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?)
}

/// Lets `write` write a file that replaces the one at `path` as a whole, once it is complete and on
/// stable storage. A link stays a link, and its target is replaced.
///
/// # Errors
/// What [`replaceable`], `write` or the system says; the file at `path` is then as it was.
pub fn replace<T, E: From<io::Error>>(
    path: &Path,
    readers: Readers,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    replace_or(path, readers, write, |path, _| path.to_owned())
}

/// As [`replace`]; `target` says, once it is written, which file of that folder is replaced.
pub(crate) fn replace_or<T, E: From<io::Error>>(
    path: &Path,
    readers: Readers,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
    target: impl FnOnce(&Path, &T) -> PathBuf,
) -> Result<T, E> {
    let path = &replaceable(path)?;
    let part = part(path);
    let written = (|| {
        let file = create_part(&part, path, readers)?;
        let mut out = BufWriter::with_capacity(BUFFER, file);
        let result = write(&mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&part, replaceable(&target(path, &result))?)?;
        sync_folder(folder(path))?;
        Ok(result)
    })();
    if written.is_err() {
        // It may not be there; the error that counts is the first one.
        let _ = fs::remove_file(&part);
    }
    written
}

/// Tries whether a file could be written beside `path` and replace it; leaves nothing behind.
///
/// # Errors
/// What [`replace`] would say.
pub fn try_replace(path: &Path) -> io::Result<()> {
    let path = replaceable(path)?;
    let part = part(&path);
    create_part(&part, &path, Readers::Owner).and_then(|_| fs::remove_file(part))
}

/// Returns the path of what would be replaced at `path`, links followed; nothing need be there.
///
/// # Errors
/// There is something that is not a regular file, such as a device or a pipe, or a link to nothing.
pub fn replaceable(path: &Path) -> io::Result<PathBuf> {
    let found = followed(path)?;
    match fs::symlink_metadata(&found) {
        Ok(meta) if meta.is_file() => Ok(found),
        Ok(_) => Err(io::Error::other("it is not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match found == path {
            true => Ok(found),
            false => Err(io::Error::other("it is a link to a file that does not exist")),
        },
        Err(error) => Err(error),
    }
}

/// Returns the name of a file with something added.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    path.with_file_name(name)
}

fn part(path: &Path) -> PathBuf {
    beside(path, &format!(".part{}", std::process::id()))
}

/// Lets the names in a folder, too, survive, where its file system has a way to do so.
fn sync_folder(folder: &Path) -> io::Result<()> {
    synced(File::open(folder).and_then(|folder| folder.sync_all()))
}

/// Returns the error of syncing a folder, if it is one. The file is there and whole: one that
/// cannot be asked for more, as some of FUSE and folders that may be written and not read, is none.
fn synced(result: io::Result<()>) -> io::Result<()> {
    match result.as_ref().map_err(Errno::from_io_error) {
        Err(Some(Errno::INVAL | Errno::ACCESS | Errno::NOTSUP | Errno::NOSYS)) => Ok(()),
        _ => result,
    }
}

/// Creates the file that is to replace the one at `path` (T3).
fn create_part(part: &Path, path: &Path, readers: Readers) -> io::Result<File> {
    // What is left of a process of this number, or was put there: it is not written to.
    let _ = fs::remove_file(part);
    let create = |mode| File::options().write(true).create_new(true).mode(mode).open(part);
    let before = match (readers, fs::symlink_metadata(path)) {
        (Readers::Owner, _) => return create(0o600),
        (Readers::AsBefore, Err(_)) => return create(0o666),
        (Readers::AsBefore, Ok(before)) => before,
    };
    let file = create(0o600)?;
    let now = file.metadata()?;
    let has_group = || now.gid() == before.gid() || fchown(&file, None, Some(before.gid())).is_ok();
    // The mode was meant for that owner and that group.
    if now.uid() == before.uid() && has_group() {
        file.set_permissions(fs::Permissions::from_mode(before.mode() & 0o777))?;
    }
    Ok(file)
}

/// Refuses what is planted (T1).
fn refuse_planted(path: &Path, found: &Metadata) -> io::Result<()> {
    if is_planted(path, found.uid())? {
        return Err(io::Error::other(
            "another user made it, in a folder where others may write; name one of yours",
        ));
    }
    Ok(())
}

/// Returns whether something of `owner` at `path` is planted.
fn is_planted(path: &Path, owner: u32) -> io::Result<bool> {
    if owner == 0 || owner == geteuid().as_raw() {
        return Ok(false);
    }
    let folder = fs::metadata(folder(path))?;
    Ok(folder.mode() & 0o022 != 0 && folder.uid() != owner)
}

/// Returns the folder in which `path` is a name.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests;
