//! A regular file or a block device as a backing.
//!
//! Pages that were moved out of memory must not come back into it as page cache, so access is
//! direct (`O_DIRECT`) where the file system can do that. This is tried with a read of the first
//! blocks: at an offset of 512 bytes, and if that is refused, of 4096. Where neither works, access
//! goes through the page cache, and after every write the kernel is advised that the bytes are not
//! needed.
//!
//! What lies in the file is what pages of memory held: who can read the file can read these. So it
//! is one that only its owner can open (`claim`). It begins with a block that says what it is, so
//! that zfold overwrites a file of its own and no other; a device has no such block.
//!
//! # Invariants
//!
//! - F1: a file is locked (`flock`) for as long as it is open, and a device opened exclusively, so
//!   that no other backing, file system or swap area writes to it.
//! - F2: a file is never made shorter, and only the block with the mark is written before the first
//!   `write_at`.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate, fcntl_getfl, fcntl_setfl};
use rustix::io::retry_on_intr;

use super::buffer::AlignedBuffer;
use super::claim::{Claimed, MARK, claim};
use super::contract::{Backing, MAX_ALIGN, MIN_ALIGN, check_access, check_range};
use super::error::BackingError;

/// Length of the block with the mark.
const MARK_LEN: u64 = MAX_ALIGN as u64;

/// How a file becomes a backing.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileOptions {
    len: Option<u64>,
    len_if_new: Option<u64>,
    force: bool,
}

impl FileOptions {
    /// A whole existing file or device whose contents are not needed.
    #[must_use]
    pub const fn new() -> Self {
        Self { len: None, len_if_new: None, force: false }
    }

    /// Sets the bytes for pages. A file that does not exist is created, and one that is shorter
    /// made longer; neither takes room on the disk until it is written, so a full disk shows as an
    /// error of a write. What lies in the file beyond stays as it is.
    #[must_use]
    pub const fn with_len(mut self, len: Option<u64>) -> Self {
        self.len = len;
        self
    }

    /// Sets the bytes for pages of a file that does not exist or is empty, unless
    /// [`with_len`](Self::with_len) says how many.
    #[must_use]
    pub const fn with_len_if_new(mut self, len: Option<u64>) -> Self {
        self.len_if_new = len;
        self
    }

    /// Sets whether the contents of a file that zfold did not make may be lost.
    #[must_use]
    pub const fn with_force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }
}

/// A file or block device, open and locked.
#[derive(Debug)]
pub struct FileBacking {
    path: PathBuf,
    file: File,
    /// Where pages begin, behind the mark.
    start: u64,
    /// In bytes, without the mark.
    len: u64,
    /// In bytes; that of a direct access, or [`MIN_ALIGN`].
    align: usize,
    /// Whether access goes past the page cache.
    direct: bool,
}

impl FileBacking {
    /// Opens the file or block device at `path`, or creates a file for its owner only. A length
    /// that is no multiple of 4096 is rounded down; a file is 4096 bytes longer, for the mark.
    ///
    /// A file must be this user's alone: its owner's, without rights for the group or others,
    /// without another name, and no link. A file with contents and without the mark may be needed,
    /// and is taken only by force. A block device is overwritten without a question.
    ///
    /// # Errors
    ///
    /// [`BackingError`]; a file that was created or made longer stays so.
    pub fn open(path: &Path, options: &FileOptions) -> Result<Self, BackingError> {
        let too_short = |len: u64, needed: u64| {
            let what = "give a length that it can have";
            BackingError::unfit(
                path,
                format_args!("has {len} bytes and needs at least {needed}; {what}"),
            )
        };
        let asked = options.len.map(round_down);
        if asked == Some(0) {
            return Err(too_short(0, MAX_ALIGN as u64));
        }
        let create = asked.or(options.len_if_new).is_some();
        let Claimed { mut file, is_device } = claim(path, create, options.force)?;
        let found =
            file.seek(SeekFrom::End(0)).map_err(|source| BackingError::open(path, &source))?;
        let usual = options.len_if_new.filter(|_| found == 0 && !is_device).map(round_down);
        let (len, start) = (asked.or(usual), if is_device { 0 } else { MARK_LEN });
        let mut whole = found;
        let asked = len.map(|len| len.saturating_add(start));
        if let Some(len) = asked.filter(|&len| len > found && !is_device) {
            file.set_len(len).map_err(|source| {
                BackingError::Unfit(format!(
                    "cannot make {} {len} bytes long: {source}; ask for less or name a file on a \
                     larger disk",
                    path.display()
                ))
            })?;
            whole = len;
        }
        let (has, needed) = (whole.saturating_sub(start), len.unwrap_or(0).max(MAX_ALIGN as u64));
        if has < needed {
            return Err(too_short(has, needed));
        }
        let len = len.unwrap_or(round_down(has));
        let direct = set_direct(&file, start + len);
        let align = direct.unwrap_or(MIN_ALIGN);
        let direct = direct.is_some();
        if !is_device {
            write_mark(&file).map_err(|source| {
                let remedy = "free some space or name another file";
                BackingError::Unfit(format!(
                    "cannot write to {}: {source}; {remedy}",
                    path.display()
                ))
            })?;
        }
        Ok(Self { path: path.to_owned(), file, start, len, align, direct })
    }

    /// Returns the path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Writes the block with the mark, and waits until it is on stable storage: a file that had pages
/// and no mark after a crash would be refused as someone else's.
fn write_mark(file: &File) -> io::Result<()> {
    let mut block = AlignedBuffer::new(MAX_ALIGN);
    block[..MARK.len()].copy_from_slice(MARK);
    file.write_all_at(&block, 0)?;
    file.sync_data()
}

fn round_down(len: u64) -> u64 {
    len / MAX_ALIGN as u64 * MAX_ALIGN as u64
}

/// Makes access direct if the file allows it, and returns the alignment that it then needs.
fn set_direct(file: &File, len: u64) -> Option<usize> {
    let flags = fcntl_getfl(file).ok()?;
    fcntl_setfl(file, flags | OFlags::DIRECT).ok()?;
    let mut buffer = AlignedBuffer::new(2 * MAX_ALIGN);
    for align in [MIN_ALIGN, MAX_ALIGN] {
        // Not at offset 0, which is aligned to anything; the buffer's address is neither.
        let offset = if len > align as u64 { align } else { 0 };
        if file.read_exact_at(&mut buffer[align..][..align], offset as u64).is_ok() {
            return Some(align);
        }
    }
    // What the flags were before they can be again.
    fcntl_setfl(file, flags).ok();
    None
}

impl Backing for FileBacking {
    fn len(&self) -> u64 {
        self.len
    }

    fn align(&self) -> usize {
        self.align
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        check_access(self, offset, out)?;
        self.file.read_exact_at(out, self.start + offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check_access(self, offset, data)?;
        self.file.write_all_at(data, self.start + offset)?;
        if let Some(len) = NonZeroU64::new(data.len() as u64).filter(|_| !self.direct) {
            // The data is in the file; advice that is not taken costs memory only.
            fadvise(&self.file, self.start + offset, Some(len), Advice::DontNeed).ok();
        }
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(retry_on_intr(|| fallocate(&self.file, hole, self.start + offset, len))?)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use zfold_testing::{needs, skip};

    use super::*;

    /// A folder that goes with the value.
    struct Scratch(tempfile::TempDir);

    impl Scratch {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self) -> PathBuf {
            self.0.path().join("pages")
        }
    }

    fn open(path: &Path, len: Option<u64>) -> Result<FileBacking, BackingError> {
        FileBacking::open(path, &FileOptions::new().with_len(len))
    }

    fn filled(len: usize, byte: u8) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::new(len);
        buffer.fill(byte);
        buffer
    }

    fn assert_keeps_bytes(backing: &FileBacking) {
        let align = backing.align();
        for (at, byte) in [(0, 1), (1, 2), (7, 3)] {
            backing.write_at((at * align) as u64, &filled(align, byte)).unwrap();
        }
        backing.sync().unwrap();
        let mut out = filled(8 * align, 9);
        backing.read_at(0, &mut out).unwrap();
        for (at, byte) in [(0, 1), (1, 2), (2, 0), (6, 0), (7, 3)] {
            assert!(out[at * align..][..align].iter().all(|&found| found == byte));
        }
    }

    #[test]
    fn a_file_is_created_and_keeps_bytes() {
        let scratch = Scratch::new();
        let backing = open(&scratch.file(), Some(100_000)).unwrap();
        assert_eq!(backing.len(), 98304);
        let metadata = fs::metadata(scratch.file()).unwrap();
        assert_eq!(metadata.len(), 98304 + MARK_LEN);
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        assert_keeps_bytes(&backing);
    }

    #[test]
    fn a_file_through_the_page_cache_keeps_bytes() {
        let scratch = Scratch::new();
        let mut backing = open(&scratch.file(), Some(1 << 20)).unwrap();
        let flags = fcntl_getfl(&backing.file).unwrap();
        fcntl_setfl(&backing.file, flags - OFlags::DIRECT).unwrap();
        (backing.direct, backing.align) = (false, MIN_ALIGN);
        assert_keeps_bytes(&backing);
    }

    #[test]
    fn a_file_in_memory_keeps_bytes() {
        let shared = Path::new("/dev/shm");
        needs!(shared.is_dir(), "there is no /dev/shm");
        let scratch = Scratch(tempfile::tempdir_in(shared).unwrap());
        assert_keeps_bytes(&open(&scratch.file(), Some(1 << 20)).unwrap());
    }

    #[test]
    fn a_second_user_is_refused_by_name() {
        let scratch = Scratch::new();
        let first = open(&scratch.file(), Some(8192)).unwrap();
        let error = open(&scratch.file(), None).unwrap_err();
        assert!(error.to_string().contains("is in use"), "{error}");
        assert!(error.to_string().starts_with(scratch.file().to_str().unwrap()), "{error}");
        drop(first);
        open(&scratch.file(), None).unwrap();
    }

    #[test]
    fn a_file_that_is_there_is_opened_as_it_is() {
        let scratch = Scratch::new();
        fs::write(scratch.file(), vec![5; 24_096]).unwrap();
        fs::set_permissions(scratch.file(), fs::Permissions::from_mode(0o600)).unwrap();
        let all = FileOptions::new().with_len_if_new(Some(1 << 20)).with_force(true);
        assert_eq!(FileBacking::open(&scratch.file(), &all).unwrap().len(), 16384);
        // A shorter length leaves the rest alone, a longer one adds to it.
        assert_eq!(open(&scratch.file(), Some(8192)).unwrap().len(), 8192);
        assert_eq!(fs::metadata(scratch.file()).unwrap().len(), 24_096);
        let backing = open(&scratch.file(), Some(32768)).unwrap();
        let mut out = AlignedBuffer::new(32768);
        backing.read_at(0, &mut out).unwrap();
        assert!(out[..20_000].iter().all(|&byte| byte == 5));
        assert!(out[20_000..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn pages_lie_behind_the_mark() {
        let scratch = Scratch::new();
        let new = FileOptions::new().with_len_if_new(Some(8192));
        let backing = FileBacking::open(&scratch.file(), &new).unwrap();
        assert_eq!(backing.len(), 8192);
        backing.write_at(4096, &filled(MAX_ALIGN, 7)).unwrap();
        let mut page = filled(MAX_ALIGN, 9);
        assert!(backing.write_at(8192, &page).is_err(), "beyond the end");
        assert!(backing.read_at(u64::MAX - 4095, &mut page).is_err());
        let bytes = fs::read(scratch.file()).unwrap();
        assert!(bytes.starts_with(MARK) && bytes[2 * MAX_ALIGN..] == [7; MAX_ALIGN]);
        backing.read_at(0, &mut page).unwrap();
        assert!(page.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn the_mark_must_reach_stable_storage() {
        // A file that accepts all writes and has no stable storage.
        let null = File::options().write(true).open("/dev/null").unwrap();
        null.write_all_at(MARK, 0).unwrap();
        write_mark(&null).unwrap_err();
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let scratch = Scratch::new();
        let refused = |path: &Path, len, told: &str| {
            let error = open(path, len).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        };
        refused(scratch.0.path(), None, "is neither a file nor a block device");
        refused(Path::new("/dev/null"), None, "is neither a file nor a block device");
        refused(&scratch.file(), None, "give a length to create it");
        assert!(!scratch.file().exists());
        refused(&scratch.file(), Some(4095), "needs at least 4096");
        assert!(!scratch.file().exists());
        refused(&scratch.file(), Some(u64::MAX), "ask for less");
    }

    #[test]
    fn a_file_cut_meanwhile_reads_as_an_error() {
        let scratch = Scratch::new();
        let backing = open(&scratch.file(), Some(16384)).unwrap();
        backing.file.set_len(MARK_LEN + 8192).unwrap();
        let error = backing.read_at(4096, &mut AlignedBuffer::new(8192)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_discarded_range_takes_no_room() {
        let scratch = Scratch::new();
        let backing = open(&scratch.file(), Some(1 << 20)).unwrap();
        backing.write_at(0, &filled(1 << 20, 6)).unwrap();
        backing.sync().unwrap();
        let before = fs::metadata(scratch.file()).unwrap().blocks();
        match backing.discard(0, 1 << 19) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                return skip("no holes in files here");
            }
            result => result.unwrap(),
        }
        let metadata = fs::metadata(scratch.file()).unwrap();
        assert!(metadata.blocks() < before, "{before} to {} blocks", metadata.blocks());
        assert_eq!(metadata.len(), (1 << 20) + MARK_LEN);
        let mut out = AlignedBuffer::new(1 << 19);
        backing.read_at(1 << 19, &mut out).unwrap();
        assert!(out.iter().all(|&byte| byte == 6));
    }
}
