//! One block request of a guest, from its descriptor chain to the device and back.
//!
//! ```text
//!   readable by us            | writable by us
//!   header (16 bytes) | data  | data | status (1 byte)
//! ```
//!
//! The guest may cut this into descriptors in any way. A chain that breaks the rules of the queue
//! itself (it never ends, turns from writable to readable, points outside the guest's memory, has
//! no room for a status) is handed back with nothing written. Any other mistake is answered with a
//! status.
//!
//! The guest may change its memory while we look at it. So each part of a request is copied before
//! it is checked, and lengths are those that were checked. Bytes copied from a guest that was lost
//! meanwhile have no effect (`lost.rs`).

use std::io::{Read, Write};
use std::ops::Deref;

use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP,
    VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN,
    VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};
use virtio_queue::{DescriptorChain, Reader, Writer};
use vm_memory::GuestMemoryMmap;

use super::lost::Guest;
use crate::disk::{Disk, Holes};
use crate::error::IoError;

/// Bytes of the sectors that requests count in, whatever the device's own.
pub(super) const SECTOR: u64 = 512;
/// Sectors of the largest range to discard or zero: 1 GiB.
pub(super) const RANGE_SECTORS_MAX: u32 = 1 << 21;
/// Ranges in one request.
pub(super) const RANGES_MAX: u32 = 32;
/// Data segments in one request, as reported to guests.
pub(super) const SEGMENTS_MAX: u32 = 126;
/// Descriptors taken in one chain. Guests may cut data more finely than reported.
const DESCRIPTORS_MAX: usize = 1024;
/// Bytes copied at a time between the guest and the device.
const PIECE: usize = 256 << 10;
const HEADER_LEN: usize = 16;
const RANGE_LEN: usize = 16;

/// The serial number of every device, padded with zeros.
const SERIAL: [u8; VIRTIO_BLK_ID_BYTES as usize] = *b"zfold\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// Why a request failed, as reported to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Io,
    Unsupported,
}

impl From<IoError> for Failure {
    fn from(_: IoError) -> Self {
        Self::Io
    }
}

impl From<std::io::Error> for Failure {
    fn from(_: std::io::Error) -> Self {
        Self::Io
    }
}

/// The device and the memory for serving requests.
#[derive(Debug)]
pub(super) struct Server<'a> {
    pub(super) disk: &'a Disk,
    /// The memory in which requests lie.
    pub(super) guest: &'a Guest,
    /// Whether writes are flushed at once, because the guest will not request it.
    pub(super) write_through: bool,
    /// The queue's own memory, through which all data goes.
    pub(super) buffer: &'a mut Vec<u8>,
}

impl Server<'_> {
    /// Serves one request and returns how many bytes were written to the guest's memory.
    pub(super) fn serve<M>(&mut self, chain: DescriptorChain<M>) -> u32
    where
        M: Deref<Target = GuestMemoryMmap> + Clone,
    {
        if !is_well_formed(chain.clone()) {
            return 0;
        }
        let tail = chain.clone();
        let memory = chain.memory();
        let (Ok(reader), Ok(mut data)) = (tail.clone().reader(memory), Writer::new(memory, tail))
        else {
            return 0;
        };
        let Some(room) = data.available_bytes().checked_sub(1) else { return 0 };
        let Ok(mut status) = data.split_at(room) else { return 0 };
        let code = match self.execute(reader, &mut data) {
            Ok(()) => VIRTIO_BLK_S_OK,
            Err(Failure::Io) => VIRTIO_BLK_S_IOERR,
            Err(Failure::Unsupported) => VIRTIO_BLK_S_UNSUPP,
        };
        let status = status.write_all(&[code as u8]).map_or(0, |()| 1);
        u32::try_from(data.bytes_written()).unwrap_or(u32::MAX).saturating_add(status)
    }

    fn execute(&mut self, mut reader: Reader, data: &mut Writer) -> Result<(), Failure> {
        let mut header = [0; HEADER_LEN];
        take(self.guest, &mut reader, &mut header)?;
        let sector = u64_at(&header, 8);
        match u32_at(&header, 0) {
            VIRTIO_BLK_T_IN => self.read(sector, data),
            VIRTIO_BLK_T_OUT => self.write(sector, &mut reader),
            VIRTIO_BLK_T_FLUSH => Ok(self.disk.flush()?),
            VIRTIO_BLK_T_GET_ID => {
                let len = data.available_bytes().min(SERIAL.len());
                Ok(data.write_all(&SERIAL[..len])?)
            }
            kind @ (VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES) => {
                self.zero(kind == VIRTIO_BLK_T_WRITE_ZEROES, &mut reader)
            }
            _ => Err(Failure::Unsupported),
        }
    }

    fn read(&mut self, sector: u64, data: &mut Writer) -> Result<(), Failure> {
        let (mut at, end) = self.range(sector, data.available_bytes() as u64)?;
        while at < end {
            let piece = self.piece(end - at);
            self.disk.read(at, &mut self.buffer[..piece])?;
            data.write_all(&self.buffer[..piece])?;
            at += piece as u64;
        }
        Ok(())
    }

    fn write(&mut self, sector: u64, data: &mut Reader) -> Result<(), Failure> {
        let (mut at, end) = self.range(sector, data.available_bytes() as u64)?;
        if self.disk.read_only() {
            return Err(Failure::Io);
        }
        while at < end {
            let piece = self.piece(end - at);
            take(self.guest, data, &mut self.buffer[..piece])?;
            self.disk.write(at, &self.buffer[..piece])?;
            at += piece as u64;
        }
        self.changed()
    }

    /// Discards ranges, or writes zeros to them.
    fn zero(&mut self, zeroes: bool, ranges: &mut Reader) -> Result<(), Failure> {
        let len = ranges.available_bytes();
        if len == 0 || !len.is_multiple_of(RANGE_LEN) || len / RANGE_LEN > RANGES_MAX as usize {
            return Err(Failure::Io);
        }
        for _ in 0..len / RANGE_LEN {
            let mut range = [0; RANGE_LEN];
            take(self.guest, ranges, &mut range)?;
            let (sectors, flags) = (u32_at(&range, 8), u32_at(&range, 12));
            let unmap = flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0;
            if flags & !VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0 || unmap && !zeroes {
                return Err(Failure::Unsupported);
            }
            if sectors > RANGE_SECTORS_MAX {
                return Err(Failure::Io);
            }
            let (at, end) = self.range(u64_at(&range, 0), u64::from(sectors) * SECTOR)?;
            match (zeroes, unmap) {
                (false, _) => self.disk.discard(at, end - at)?,
                (true, true) => self.disk.write_zeroes(at, end - at, Holes::Allow)?,
                (true, false) => self.disk.write_zeroes(at, end - at, Holes::Forbid)?,
            }
        }
        self.changed()
    }

    fn changed(&self) -> Result<(), Failure> {
        if self.write_through { Ok(self.disk.flush()?) } else { Ok(()) }
    }

    /// Returns the first byte, and the one after the last, of `len` bytes on the device.
    fn range(&self, sector: u64, len: u64) -> Result<(u64, u64), Failure> {
        let begin = sector.checked_mul(SECTOR).ok_or(Failure::Io)?;
        let end = begin.checked_add(len).ok_or(Failure::Io)?;
        let fits = len.is_multiple_of(SECTOR) && end <= self.disk.size();
        if fits { Ok((begin, end)) } else { Err(Failure::Io) }
    }

    /// Makes room for the next bytes of `left`, and returns how many they are.
    fn piece(&mut self, left: u64) -> usize {
        let piece = left.min(PIECE as u64) as usize;
        if self.buffer.len() < piece {
            self.buffer.resize(piece, 0);
        }
        piece
    }
}

/// Copies the next bytes of a request.
fn take(guest: &Guest, from: &mut Reader, bytes: &mut [u8]) -> Result<(), Failure> {
    from.read_exact(bytes)?;
    if guest.is_lost() { Err(Failure::Io) } else { Ok(()) }
}

/// Returns whether a chain ends, is not too long, and is readable first and writable after.
fn is_well_formed<M>(chain: DescriptorChain<M>) -> bool
where
    M: Deref<Target = GuestMemoryMmap>,
{
    let (mut ended, mut writable) = (false, false);
    for (count, descriptor) in chain.enumerate() {
        if count == DESCRIPTORS_MAX || writable && !descriptor.is_write_only() {
            return false;
        }
        writable = descriptor.is_write_only();
        ended = !descriptor.has_next();
    }
    ended
}

fn u32_at(bytes: &[u8; 16], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]))
}

fn u64_at(bytes: &[u8; 16], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]))
}

#[cfg(test)]
mod tests;
