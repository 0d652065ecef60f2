//! The memory that a process of the workload works on, whichever side takes its pages away.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt as _;

use memmap2::{Advice, MmapMut};
use zfold_region::{MemoryOptions, Region};

use crate::experiment::content::PAGE_BYTES;

/// Pages of memory. Dropping it unmaps them.
pub(crate) trait Memory {
    /// Writes a page.
    fn write(&mut self, page: usize, bytes: &[u8; PAGE_BYTES]);

    /// Reads a page.
    fn read(&self, page: usize) -> [u8; PAGE_BYTES];

    /// Reads one byte of a page, which is what faults.
    fn touch(&self, page: usize);

    /// Returns where the pages lie.
    fn address(&self) -> usize;

    /// Asks that all pages leave; some may still do so when it returns.
    ///
    /// # Errors
    /// The side refuses.
    fn page_out(&mut self) -> io::Result<()>;
}

/// Returns how many of `pages` pages at `address` are in RAM, as the process sees them.
///
/// # Errors
/// The system does not report it.
pub(crate) fn resident_pages(address: usize, pages: usize) -> io::Result<usize> {
    /// Bytes of an entry, of which the highest bit says that the page is there.
    const ENTRY: usize = 8;
    let mut entries = vec![0; pages * ENTRY];
    let at = address / PAGE_BYTES * ENTRY;
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, at as u64)?;
    let last = entries.iter().skip(ENTRY - 1).step_by(ENTRY);
    Ok(last.filter(|&&byte| byte & 0x80 != 0).count())
}

/// Private anonymous memory in pages of the smallest size.
#[derive(Debug)]
pub(crate) struct Mapping(MmapMut);

impl Mapping {
    /// Returns new memory.
    ///
    /// # Errors
    /// The system has none.
    pub(crate) fn new(pages: usize) -> io::Result<Self> {
        small_pages(pages * PAGE_BYTES).map(Self)
    }
}

/// Maps anonymous memory in pages of the smallest size.
///
/// # Errors
/// The system has none.
pub(crate) fn small_pages(bytes: usize) -> io::Result<MmapMut> {
    let map = MmapMut::map_anon(bytes)?;
    // Not every kernel has huge pages to refuse.
    let _ = map.advise(Advice::NoHugePage);
    Ok(map)
}

impl Memory for Mapping {
    fn write(&mut self, page: usize, bytes: &[u8; PAGE_BYTES]) {
        self.0[page * PAGE_BYTES..][..PAGE_BYTES].copy_from_slice(bytes);
    }

    fn read(&self, page: usize) -> [u8; PAGE_BYTES] {
        let bytes = &self.0[page * PAGE_BYTES..][..PAGE_BYTES];
        bytes.try_into().expect("a page has so many bytes")
    }

    fn touch(&self, page: usize) {
        black_box(self.0[page * PAGE_BYTES]);
    }

    fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    fn page_out(&mut self) -> io::Result<()> {
        zfold_uffd::advice::page_out(&self.0)
    }
}

impl Memory for Region {
    fn write(&mut self, page: usize, bytes: &[u8; PAGE_BYTES]) {
        self.as_mut_slice::<u8>()[page * PAGE_BYTES..][..PAGE_BYTES].copy_from_slice(bytes);
    }

    fn read(&self, page: usize) -> [u8; PAGE_BYTES] {
        let bytes = &self.as_slice::<u8>()[page * PAGE_BYTES..][..PAGE_BYTES];
        bytes.try_into().expect("a page has so many bytes")
    }

    fn touch(&self, page: usize) {
        black_box(self.as_slice::<u8>()[page * PAGE_BYTES]);
    }

    fn address(&self) -> usize {
        self.as_ptr().addr()
    }

    fn page_out(&mut self) -> io::Result<()> {
        self.pageout(..).map_err(io::Error::other)
    }
}

/// Returns a region of `pages` pages of which `resident_bytes` may be resident.
///
/// # Errors
/// It cannot be made here.
pub(crate) fn region(pages: usize, resident_bytes: u64) -> io::Result<Region> {
    let options = MemoryOptions::new(resident_bytes as usize);
    Region::new(pages * PAGE_BYTES, &options).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_resident_when_they_have_been_written() {
        let mut memory = Mapping::new(64).unwrap();
        assert_eq!(resident_pages(memory.address(), 64).unwrap(), 0);
        for page in [0, 7, 63] {
            memory.write(page, &[page as u8; PAGE_BYTES]);
        }
        assert_eq!(resident_pages(memory.address(), 64).unwrap(), 3);
        assert_eq!(memory.read(7), [7; PAGE_BYTES]);
    }
}
