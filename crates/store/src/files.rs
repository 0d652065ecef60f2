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

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, accessat, fstat, fstatfs, open,
    readlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Bytes written at once.
const BUFFER: usize = 1 << 20;

/// Most links in a row, as for Linux.
const LINKS_MAX: usize = 40;

/// Which users may read a file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Its owner.
    Owner,
    /// The users who could read the old file; of a new one, whom the process's mask permits.
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

/// Opens a file for reading what this process then acts on.
///
/// # Errors
/// It is planted or all users may write to it; what [`followed`] or the system says.
pub fn open_believed(path: &Path) -> io::Result<File> {
    let path = followed(path)?;
    let file = File::open(&path)?;
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
    let permitted = if before.uid() == geteuid().as_raw() {
        0o777
    } else {
        // What another owner has permitted is not this user's wish: the mask holds, which nobody
        // can ask for without changing it.
        let empty = create(0o666)?;
        fs::remove_file(part)?;
        empty.metadata()?.mode()
    };
    // Its owner's alone until it has the group for which the mode was meant.
    let file = create(before.mode() & 0o600)?;
    let has_group =
        file.metadata()?.gid() == before.gid() || fchown(&file, None, Some(before.gid())).is_ok();
    let mode = before.mode() & permitted & 0o777;
    let mode = if has_group { mode } else { without_group(mode) };
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(file)
}

/// Returns the mode of a file that has another group than the one for which `mode` was meant: its
/// group and all others may do what both of them could.
fn without_group(mode: u32) -> u32 {
    let both = (mode >> 3) & mode & 0o7;
    mode & 0o700 | both << 3 | both
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
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    /// Another user.
    const OTHER: u32 = 65534;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").mode() & 0o777
    }

    /// Returns whether files can be given to another user, and says if not.
    fn can_plant(test: &str) -> bool {
        let can = geteuid().is_root();
        if !can {
            zfold_testing::skip(test, "only root gives files away");
        }
        can
    }

    fn replaced(path: &Path) -> io::Result<()> {
        replace(path, Readers::AsBefore, |out| out.write_all(b"new"))
    }

    #[test]
    fn links_of_this_user_are_followed_to_their_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        symlink("second", at("first")).expect("a link");
        symlink(at("target"), at("second")).expect("a link");
        assert_eq!(followed(&at("first")).expect("followed"), at("target"));
        fs::write(at("target"), "old").expect("written");
        replaced(&at("first")).expect("replaced");
        assert_eq!(fs::read(at("target")).expect("bytes"), b"new");
        assert!(at("first").is_symlink() && at("second").is_symlink());
        symlink("loop", at("loop")).expect("a link");
        followed(&at("loop")).expect_err("it never ends");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 4);
    }

    #[test]
    fn a_planted_link_is_not_followed() {
        if !can_plant("a_planted_link_is_not_followed") {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        fs::write(&target, "precious").expect("written");
        symlink(&target, &link).expect("a link");
        lchown(&link, Some(OTHER), None).expect("given away");
        for open_to_all in [0o1777, 0o777, 0o775] {
            set_mode(folder.path(), open_to_all);
            for refused in [
                followed(&link).map(drop),
                replaced(&link),
                try_replace(&link),
                open_believed(&link).map(drop),
            ] {
                assert!(refused.expect_err("refused").to_string().contains("another user"));
            }
            assert_eq!(fs::read(&target).expect("bytes"), b"precious");
        }
        // Where only root puts links, and where the folder's owner does.
        set_mode(folder.path(), 0o755);
        replaced(&link).expect("it is not planted");
        set_mode(folder.path(), 0o775);
        lchown(folder.path(), Some(OTHER), None).expect("given away");
        replaced(&link).expect("it is not planted");
    }

    #[test]
    fn a_planted_file_is_not_believed() {
        if !can_plant("a_planted_file_is_not_believed") {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "lies").expect("written");
        lchown(&path, Some(OTHER), None).expect("given away");
        set_mode(folder.path(), 0o1777);
        open_believed(&path).expect_err("refused");
        open_special(&path).expect_err("refused");
        set_mode(folder.path(), 0o755);
        open_believed(&path).expect("it is not planted");
    }

    #[test]
    fn a_file_that_everybody_may_write_to_is_not_believed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "truth").expect("written");
        for open_to_all in [0o666, 0o602] {
            set_mode(&path, open_to_all);
            let refused = open_believed(&path).expect_err("refused");
            assert!(refused.to_string().contains("chmod o-w"), "{refused}");
        }
        for kept in [0o600, 0o644, 0o664] {
            set_mode(&path, kept);
            let mut text = String::new();
            let read = open_believed(&path).and_then(|mut file| file.read_to_string(&mut text));
            assert_eq!((read.expect("believed"), &*text), (5, "truth"));
        }
    }

    #[test]
    fn what_the_system_links_to_is_read() {
        let mut null = open_believed(Path::new("/dev/null")).expect("everybody may write to it");
        assert_eq!(null.read(&mut [0]).expect("read"), 0);
        let (pipe, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(b"said").expect("written");
        drop(writer);
        let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
        let mut text = String::new();
        let opened = open_believed(Path::new(&path));
        opened.and_then(|mut file| file.read_to_string(&mut text)).expect("read");
        assert_eq!(text, "said");
    }

    #[test]
    fn no_more_can_read_a_file_than_the_one_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        for kept in [0o600, 0o640, 0o666] {
            fs::write(&path, "old").expect("written");
            set_mode(&path, kept);
            replaced(&path).expect("replaced");
            assert_eq!(mode(&path), kept, "{kept:o}");
            replace(&path, Readers::Owner, |out| out.write_all(b"new")).expect("replaced");
            assert_eq!(mode(&path), 0o600);
        }
        if can_plant("no_more_can_read_a_file_than_the_one_before") {
            // Of another user, who permits more than the mask: that is not this user's wish.
            set_mode(&path, 0o666);
            lchown(&path, Some(OTHER), None).expect("given away");
            let new = folder.path().join("new");
            File::create(&new).expect("made");
            replaced(&path).expect("replaced");
            assert_eq!(mode(&path), mode(&new));
        }
    }

    #[test]
    fn a_file_keeps_its_group() {
        if !can_plant("a_file_keeps_its_group") {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "old").expect("written");
        lchown(&path, None, Some(OTHER)).expect("given to a group");
        set_mode(&path, 0o640);
        replaced(&path).expect("replaced");
        let found = fs::metadata(&path).expect("it is there");
        assert_eq!((found.gid(), found.mode() & 0o777), (OTHER, 0o640));
    }

    #[test]
    fn another_group_may_do_what_it_could() {
        let modes = [0o640, 0o644, 0o664, 0o604, 0o600, 0o666, 0o750].map(without_group);
        assert_eq!(modes, [0o600, 0o644, 0o644, 0o600, 0o600, 0o666, 0o700]);
    }

    #[test]
    fn a_folder_that_cannot_be_synced_is_no_failure() {
        for errno in [Errno::INVAL, Errno::ACCESS, Errno::NOTSUP, Errno::NOSYS] {
            synced(Err(errno.into())).expect("the file is there");
        }
        for errno in [Errno::IO, Errno::NOSPC] {
            synced(Err(errno.into())).expect_err("its name may be lost");
        }
        // A file that cannot be synced at all.
        sync_folder(Path::new("/dev/null")).expect("no failure");
        sync_folder(Path::new("/")).expect("synced");
    }

    #[test]
    fn what_can_be_opened_later_is_known_before() {
        check_special(Path::new("/dev/null")).expect("everybody may write to it");
        let (pipe, _writer) = io::pipe().expect("a pipe");
        let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
        check_special(Path::new(&path)).expect("it is this user's");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        open_special(&path).expect_err("no file");
        check_special(&path).expect_err("no file");
        if can_plant("what_can_be_opened_later_is_known_before") {
            let path = folder.path().join("fifo");
            let (fifo, mode) = (FileType::Fifo, Mode::from_raw_mode(0o666));
            rustix::fs::mknodat(CWD, &path, fifo, mode, 0).expect("a fifo");
            // It has no reader, and is not waited for.
            check_special(&path).expect("it is this user's");
            lchown(&path, Some(OTHER), None).expect("given away");
            set_mode(folder.path(), 0o1777);
            check_special(&path).expect_err("it is planted");
        }
    }
}
