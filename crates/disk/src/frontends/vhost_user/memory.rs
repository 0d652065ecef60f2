//! The requirements for a guest's memory.

use std::io;

use rustix::fs::{FileType, fstat, fstatfs};
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

/// The type that `statfs` reports for a file system of huge pages.
const HUGETLBFS: u64 = 0x9584_58F6;

/// Checks that each region lies inside its file, and is whole pages of it where they are huge, as
/// they can be taken out of use only whole. Memory that is no file's needs no check. A device, such
/// as one of persistent memory, says no length; a touch beyond it is that of a guest that is lost.
///
/// # Errors
/// `InvalidInput` for a region that does not; those of the system.
pub(super) fn check(memory: &GuestMemoryMmap) -> io::Result<()> {
    for region in memory.iter() {
        let Some(place) = region.file_offset() else { continue };
        // Of the very descriptor that was mapped.
        let found = fstat(place.file())?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            continue;
        }
        let file_len = u64::try_from(found.st_size).unwrap_or(0);
        let end = place.start().checked_add(region.len());
        if end.is_none_or(|end| end > file_len) {
            return Err(invalid("a region of memory reaches beyond the end of its file"));
        }
        let system = fstatfs(place.file())?;
        let huge = (system.f_type as u64 == HUGETLBFS).then_some(system.f_bsize as u64);
        if huge.is_some_and(|page| !region.len().is_multiple_of(page)) {
            return Err(invalid("a region of memory is no whole number of huge pages"));
        }
    }
    Ok(())
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use vm_memory::{FileOffset, GuestAddress};

    use super::*;

    /// Returns the first bytes of a file as a guest's memory.
    fn memory(file: File, len: usize) -> GuestMemoryMmap {
        let range = (GuestAddress(0), len, Some(FileOffset::new(file, 0)));
        GuestMemoryMmap::from_ranges_with_files([range]).unwrap()
    }

    #[test]
    fn only_a_regular_file_has_a_length() {
        // A device that all users can map and that reports no length, as dax devices do.
        let device = File::options().read(true).write(true).open("/dev/zero").unwrap();
        assert_eq!(device.metadata().unwrap().len(), 0);
        check(&memory(device, 1 << 20)).unwrap();
        for file in [
            tempfile::tempfile().unwrap(),
            rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into(),
        ] {
            file.set_len(1 << 20).unwrap();
            check(&memory(file.try_clone().unwrap(), 1 << 20)).unwrap();
            check(&memory(file, 2 << 20)).unwrap_err();
        }
    }
}
