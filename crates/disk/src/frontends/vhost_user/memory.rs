//! What a guest's memory must be like to be served from.

use std::io;

use rustix::fs::{fstat, fstatfs};
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

/// What `statfs` calls a file system of huge pages.
const HUGETLBFS: u64 = 0x9584_58F6;

/// Checks that each region lies inside its file, and is whole pages of it where they are huge, as
/// they can be taken out of use only whole. Memory that is no file's needs no check.
///
/// # Errors
/// `InvalidInput` for a region that does not; those of the system.
pub(super) fn check(memory: &GuestMemoryMmap) -> io::Result<()> {
    for region in memory.iter() {
        let Some(place) = region.file_offset() else { continue };
        // Of the very descriptor that was mapped.
        let file_len = u64::try_from(fstat(place.file())?.st_size).unwrap_or(0);
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
