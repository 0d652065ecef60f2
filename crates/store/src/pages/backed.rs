//! The backing file as the store uses it: pages packed in units, each with a checksum that only
//! memory knows.
//!
//! The checksum lies in the page's slot, not beside its bytes: so bytes that were damaged, written
//! elsewhere, or never written although the device said so are noticed all alike.
//!
//! - B1: units belong to the slot whose entry names them, or to the one writer that has allocated
//!   them. They are freed after that entry has left its slot. A backing that wants discards gets
//!   them first, while the units belong to no one else.
//! - B2: a reader takes no lock while it reads. What it reads counts only if its checksum is the
//!   one that the slot had; units given away meanwhile do not pass (but once in 2^32). The caller
//!   decides whether a mismatch is damage, by checking whether the slot is unchanged.
//! - B3: bytes read are as long as the entry says; a failed read or write changes no entry.
//! - B4: a thread may have read a page in advance, with its neighbours. It counts only if nothing
//!   was written there since (ahead/A1), and by its checksum as any other.
//!
//! Locking: the extents' lock, below slots, never held during a call of the backing.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;
use thread_local::ThreadLocal;
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zfold_pool::Lock;

use crate::backing::AlignedBuffer;
use crate::backing::extents::{Extents, UNIT};
use crate::entry::Place;
use crate::error::LoadError;
use crate::options::BackingOptions;
use crate::pages::ahead::{Ahead, Permits, Writes};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Backed {
    options: BackingOptions,
    /// Bytes of a unit: what the device aligns to, at least [`UNIT`].
    unit: usize,
    extents: Lock<Extents>,
    /// Bytes of the extents' map.
    map_bytes: u64,
    /// The buffers of each thread.
    ahead: ThreadLocal<RefCell<Ahead>>,
    /// Bytes of memory that they take.
    ahead_bytes: AtomicU64,
    writes: Writes,
    permits: Permits,
    /// Something was written.
    written: AtomicBool,
}

impl Drop for Backed {
    /// Gives the room on the file back: nothing refers to the units any longer.
    fn drop(&mut self) {
        if *self.written.get_mut() {
            // Advisory: a file system without holes keeps the room.
            let _ = self.options.backing.discard(0, self.options.backing.len());
        }
    }
}

/// Returns a buffer of at least `len` bytes in place of a shorter one.
fn at_least(buffer: &mut Option<AlignedBuffer>, len: usize) -> &mut AlignedBuffer {
    if buffer.as_ref().is_none_or(|buffer| buffer.len() < len) {
        *buffer = Some(AlignedBuffer::new(len));
    }
    buffer.as_mut().expect("made just now")
}

/// Returns what a page's kept bytes hash to.
pub(crate) fn checksum(key: u64, bytes: &[u8]) -> u32 {
    xxh3_64_with_seed(bytes, key) as u32
}

/// Why a page did not come back.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The device says so.
    Io(io::Error),
    /// The bytes are not those that were written (B2).
    Checksum,
}

impl ReadError {
    /// Returns the error of a load of the page of `key`.
    pub(crate) fn of_page(&self, key: u64) -> LoadError {
        match self {
            Self::Checksum => LoadError::Damaged { key },
            Self::Io(error) => LoadError::Backing { key, errno: errno(error) },
        }
    }
}

/// Returns the system's number of an error; for one that is not the system's, what comes closest.
fn errno(error: &io::Error) -> i32 {
    let closest = match error.kind() {
        io::ErrorKind::TimedOut => Errno::TIMEDOUT,
        io::ErrorKind::HostUnreachable => Errno::HOSTUNREACH,
        _ => Errno::IO,
    };
    error.raw_os_error().unwrap_or(closest.raw_os_error())
}

impl Backed {
    /// Returns what knows of no page yet, of a store with this limit.
    pub(crate) fn new(options: &BackingOptions, limit_bytes: Option<u64>) -> Self {
        let unit = options.backing.align().max(UNIT);
        let units = u32::try_from(options.backing.len() / unit as u64).unwrap_or(u32::MAX);
        let extents = Extents::new(units);
        Self {
            options: options.clone(),
            unit,
            map_bytes: extents.bytes() as u64,
            extents: Lock::new(extents),
            ahead: ThreadLocal::new(),
            ahead_bytes: AtomicU64::new(0),
            writes: Writes::new(),
            permits: Permits::new(limit_bytes),
            written: AtomicBool::new(false),
        }
    }

    /// Returns how many units `len` bytes take.
    pub(crate) fn units(&self, len: usize) -> u32 {
        len.div_ceil(self.unit) as u32
    }

    /// Returns how many bytes of the file a page takes of which `len` bytes are kept.
    pub(crate) fn bytes_of(&self, len: usize) -> u64 {
        u64::from(self.units(len)) * self.unit as u64
    }

    /// Returns the bytes of a unit.
    pub(crate) fn unit_bytes(&self) -> usize {
        self.unit
    }

    /// Takes a run of up to `units` units; returns its first and its length.
    pub(crate) fn allocate(&self, units: u32) -> Option<(u32, u32)> {
        self.extents.lock().allocate_up_to(units)
    }

    /// Gives units back (B1).
    pub(crate) fn free(&self, unit: u32, units: u32) {
        if self.options.backing.wants_discards() {
            let bytes = |units| u64::from(units) * self.unit as u64;
            // Advisory: what cannot be discarded is written again some time.
            let _ = self.options.backing.discard(bytes(unit), bytes(units));
        }
        self.extents.lock().free(unit, units);
    }

    /// Returns the bytes of the file in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        u64::from(self.extents.lock().used()) * self.unit as u64
    }

    /// Returns the bytes that there are.
    pub(crate) fn len(&self) -> u64 {
        self.options.backing.len()
    }

    /// Returns the bytes of memory that the allocation map, the read buffers of all threads and the
    /// backing's own map take.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        // Relaxed: a gauge.
        let buffers = self.ahead_bytes.load(Ordering::Relaxed);
        self.map_bytes + self.permits.bytes() + buffers + self.options.backing.memory_bytes()
    }

    /// Writes `bytes` to whole units from `unit` on, which the caller has allocated, by way of
    /// `buffer`. The rest of the last unit keeps its old contents, and is never read.
    pub(crate) fn write(
        &self,
        unit: u32,
        bytes: &[u8],
        buffer: &mut Option<AlignedBuffer>,
    ) -> io::Result<()> {
        let whole = bytes.len().next_multiple_of(self.unit);
        let out = &mut at_least(buffer, whole)[..whole];
        out[..bytes.len()].copy_from_slice(bytes);
        // Relaxed: read by who owns all of this.
        self.written.store(true, Ordering::Relaxed);
        let offset = u64::from(unit) * self.unit as u64;
        let done = self.options.backing.write_at(offset, out);
        // Also of one that has failed in the middle.
        self.writes.count(&(offset..offset + whole as u64));
        done
    }

    /// Reads the `len` bytes at `place`, checks them, and hands them to `take`.
    pub(crate) fn read<R>(
        &self,
        key: u64,
        place: Place,
        len: usize,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, ReadError> {
        let offset = u64::from(place.unit) * self.unit as u64;
        let wanted = offset..offset + len.next_multiple_of(self.unit) as u64;
        let is_right = |bytes: &&[u8]| checksum(key, &bytes[..len]) == place.checksum;
        let mut ahead = self.ahead.get_or_default().borrow_mut();
        if let Some(bytes) = ahead.find(&wanted, &self.writes).filter(is_right) {
            return Ok(take(&bytes[..len]));
        }
        let had = ahead.memory_bytes();
        let backing = &*self.options.backing;
        let read = ahead.read(&wanted, backing, &self.writes, &self.permits);
        let read = match read {
            Ok(bytes) if is_right(&bytes) => Ok(take(&bytes[..len])),
            Ok(_) => Err(ReadError::Checksum),
            Err(error) => Err(ReadError::Io(error)),
        };
        // Relaxed: a gauge.
        let more = ahead.memory_bytes().wrapping_sub(had);
        self.ahead_bytes.fetch_add(more as u64, Ordering::Relaxed);
        read
    }

    /// Returns once everything that was written is on stable storage.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.options.backing.sync()
    }
}
