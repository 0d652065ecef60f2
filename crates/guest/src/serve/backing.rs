//! The files of a guest's memory, which its VMM handed over with the userfaultfd.
//!
//! - B1: a file is a memfd of pages of 4 KiB, out of which pages can be taken, and at least as long
//!   as the regions in it. If its owner changes that later, only the guest suffers: a call fails
//!   then, and nothing leaves.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;

use rustix::fs::{
    FallocateFlags, OFlags, SealFlags, SeekFrom, fallocate, fcntl_get_seals, fcntl_getfl, fstatfs,
    readlink, seek,
};
use rustix::io::Errno;
use zfold_uffd::page::PAGE;

use crate::core::regions::Region;

/// The file system type that `statfs` returns for memfds.
const TMPFS: i64 = 0x0102_1994;

/// Why pages cannot be taken out of a guest's memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unbacked {
    /// A region has pages of another size.
    PageSize,
    /// A region names a descriptor that was not sent.
    Missing(usize),
    /// A descriptor is not a memfd of ordinary pages.
    NoMemfd,
    /// It cannot be written to.
    ReadOnly,
    /// It is sealed against changes.
    Sealed,
    /// A region ends after its file.
    Short,
    /// The userfaultfd does not report writes, or touches of unmapped pages.
    Features(Errno),
}

impl fmt::Display for Unbacked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PageSize => write!(f, "its pages are not of 4 KiB"),
            Self::Missing(number) => {
                write!(f, "a region lies in file {number}, which was not sent")
            }
            Self::NoMemfd => write!(f, "its memory does not lie in a memfd"),
            Self::ReadOnly => write!(f, "its memfd cannot be written to"),
            Self::Sealed => write!(f, "its memfd is sealed against writes"),
            Self::Short => write!(f, "its memfd is shorter than a region"),
            Self::Features(error) => write!(
                f,
                "its userfaultfd does not report writes to protected pages, or touches of pages \
                    that are not mapped ({error}): register MISSING, WP and MINOR"
            ),
        }
    }
}

/// A region, and its place in a file.
#[derive(Debug)]
struct Part {
    at: Range<usize>,
    file: Arc<File>,
    offset: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Backing {
    parts: Vec<Part>,
}

impl Backing {
    /// Returns the places of regions in these files; `places` has a file and an offset for each.
    pub(super) fn new(
        regions: &[Region],
        places: &[(usize, u64)],
        files: Vec<OwnedFd>,
    ) -> Result<Self, Unbacked> {
        let files: Vec<_> = files.into_iter().map(|fd| Arc::new(File::from(fd))).collect();
        files.iter().try_for_each(|file| check(file))?;
        let part = |(region, &(number, offset)): (&Region, &(usize, u64))| {
            let file = files.get(number).ok_or(Unbacked::Missing(number))?;
            let end = offset.checked_add(region.at.len() as u64);
            let len = file.metadata().map_or(0, |found| found.len());
            match end {
                _ if region.unit != PAGE => Err(Unbacked::PageSize),
                Some(end) if end <= len && offset % PAGE as u64 == 0 => {
                    Ok(Part { at: region.at.clone(), file: Arc::clone(file), offset })
                }
                _ => Err(Unbacked::Short),
            }
        };
        let parts = regions.iter().zip(places).map(part).collect::<Result<_, _>>()?;
        Ok(Self { parts })
    }

    /// Returns the addresses of pages that are in the files.
    pub(super) fn present(&self) -> io::Result<Vec<Range<usize>>> {
        let mut found = Vec::new();
        for Part { at, file, offset } in &self.parts {
            let (mut from, end) = (*offset, offset + at.len() as u64);
            while from < end {
                let data = match seek(file, SeekFrom::Data(from)) {
                    Ok(data) if data < end => data,
                    Ok(_) | Err(Errno::NXIO) => break,
                    Err(error) => return Err(error.into()),
                };
                let hole = seek(file, SeekFrom::Hole(data))?.min(end);
                let address = |place: u64| at.start + (place - offset) as usize;
                found.push(address(data)..address(hole));
                from = hole;
            }
        }
        Ok(found)
    }

    /// Returns the file and the offset of an address.
    fn find(&self, at: usize) -> Option<(&File, u64)> {
        let after = self.parts.partition_point(|part| part.at.start <= at);
        let part = self.parts[..after].last().filter(|part| at < part.at.end)?;
        Some((&part.file, part.offset + (at - part.at.start) as u64))
    }

    /// Reads pages; none if the first of them is not in the file, for example because the guest has
    /// mapped another file.
    pub(super) fn fetch(&self, at: usize, into: &mut [u8]) -> bool {
        let Some((file, offset)) = self.find(at) else { return false };
        seek(file, SeekFrom::Data(offset)) == Ok(offset) && file.read_exact_at(into, offset).is_ok()
    }

    /// Takes pages out.
    pub(super) fn punch(&self, of: &Range<usize>) -> bool {
        let Some((file, offset)) = self.find(of.start) else { return false };
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, how, offset, of.len() as u64).is_ok()
    }

    /// Writes a page.
    pub(super) fn patch(&self, at: usize, page: &[u8]) -> bool {
        let found = self.find(at);
        found.is_some_and(|(file, offset)| file.write_all_at(page, offset).is_ok())
    }
}

/// Returns why pages cannot be taken out of a file (B1).
fn check(file: &File) -> Result<(), Unbacked> {
    let name = readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new());
    let is_named = name.is_ok_and(|name| name.as_bytes().starts_with(b"/memfd:"));
    let is_alone = file.metadata().is_ok_and(|found| found.is_file() && found.nlink() == 0);
    // Not a memfd of huge pages, which lies in another file system.
    let is_ordinary = fstatfs(file).is_ok_and(|found| found.f_type == TMPFS);
    if !(is_named && is_alone && is_ordinary) {
        return Err(Unbacked::NoMemfd);
    }
    if !fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::RDWR)) {
        return Err(Unbacked::ReadOnly);
    }
    let sealed = SealFlags::WRITE | SealFlags::FUTURE_WRITE;
    match fcntl_get_seals(file) {
        Ok(seals) if !seals.intersects(sealed) => Ok(()),
        _ => Err(Unbacked::Sealed),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};

    use super::*;

    fn memfd(pages: u64) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("guest", flags).expect("a file");
        rustix::fs::ftruncate(&fd, pages << 12).expect("a length");
        fd
    }

    fn regions() -> [Region; 2] {
        let region = |at: Range<usize>, first| Region { at, page: first, unit: PAGE, first };
        [region(0x1000..0x5000, 0), region(0x8000..0xa000, 4)]
    }

    #[test]
    fn pages_are_found_read_and_taken_out_where_they_lie() {
        let fd = memfd(16);
        let file = File::from(fd.try_clone().expect("a descriptor"));
        let backing = Backing::new(&regions(), &[(0, 8 << 12), (0, 0)], vec![fd]).expect("backed");
        assert_eq!(backing.present().expect("found"), []);
        file.write_all_at(&[7; 2 * PAGE], 9 << 12).expect("written");
        assert!(backing.patch(0x9000, &[8; PAGE]));
        assert_eq!(backing.present().expect("found"), [0x2000..0x4000, 0x9000..0xa000]);
        let mut page = [0; PAGE];
        assert!(backing.fetch(0x3000, &mut page) && page == [7; PAGE]);
        assert!(backing.punch(&(0x2000..0x3000)) && !backing.fetch(0x2000, &mut page));
        assert!(!backing.fetch(0x5000, &mut page), "in no region");
        assert_eq!(backing.present().expect("found"), [0x3000..0x4000, 0x9000..0xa000]);
    }

    #[test]
    fn files_out_of_which_nothing_can_be_taken_are_refused() {
        let two = |fd: OwnedFd| Backing::new(&regions(), &[(0, 0), (0, 4 << 12)], vec![fd]).err();
        assert_eq!(two(memfd(6)), None);
        assert_eq!(two(memfd(5)), Some(Unbacked::Short));
        assert_eq!(two(tempfile::tempfile().expect("a file").into()), Some(Unbacked::NoMemfd));
        let sealed = memfd(6);
        fcntl_add_seals(&sealed, SealFlags::FUTURE_WRITE).expect("sealed");
        assert_eq!(two(sealed), Some(Unbacked::Sealed));
        let fd = memfd(6);
        let read = File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("opened");
        assert_eq!(two(read.into()), Some(Unbacked::ReadOnly));
        let missing = Backing::new(&regions(), &[(0, 0), (1, 0)], vec![memfd(6)]).err();
        assert_eq!(missing, Some(Unbacked::Missing(1)));
        let mut large = regions();
        large[1].unit = 2 << 20;
        let large = Backing::new(&large, &[(0, 0), (0, 0)], vec![memfd(6)]).err();
        assert_eq!(large, Some(Unbacked::PageSize));
    }
}
