//! A regular file or a block device as a backing.
//!
//! Pages that were moved out of memory must not come back into it as page cache, so access is
//! direct (`O_DIRECT`) where the file system can do that. This is tried with a read of the first
//! blocks: at an offset of 512 bytes, and if that is refused, of 4096. Where neither works, access
//! is through the page cache, which is told after every write that the bytes are not needed.
//!
//! What lies in the file is what pages of memory held: who can read the file can read these. A
//! file that is created here is its owner's alone; the mode of one that was there stays.
//!
//! # Invariants
//!
//! - F1: a file is locked (`flock`) for as long as it is open, and a device opened exclusively, so
//!   that no other backing, file system or swap area writes to it.
//! - F2: a file is never made shorter, and nothing is written before the first `write_at`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    Advice, FallocateFlags, FlockOperation, OFlags, fadvise, fallocate, fcntl_getfl, fcntl_setfl,
    flock,
};
use rustix::io::Errno;

use super::buffer::AlignedBuffer;
use super::contract::{Backing, MAX_ALIGN, MIN_ALIGN, check_access, check_range};
use super::error::BackingError;

/// A file or block device, open and locked.
#[derive(Debug)]
pub struct FileBacking {
    path: PathBuf,
    file: File,
    /// In bytes.
    len: u64,
    /// In bytes; that of a direct access, or [`MIN_ALIGN`].
    align: usize,
    /// Whether access goes past the page cache.
    direct: bool,
}

impl FileBacking {
    /// Opens the file or block device at `path` with `len` bytes, or all that it has. A length
    /// that is no multiple of 4096 is rounded down.
    ///
    /// With a length, a file that does not exist is created, readable for its owner only, and one
    /// that is shorter is made longer. Neither takes room on the disk until it is written, so a
    /// full disk shows as an error of a write. What lies in the file beyond `len` is left alone.
    ///
    /// # Errors
    ///
    /// [`BackingError`]; a file that was created or made longer stays so.
    pub fn open(path: &Path, len: Option<u64>) -> Result<Self, BackingError> {
        let len = len.map(round_down);
        let (mut file, is_device) = open_locked(path, len.is_some())?;
        let found = file.seek(SeekFrom::End(0)).map_err(|source| cannot_open(path, source))?;
        if let Some(len) = len.filter(|&len| len > found && !is_device) {
            file.set_len(len).map_err(|source| BackingError::Resize {
                path: path.to_owned(),
                len,
                source,
            })?;
        }
        let needed = len.unwrap_or(0).max(MAX_ALIGN as u64);
        let has = if is_device { found } else { found.max(len.unwrap_or(0)) };
        if has < needed || len == Some(0) {
            return Err(BackingError::TooShort { path: path.to_owned(), len: has, needed });
        }
        let len = len.unwrap_or(round_down(has));
        let direct = set_direct(&file, len);
        let align = direct.unwrap_or(MIN_ALIGN);
        Ok(Self { path: path.to_owned(), file, len, align, direct: direct.is_some() })
    }

    /// Returns the path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether access goes past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }
}

fn round_down(len: u64) -> u64 {
    len / MAX_ALIGN as u64 * MAX_ALIGN as u64
}

fn cannot_open(path: &Path, source: io::Error) -> BackingError {
    BackingError::Open { path: path.to_owned(), source }
}

/// Opens and locks a file (F1), and returns whether it is a block device.
fn open_locked(path: &Path, create: bool) -> Result<(File, bool), BackingError> {
    let is_device = fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    // Of a device, O_EXCL refuses one that is mounted or a swap area. A fifo would block without
    // O_NONBLOCK, which files and devices ignore.
    let exclusive = if is_device { OFlags::EXCL } else { OFlags::empty() };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(create && !is_device)
        .truncate(false)
        .mode(0o600)
        .custom_flags((exclusive | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed())
        .open(path)
        .map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => BackingError::InUse { path: path.to_owned() },
            io::ErrorKind::IsADirectory => BackingError::NotAFile { path: path.to_owned() },
            _ => cannot_open(path, source),
        })?;
    let found = file.metadata().map_err(|source| cannot_open(path, source))?.file_type();
    // A device that took the place of a file just now was not opened exclusively.
    let usable = if is_device { found.is_block_device() } else { found.is_file() };
    if !usable {
        return Err(BackingError::NotAFile { path: path.to_owned() });
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok((file, is_device)),
        Err(Errno::WOULDBLOCK) => Err(BackingError::InUse { path: path.to_owned() }),
        Err(errno) => Err(cannot_open(path, errno.into())),
    }
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
        self.file.read_exact_at(out, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check_access(self, offset, data)?;
        self.file.write_all_at(data, offset)?;
        if let Some(len) = NonZeroU64::new(data.len() as u64).filter(|_| !self.direct) {
            // The data is in the file; advice that is not taken costs memory only.
            fadvise(&self.file, offset, Some(len), Advice::DontNeed).ok();
        }
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fallocate(&self.file, hole, offset, len) {
                Err(Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::{env, process};

    use super::*;

    /// Says that a test did not run.
    fn skip(test: &str, reason: &str) {
        // Not by a macro, whose output the test harness would keep to itself.
        let _ = writeln!(io::stderr(), "SKIPPED: {test}: {reason}");
    }

    /// A folder that goes with the value.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            Self::within(&env::temp_dir())
        }

        fn within(parent: &Path) -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let folder = parent.join(format!("zfold-backing-{}-{number}", process::id()));
            fs::create_dir(&folder).unwrap();
            Self(folder)
        }

        fn file(&self) -> PathBuf {
            self.0.join("pages")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
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
        let backing = FileBacking::open(&scratch.file(), Some(100_000)).unwrap();
        eprintln!("{}: direct {}", scratch.0.display(), backing.is_direct());
        assert_eq!(backing.len(), 98304);
        let metadata = fs::metadata(scratch.file()).unwrap();
        assert_eq!(metadata.len(), 98304);
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        assert_keeps_bytes(&backing);
    }

    #[test]
    fn a_file_through_the_page_cache_keeps_bytes() {
        let scratch = Scratch::new();
        let mut backing = FileBacking::open(&scratch.file(), Some(1 << 20)).unwrap();
        let flags = fcntl_getfl(&backing.file).unwrap();
        fcntl_setfl(&backing.file, flags - OFlags::DIRECT).unwrap();
        (backing.direct, backing.align) = (false, MIN_ALIGN);
        assert_keeps_bytes(&backing);
    }

    #[test]
    fn a_file_in_memory_keeps_bytes() {
        let shared = Path::new("/dev/shm");
        if !shared.is_dir() {
            return skip("a_file_in_memory_keeps_bytes", "there is no /dev/shm");
        }
        let scratch = Scratch::within(shared);
        assert_keeps_bytes(&FileBacking::open(&scratch.file(), Some(1 << 20)).unwrap());
    }

    #[test]
    fn a_second_user_is_refused_by_name() {
        let scratch = Scratch::new();
        let first = FileBacking::open(&scratch.file(), Some(8192)).unwrap();
        let error = FileBacking::open(&scratch.file(), None).unwrap_err();
        assert!(matches!(error, BackingError::InUse { .. }), "{error}");
        assert!(error.to_string().starts_with(scratch.file().to_str().unwrap()), "{error}");
        drop(first);
        FileBacking::open(&scratch.file(), None).unwrap();
    }

    #[test]
    fn a_file_that_is_there_is_opened_as_it_is() {
        let scratch = Scratch::new();
        fs::write(scratch.file(), vec![5; 20_000]).unwrap();
        assert_eq!(FileBacking::open(&scratch.file(), None).unwrap().len(), 16384);
        // A shorter length leaves the rest alone, a longer one adds to it.
        assert_eq!(FileBacking::open(&scratch.file(), Some(8192)).unwrap().len(), 8192);
        assert_eq!(fs::metadata(scratch.file()).unwrap().len(), 20_000);
        let backing = FileBacking::open(&scratch.file(), Some(32768)).unwrap();
        let mut out = AlignedBuffer::new(32768);
        backing.read_at(0, &mut out).unwrap();
        assert!(out[..20_000].iter().all(|&byte| byte == 5));
        assert!(out[20_000..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let scratch = Scratch::new();
        let open = |path: &Path, len| FileBacking::open(path, len).unwrap_err();
        assert!(matches!(open(&scratch.0, None), BackingError::NotAFile { .. }));
        assert!(matches!(open(Path::new("/dev/null"), None), BackingError::NotAFile { .. }));
        let missing = open(&scratch.file(), None);
        assert!(missing.to_string().contains("give a length to create it"), "{missing}");
        assert!(!scratch.file().exists());
        let empty = open(&scratch.file(), Some(4095));
        assert!(matches!(empty, BackingError::TooShort { needed: 4096, .. }), "{empty}");
        let endless = open(&scratch.file(), Some(u64::MAX));
        assert!(matches!(endless, BackingError::Resize { .. }), "{endless}");
    }

    #[test]
    fn a_file_cut_meanwhile_reads_as_an_error() {
        let scratch = Scratch::new();
        let backing = FileBacking::open(&scratch.file(), Some(16384)).unwrap();
        backing.file.set_len(8192).unwrap();
        let error = backing.read_at(4096, &mut AlignedBuffer::new(8192)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_discarded_range_takes_no_room() {
        let scratch = Scratch::new();
        let backing = FileBacking::open(&scratch.file(), Some(1 << 20)).unwrap();
        backing.write_at(0, &filled(1 << 20, 6)).unwrap();
        backing.sync().unwrap();
        let before = fs::metadata(scratch.file()).unwrap().blocks();
        match backing.discard(0, 1 << 19) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                return skip("a_discarded_range_takes_no_room", "no holes in files here");
            }
            result => result.unwrap(),
        }
        let metadata = fs::metadata(scratch.file()).unwrap();
        assert!(metadata.blocks() < before, "{before} to {} blocks", metadata.blocks());
        assert_eq!(metadata.len(), 1 << 20);
        let mut out = AlignedBuffer::new(1 << 19);
        backing.read_at(1 << 19, &mut out).unwrap();
        assert!(out.iter().all(|&byte| byte == 6));
    }
}
