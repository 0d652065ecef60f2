//! Checks whether a file or device may be overwritten with the contents of memory.
//!
//! - G1: it is opened once and locked, and every check uses that descriptor.
//! - G2: a file is this user's alone: others can neither read its later contents, nor change them,
//!   nor reach them by another name. Nothing overrides this.
//! - G3: a file whose contents may be needed, that is, one with data and without the mark in front,
//!   is taken only on request. A device has no mark: to name one is to give it away.
//! - G4: no link leads to a file. Links may lead to devices, as those in `/dev/disk` do, unless
//!   they are planted.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, SeekFrom, flock, seek};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::error::BackingError;
use crate::files::followed;

/// The beginning of a backing file. It says nothing about the pages, which no other process can
/// use.
pub(super) const MARK: &[u8] = b"zfold backing file: pages that left the memory of a process\n";

const IN_USE: &str = "is in use; end the process that uses it, or name another file";
const NO_FILE: &str = "is neither a file nor a block device; name one of these";
const LINK: &str = "is a symbolic link, which others may have made; name what it leads to";
const OWNER: &str = "belongs to another user, who could read what is written there; name a file of \
                     yours, or one that does not exist";
const NAMES: &str = "has another name by which it can be opened (a hard link); name a file that \
                     does not exist";

/// A file or device that may be overwritten, open and locked.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) file: File,
    pub(super) is_device: bool,
}

/// Opens the file or device at `path`, or a new file if there is none and `create` says so; `force`
/// takes a file whatever it holds.
///
/// # Errors
/// [`BackingError`]; the file is unchanged.
pub(super) fn claim(path: &Path, create: bool, force: bool) -> Result<Claimed, BackingError> {
    let cannot = |source| BackingError::open(path, &source);
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && create => {
            return claim_new(path);
        }
        found => found.map_err(cannot)?.file_type(),
    };
    if found.is_symlink() {
        let target = followed(path).map_err(cannot)?;
        return match fs::symlink_metadata(&target) {
            Ok(found) if found.file_type().is_block_device() => claim_device(path, &target),
            _ => Err(BackingError::unfit(path, LINK)),
        };
    }
    if found.is_block_device() {
        return claim_device(path, path);
    }
    if !found.is_file() {
        return Err(BackingError::unfit(path, NO_FILE));
    }
    let file = open(path, path, OFlags::empty(), false)?;
    let found = file.metadata().map_err(cannot)?;
    if !found.is_file() {
        return Err(BackingError::unfit(path, NO_FILE));
    }
    // First, so that nobody is told to change the mode of a file that is not for this.
    if !force && !is_ours(&file, &found).map_err(cannot)? {
        return Err(BackingError::Foreign { path: path.to_owned() });
    }
    refuse_exposed(path, &found, false)?;
    lock(path, &file)?;
    Ok(Claimed { file, is_device: false })
}

/// Creates a file, for its owner only.
fn claim_new(path: &Path) -> Result<Claimed, BackingError> {
    let file = open(path, path, OFlags::empty(), true)?;
    let found = file.metadata().map_err(|source| BackingError::open(path, &source))?;
    // There are file systems without modes.
    refuse_exposed(path, &found, true)?;
    lock(path, &file)?;
    Ok(Claimed { file, is_device: false })
}

/// Opens the device at `target`, which `path` names, exclusively: one that is mounted or a swap
/// area is refused.
fn claim_device(path: &Path, target: &Path) -> Result<Claimed, BackingError> {
    let file = open(path, target, OFlags::EXCL, false)?;
    let found = file.metadata().map_err(|source| BackingError::open(path, &source))?;
    // What took the place of a device just now is none.
    if !found.file_type().is_block_device() {
        return Err(BackingError::unfit(path, NO_FILE));
    }
    lock(path, &file)?;
    Ok(Claimed { file, is_device: true })
}

fn open(path: &Path, target: &Path, flags: OFlags, new: bool) -> Result<File, BackingError> {
    // A fifo would block without O_NONBLOCK, which files and devices ignore.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(new).mode(0o600);
    let opened = options.custom_flags(flags.bits().cast_signed()).open(target);
    opened.map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::BUSY) => BackingError::unfit(path, IN_USE),
        Some(Errno::LOOP) => BackingError::unfit(path, LINK),
        Some(Errno::ISDIR) => BackingError::unfit(path, NO_FILE),
        // Somebody who may read it may not write to it.
        Some(Errno::ACCESS) if !new && is_of_others(target) => BackingError::unfit(path, OWNER),
        _ => BackingError::open(path, &source),
    })
}

fn lock(path: &Path, file: &File) -> Result<(), BackingError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(BackingError::unfit(path, IN_USE)),
        Err(errno) => Err(BackingError::open(path, &errno.into())),
    }
}

fn is_of_others(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() != geteuid().as_raw())
}

/// Refuses a file that is not this user's alone (G2). One that was just created is this user's even
/// where root is somebody else to the file system.
fn refuse_exposed(path: &Path, found: &Metadata, is_new: bool) -> Result<(), BackingError> {
    if !is_new && found.uid() != geteuid().as_raw() {
        Err(BackingError::unfit(path, OWNER))
    } else if found.mode() & 0o077 != 0 {
        let what = format_args!(
            "is open to other users, who could read what is written there; chmod 600 {}, or name a \
             file that does not exist",
            path.display()
        );
        Err(BackingError::unfit(path, what))
    } else if found.nlink() > 1 {
        Err(BackingError::unfit(path, NAMES))
    } else {
        Ok(())
    }
}

/// Returns whether nobody misses what is in a file (G3): it has no data, or the mark.
fn is_ours(file: &File, found: &Metadata) -> io::Result<bool> {
    // Not by its blocks: a short file may lie in its inode.
    if found.len() == 0 || seek(file, SeekFrom::Data(0)) == Err(Errno::NXIO) {
        return Ok(true);
    }
    let mut start = [0; MARK.len()];
    match file.read_exact_at(&mut start, 0) {
        Ok(()) => Ok(start == MARK),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::super::file::{FileBacking, FileOptions};
    use super::*;

    fn open(path: &Path, force: bool) -> Result<FileBacking, BackingError> {
        let options = FileOptions::new().with_len(Some(1 << 20)).with_force(force);
        FileBacking::open(path, &options)
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    }

    /// Makes a file as somebody would who wants zfold to take it.
    fn bait(path: &Path) {
        fs::write(path, MARK).expect("written");
        set_mode(path, 0o600);
    }

    #[test]
    fn a_file_that_others_may_open_is_refused_whatever_it_holds() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("cold"), folder.path().join("other"));
        bait(&path);
        let refused = |what: &str| {
            for force in [false, true] {
                let error = open(&path, force).expect_err("refused").to_string();
                assert!(error.contains(what), "{error}");
            }
            assert_eq!(fs::read(&path).expect("bytes"), MARK, "it was left alone");
        };
        for mode in [0o666, 0o644, 0o604, 0o620, 0o610, 0o601] {
            set_mode(&path, mode);
            refused("chmod 600");
        }
        set_mode(&path, 0o600);
        fs::hard_link(&path, &other).expect("a second name");
        refused("has another name");
        fs::remove_file(other).expect("removed");
        drop(open(&path, false).expect("it is this user's alone"));
        bait(&path);
        zfold_testing::needs!(
            std::os::unix::fs::chown(&path, Some(65534), None).is_ok(),
            "only root gives files away"
        );
        refused("belongs to another user");
    }

    #[test]
    fn no_link_leads_to_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, target) = (folder.path().join("cold"), folder.path().join("target"));
        symlink(&target, &path).expect("a link");
        // There, and nowhere yet.
        for made in [false, true] {
            if made {
                bait(&target);
            }
            let refused = open(&path, true).expect_err("refused");
            assert!(refused.to_string().contains("symbolic link"), "{refused}");
            assert_eq!(target.exists(), made);
        }
    }

    #[test]
    fn a_file_that_somebody_may_miss_is_taken_by_force_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("thesis");
        // Also one that is shorter than the mark, and one that may lie in its inode.
        for text in [&b"years of work\n".repeat(2000)[..], b"x", &MARK[..7]] {
            fs::write(&path, text).expect("written");
            set_mode(&path, 0o600);
            let refused = open(&path, false).expect_err("refused");
            assert!(matches!(refused, BackingError::Foreign { .. }), "{refused}");
            let remedy = "use force to overwrite it (files of earlier versions have no mark)";
            assert!(refused.to_string().contains(remedy), "{refused}");
            assert_eq!(fs::read(&path).expect("bytes"), text);
            drop(open(&path, true).expect("it was asked for"));
            drop(open(&path, false).expect("now it has the mark"));
        }
    }

    #[test]
    fn what_has_no_data_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, len) in [("empty", 0), ("sparse", 1 << 20)] {
            let path = folder.path().join(name);
            File::create(&path).and_then(|file| file.set_len(len)).expect("made");
            set_mode(&path, 0o600);
            drop(open(&path, false).expect(name));
            drop(open(&path, false).expect("again"));
        }
    }
}
