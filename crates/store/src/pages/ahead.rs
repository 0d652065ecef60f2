//! Read-ahead: what a thread has read from the backing beyond the requested page.
//!
//! Pages that left one after the other lie one after the other, and mostly come back so. A thread
//! whose reads go upwards reads more and more with each, up to [`AHEAD_MAX`], and finds the next
//! pages in its buffer. A thread that reads at random reads only what was requested.
//!
//! - A1: bytes in a buffer count only while nothing was written to their part of the backing since
//!   they were read. A write is counted behind its last byte and before an entry names it; a reader
//!   notes the counts before it reads. So a thread with such an entry sees that the buffer is
//!   outdated.
//! - A2: what cannot be read ahead is no error: the page alone is read then. But a backing that was
//!   waited for in vain is not waited for once more.
//! - A3: reading takes no more memory than was counted before. So few threads read ahead
//!   ([`Permits`]), whose buffers count from the beginning; and none do where these would be a
//!   large part of the store's limit.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::backing::{AlignedBuffer, Backing};

/// The most bytes that are read at once, and the bytes of the first read-ahead. More is not worth
/// the memory: a backing on other machines has it several times on its way.
const AHEAD_MAX: u64 = PART;
const AHEAD_MIN: u64 = 16 << 10;

/// Bytes of a part of which writes are counted, and how many are; parts share counts beyond that.
const PART: u64 = 64 << 10;
const PARTS: usize = 1024;

/// How often each part of the backing was written to.
#[derive(Debug)]
pub(super) struct Writes(Box<[AtomicU32]>);

impl Writes {
    pub(super) fn new() -> Self {
        Self((0..PARTS).map(|_| AtomicU32::new(0)).collect())
    }

    /// Counts a write of these bytes, which is done.
    pub(super) fn count(&self, bytes: &Range<u64>) {
        for part in bytes.start / PART..=(bytes.end - 1) / PART {
            // Before what names the bytes, which is read by others under a lock.
            self.part(part).fetch_add(1, Ordering::Release);
        }
    }

    /// Returns the counts of the first and the last byte's parts.
    fn of(&self, bytes: &Range<u64>) -> [u32; 2] {
        let of = |byte: u64| self.part(byte / PART).load(Ordering::Acquire);
        [of(bytes.start), of(bytes.end - 1)]
    }

    fn part(&self, part: u64) -> &AtomicU32 {
        &self.0[part as usize % PARTS]
    }
}

/// This many threads may read ahead if the limit is at least this many bytes.
const READERS: usize = 4;
const LIMIT_MIN: u64 = 16 << 20;

/// The right to read ahead, of a store.
#[derive(Debug)]
pub(super) struct Permits {
    left: AtomicUsize,
    bytes: u64,
}

impl Permits {
    /// Returns those of a store with this limit.
    pub(super) fn new(limit_bytes: Option<u64>) -> Self {
        let readers = if limit_bytes.is_none_or(|limit| limit >= LIMIT_MIN) { READERS } else { 0 };
        Self { left: AtomicUsize::new(readers), bytes: readers as u64 * AHEAD_MAX }
    }

    /// Returns the bytes of memory that all take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes one for good; returns whether there was one.
    fn take(&self) -> bool {
        // Relaxed: a number.
        let less = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// The buffer of a thread.
#[derive(Debug)]
pub(super) struct Ahead {
    buffer: Option<AlignedBuffer>,
    /// The bytes that it holds of the backing, and their counts.
    held: Range<u64>,
    counts: [u32; 2],
    /// Where the last page ended, and how much was read ahead last.
    end: u64,
    window: u64,
    /// Whether it may read ahead, once that was decided (A3).
    permitted: Option<bool>,
}

impl Default for Ahead {
    fn default() -> Self {
        // The first page follows none.
        Self { buffer: None, held: 0..0, counts: [0; 2], end: u64::MAX, window: 0, permitted: None }
    }
}

impl Ahead {
    /// Returns the bytes of memory that it takes, and that no permit counts.
    pub(super) fn memory_bytes(&self) -> usize {
        if self.permitted == Some(true) { 0 } else { self.len() }
    }

    fn len(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.len())
    }

    /// Returns whole units, if it has them (A1).
    pub(super) fn find(&mut self, wanted: &Range<u64>, writes: &Writes) -> Option<&[u8]> {
        let is_held = self.held.start <= wanted.start && wanted.end <= self.held.end;
        if !is_held || writes.of(&self.held) != self.counts {
            return None;
        }
        self.end = wanted.end;
        let at = (wanted.start - self.held.start) as usize;
        Some(&self.buffer.as_ref()?[at..at + (wanted.end - wanted.start) as usize])
    }

    /// Reads whole units, and the following ones if these are likely to be needed next.
    ///
    /// # Errors
    /// Those of the backing; nothing is held then.
    pub(super) fn read(
        &mut self,
        wanted: &Range<u64>,
        backing: &dyn Backing,
        writes: &Writes,
        permits: &Permits,
    ) -> io::Result<&[u8]> {
        let goes_on = (self.end..=self.end.saturating_add(self.window)).contains(&wanted.start);
        let goes_on = goes_on && *self.permitted.get_or_insert_with(|| permits.take());
        self.window = if goes_on { (2 * self.window).clamp(AHEAD_MIN, AHEAD_MAX) } else { 0 };
        self.end = wanted.end;
        let until = (wanted.start + self.window).min(backing.len()).max(wanted.end);
        let is_ahead = until > wanted.end
            && match self.fill(wanted.start..until, backing, writes) {
                Err(error) if is_late(&error) => return Err(error),
                filled => filled.is_ok(),
            };
        if !is_ahead {
            self.window = 0;
            self.fill(wanted.clone(), backing, writes)?;
            // A caller that requests it again wants to know whether it can be read.
            self.held = 0..0;
        }
        let buffer = self.buffer.as_ref().expect("filled just now");
        Ok(&buffer[..(wanted.end - wanted.start) as usize])
    }

    /// Reads these bytes into the buffer.
    fn fill(
        &mut self,
        bytes: Range<u64>,
        backing: &dyn Backing,
        writes: &Writes,
    ) -> io::Result<()> {
        let len = (bytes.end - bytes.start) as usize;
        if self.len() < len {
            self.buffer = Some(AlignedBuffer::new(len));
        }
        self.held = 0..0;
        let counts = writes.of(&bytes);
        let buffer = self.buffer.as_mut().expect("made just now");
        backing.read_at(bytes.start, &mut buffer[..len])?;
        (self.held, self.counts) = (bytes, counts);
        Ok(())
    }
}

/// Whether a backing was waited for in vain.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::backing::MemoryBacking;

    const UNIT: u64 = 512;

    /// Records the reads, and fails if more than one unit beyond `end` is requested.
    #[derive(Debug)]
    struct Noted {
        inner: MemoryBacking,
        end: u64,
        error: io::ErrorKind,
        reads: Mutex<Vec<Range<u64>>>,
    }

    impl Noted {
        fn new(end: u64) -> Self {
            let inner = MemoryBacking::new(4 << 20);
            for unit in 0..inner.len() / UNIT {
                put(&inner, unit, unit);
            }
            Self { inner, end, error: io::ErrorKind::NotFound, reads: Mutex::default() }
        }

        fn reads(&self) -> Vec<Range<u64>> {
            std::mem::take(&mut self.reads.lock().unwrap())
        }
    }

    impl Backing for Noted {
        fn len(&self) -> u64 {
            self.inner.len()
        }

        fn align(&self) -> usize {
            self.inner.align()
        }

        fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let bytes = offset..offset + out.len() as u64;
            self.reads.lock().unwrap().push(bytes.clone());
            if bytes.end > self.end && out.len() > UNIT as usize {
                return Err(self.error.into());
            }
            self.inner.read_at(offset, out)
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.inner.write_at(offset, data)
        }

        fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
            self.inner.discard(offset, len)
        }

        fn sync(&self) -> io::Result<()> {
            self.inner.sync()
        }
    }

    /// Fills a unit with a number.
    fn put(backing: &dyn Backing, unit: u64, number: u64) {
        let mut buffer = AlignedBuffer::new(UNIT as usize);
        buffer.copy_from_slice(&number.to_le_bytes().repeat(UNIT as usize / 8));
        backing.write_at(unit * UNIT, &buffer).unwrap();
    }

    /// Returns the number that lies in a unit.
    fn get(ahead: &mut Ahead, backing: &Noted, writes: &Writes, unit: u64) -> u64 {
        let permits = &Permits::new(None);
        let wanted = unit * UNIT..(unit + 1) * UNIT;
        let found = ahead.find(&wanted, writes).map(<[u8]>::to_vec);
        let bytes = found
            .unwrap_or_else(|| ahead.read(&wanted, backing, writes, permits).unwrap().to_vec());
        assert_eq!(bytes.len(), UNIT as usize);
        u64::from_le_bytes(bytes[..8].try_into().unwrap())
    }

    #[test]
    fn a_sequence_is_read_in_large_pieces_and_other_pages_alone() {
        let (backing, writes) = (Noted::new(u64::MAX), Writes::new());
        let mut ahead = Ahead::default();
        for unit in 100..4000 {
            assert_eq!(get(&mut ahead, &backing, &writes, unit), unit);
        }
        let reads = backing.reads();
        assert_eq!(reads[0], 100 * UNIT..101 * UNIT);
        assert_eq!(reads[1], 101 * UNIT..101 * UNIT + AHEAD_MIN);
        assert!(reads.len() < 40, "{reads:?}");
        assert!(reads.iter().all(|read| read.end - read.start <= AHEAD_MAX));
        assert_eq!((ahead.len() as u64, ahead.memory_bytes()), (AHEAD_MAX, 0), "counted before");
        for unit in [5, 8000, 17, 3000, 900, 6000] {
            assert_eq!(get(&mut ahead, &backing, &writes, unit), unit);
        }
        let sizes: Vec<_> = backing.reads().iter().map(|read| read.end - read.start).collect();
        assert_eq!(sizes, [UNIT; 6]);
    }

    #[test]
    fn what_was_written_since_is_read_again() {
        let (backing, writes) = (Noted::new(u64::MAX), Writes::new());
        let mut ahead = Ahead::default();
        (0..3).for_each(|unit| assert_eq!(get(&mut ahead, &backing, &writes, unit), unit));
        let written = 9 * UNIT..10 * UNIT;
        put(&backing, 9, 7777);
        writes.count(&written);
        assert_eq!(get(&mut ahead, &backing, &writes, 9), 7777);
    }

    #[test]
    fn what_cannot_be_read_ahead_is_no_error() {
        let (backing, writes) = (Noted::new(40 * UNIT), Writes::new());
        let mut ahead = Ahead::default();
        for unit in 30..60 {
            assert_eq!(get(&mut ahead, &backing, &writes, unit), unit);
        }
    }

    #[test]
    fn a_backing_that_is_late_is_asked_once() {
        for error in [io::ErrorKind::TimedOut, io::ErrorKind::HostUnreachable] {
            let (backing, writes) = (Noted { error, ..Noted::new(UNIT) }, Writes::new());
            let mut ahead = Ahead::default();
            assert_eq!(get(&mut ahead, &backing, &writes, 0), 0);
            backing.reads();
            let next = UNIT..2 * UNIT;
            let late = ahead.read(&next, &backing, &writes, &Permits::new(None)).unwrap_err();
            assert_eq!((late.kind(), backing.reads().len()), (error, 1));
        }
    }

    #[test]
    fn few_threads_read_ahead_and_none_under_a_small_limit() {
        let (backing, writes) = (Noted::new(u64::MAX), Writes::new());
        for (limit, readers) in [(None, READERS), (Some(LIMIT_MIN - 1), 0)] {
            let permits = Permits::new(limit);
            assert_eq!(permits.bytes(), readers as u64 * AHEAD_MAX);
            for reader in 0..6 {
                let mut ahead = Ahead::default();
                for unit in 0..100 {
                    let wanted = unit * UNIT..(unit + 1) * UNIT;
                    if ahead.find(&wanted, &writes).is_none() {
                        ahead.read(&wanted, &backing, &writes, &permits).unwrap();
                    }
                }
                let counted = if reader < readers { 0 } else { UNIT as usize };
                assert_eq!(ahead.memory_bytes(), counted, "{reader} of {readers}");
            }
        }
    }
}
