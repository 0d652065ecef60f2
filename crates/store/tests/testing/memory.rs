//! A backing in memory, for tests and experiments.
//!
//! One lock guards all bytes, so a read or write is of one moment, which is more than a backing
//! promises (backing/E1 to E3). It is held for one copy, and no other lock is taken under it.

use std::fmt;
use std::io;

use zfold_pool::Lock;

use super::contract::{Backing, MAX_ALIGN, MIN_ALIGN, check_access, check_range};

/// A vector as a backing. It is as strict about alignment as a device.
pub struct MemoryBacking {
    len: usize,
    align: usize,
    bytes: Lock<Vec<u8>>,
}

impl MemoryBacking {
    /// Returns a backing of `len` bytes of 0, rounded down to a multiple of 4096, with an
    /// alignment of 512.
    pub fn new(len: usize) -> Self {
        Self::with_align(len, MIN_ALIGN)
    }

    /// Returns the same with another alignment, 512 or 4096.
    fn with_align(len: usize, align: usize) -> Self {
        let len = len / MAX_ALIGN * MAX_ALIGN;
        Self { len, align, bytes: Lock::new(vec![0; len]) }
    }
}

impl Backing for MemoryBacking {
    fn len(&self) -> u64 {
        self.len as u64
    }

    fn align(&self) -> usize {
        self.align
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        check_access(self, offset, out)?;
        out.copy_from_slice(&self.bytes.lock()[offset as usize..][..out.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check_access(self, offset, data)?;
        self.bytes.lock()[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    /// Fills the range with 0xdd, so that a caller that still needs it finds out.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self, offset, len)?;
        self.bytes.lock()[offset as usize..][..len as usize].fill(0xdd);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for MemoryBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, align) = (self.len, self.align);
        f.debug_struct("MemoryBacking")
            .field("len", &len)
            .field("align", &align)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffer::AlignedBuffer;
    use super::*;

    #[test]
    fn wrong_ranges_are_refused_and_change_nothing() {
        for align in [512, 4096] {
            let backing = MemoryBacking::with_align(16384, align);
            let mut buffer = AlignedBuffer::new(3 * align);
            buffer.fill(1);
            let kind = |result: io::Result<()>| result.unwrap_err().kind();
            let wrong = io::ErrorKind::InvalidInput;
            assert_eq!(kind(backing.write_at(1, &buffer[..align])), wrong);
            assert_eq!(kind(backing.write_at(0, &buffer[..align - 1])), wrong);
            assert_eq!(kind(backing.write_at(0, &buffer[8..8 + align])), wrong);
            assert_eq!(kind(backing.write_at(16384, &buffer[..align])), wrong);
            assert_eq!(kind(backing.write_at(0u64.wrapping_sub(4096), &buffer[..align])), wrong);
            assert_eq!(kind(backing.read_at(8, &mut buffer[..align])), wrong);
            assert_eq!(kind(backing.discard(0, 20480)), wrong);
            backing.write_at(16384, &buffer[..0]).unwrap();
            let mut all = AlignedBuffer::new(16384);
            backing.read_at(0, &mut all).unwrap();
            assert!(all.iter().all(|&byte| byte == 0));
        }
    }
}
