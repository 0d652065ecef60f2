//! The device: byte ranges on top of pages.
//!
//! ```text
//!   write:  whole pages -> store, without reading what was there
//!           parts of a page -> read, change and store under the page's lock
//!   read:   whole pages -> decompressed where the caller wants them
//!           parts of a page -> decompressed beside, and copied
//! ```
//!
//! - D1: a page changes as a whole: no request sees, or leaves, half of another one's write to the
//!   same page. Requests of several pages may interleave page by page, as on any disk.
//! - D2: bytes never written, discarded or zeroed read as zeros and hold no memory.
//! - D3: a request is checked against the size before it touches anything. The size only grows.
//! - D4: what was acknowledged was whole before the device closed (`access.rs`, A2).

pub(crate) mod access;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zfold_store::{Content, Store};

use access::{Access, Claim, User};
use crate::error::{IoError, OpenError};
use crate::stats::{Counters, DiskStats};

/// Size of a sector: what clients align to. The device itself takes any offset and length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SectorSize {
    /// 512 bytes.
    B512,
    /// 4096 bytes.
    #[default]
    B4096,
}

impl SectorSize {
    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

/// What a device is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Size in bytes, a multiple of the sector size.
    pub size: u64,
    /// Sector size told to clients.
    pub sector: SectorSize,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// Whether write-zeroes may leave a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// Pages are dropped, which frees their memory.
    Allow,
    /// Pages stay allocated as pages of zeros, 16 bytes each.
    Forbid,
}

/// What a run of bytes holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Nothing; reads as zeros.
    Hole,
    /// Allocated zeros.
    Zero,
    /// Data.
    Data,
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub len: u64,
    /// What it holds.
    pub kind: ExtentKind,
}

/// A block device. All methods take `&self`, from any number of threads.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use zfold_disk::{Disk, DiskOptions, SectorSize};
/// use zfold_pool::{Allocator, PoolOptions};
/// use zfold_store::{CodecKind, Store, StoreOptions};
///
/// let size = 64 << 20;
/// let pool = zfold_pool::create("disk", &PoolOptions::new(Allocator::Zsmalloc))?;
/// let store = Store::new(pool, &StoreOptions::new(size / 4096, CodecKind::Lz4.into()))?;
/// let options = DiskOptions { size, sector: SectorSize::B512, read_only: false };
/// let disk = Disk::new(Arc::new(store), &options)?;
/// disk.write(1000, b"any offset, any length")?;
/// let mut back = [0; 10];
/// disk.read(1004, &mut back)?;
/// assert_eq!(&back, b"offset, an");
/// disk.discard(0, size)?;
/// assert_eq!(disk.extents(0, size, 8)?[0].len, size);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Disk {
    store: Arc<Store>,
    page_len: u64,
    sector: SectorSize,
    read_only: bool,
    size: AtomicU64,
    access: Access,
    counters: Counters,
}

/// A part of a request that lies within one page.
struct Part {
    key: u64,
    /// Bytes of the page.
    within: Range<usize>,
    /// Bytes of the request.
    request: Range<usize>,
}

thread_local! {
    /// A page beside the request, for parts of pages.
    static PAGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Disk {
    /// Returns a device over `store`, which it should have for itself.
    ///
    /// # Errors
    /// [`OpenError::Size`], or [`OpenError::TooLarge`] if the store has too few slots.
    pub fn new(store: Arc<Store>, options: &DiskOptions) -> Result<Self, OpenError> {
        let disk = Self {
            page_len: store.page_len() as u64,
            store,
            sector: options.sector,
            read_only: options.read_only,
            size: AtomicU64::new(0),
            access: Access::default(),
            counters: Counters::default(),
        };
        disk.grow(options.size)?;
        Ok(disk)
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        // Acquire pairs with `grow`, though nothing but the number depends on it.
        self.size.load(Ordering::Acquire)
    }

    /// Returns the size in bytes up to which [`grow`](Self::grow) works.
    #[must_use]
    pub fn max_size(&self) -> u64 {
        self.store.slots().saturating_mul(self.page_len)
    }

    /// Returns the sector size.
    #[must_use]
    pub fn sector(&self) -> SectorSize {
        self.sector
    }

    /// Returns the length of a page in bytes: aligned requests of whole pages are the fastest.
    #[must_use]
    pub fn page_len(&self) -> usize {
        self.page_len as usize
    }

    /// Returns whether writes are refused.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Makes the device larger; what is new reads as zeros.
    ///
    /// # Errors
    /// [`OpenError`]; the size stays.
    pub fn grow(&self, size: u64) -> Result<(), OpenError> {
        let (sector, max) = (self.sector.bytes(), self.max_size());
        if size == 0 || !size.is_multiple_of(sector.into()) {
            return Err(OpenError::Size { size, sector });
        }
        if size > max {
            return Err(OpenError::TooLarge { size, max });
        }
        let now = self.size.fetch_max(size, Ordering::AcqRel);
        if size < now { Err(OpenError::Shrink { size, now }) } else { Ok(()) }
    }

    /// Returns a user of the device, which it has until that is dropped: whoever may send requests
    /// says so by it. `kind` is what a sentence calls it, such as "an NBD client is connected".
    /// Waits while the device is [claimed](Self::claim).
    #[must_use]
    pub fn attach(self: &Arc<Self>, kind: &'static str) -> User {
        User::attach(Arc::clone(self), kind)
    }

    /// Claims the device for work during which nobody may use it. Until the claim is dropped, users
    /// who [attach](Self::attach) wait, and so does another claim.
    ///
    /// # Errors
    /// The kinds of its users, as they attached, if it has any.
    pub fn claim(&self) -> Result<Claim<'_>, Vec<&'static str>> {
        self.access.claim()
    }

    /// Ends all changes: from now on writes, discards and the like fail with [`IoError::Closed`],
    /// also those under way, which may have changed something. What was acknowledged is in a
    /// snapshot of the store that begins after this returns. Does not wait.
    pub fn close(&self) {
        self.access.close();
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Reads the bytes from `offset` into `out`.
    ///
    /// # Errors
    /// [`IoError`]; `out` may have been written to.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), IoError> {
        self.counters.reads_total.add(1);
        self.counters.read_bytes_total.add(out.len() as u64);
        let read = self.check(offset, out.len() as u64).and_then(|()| {
            self.parts(offset, out.len()).try_for_each(|part| {
                let wanted = &mut out[part.request];
                if part.within.len() == self.page_len() {
                    return self.load(part.key, wanted);
                }
                PAGE.with_borrow_mut(|page| {
                    page.resize(self.page_len(), 0);
                    self.load(part.key, page)?;
                    wanted.copy_from_slice(&page[part.within]);
                    Ok(())
                })
            })
        });
        read.inspect_err(|_| self.counters.failed_reads_total.add(1))
    }

    /// Writes `data` from `offset`.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        self.counters.writes_total.add(1);
        self.counters.written_bytes_total.add(data.len() as u64);
        self.changing(offset, data.len() as u64, || {
            self.parts(offset, data.len()).try_for_each(|part| {
                let data = &data[part.request];
                if part.within.len() == self.page_len() {
                    self.store.overwrite(part.key, data)?;
                } else {
                    let change = |page: &mut [u8]| {
                        page[part.within.clone()].copy_from_slice(data);
                    };
                    self.store.update(part.key, change)?;
                }
                Ok(())
            })
        })
    }

    /// Drops the contents of a range, which reads as zeros afterwards; frees the memory of the
    /// pages that lie wholly inside at once.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.counters.discards_total.add(1);
        self.counters.discarded_bytes_total.add(len);
        self.changing(offset, len, || self.zero(offset, len, Holes::Allow))
    }

    /// Makes a range zeros.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn write_zeroes(&self, offset: u64, len: u64, holes: Holes) -> Result<(), IoError> {
        self.counters.write_zeroes_total.add(1);
        self.changing(offset, len, || self.zero(offset, len, holes))
    }

    /// Returns once what was written before is as durable as the device can make it: pages on a
    /// backing file are on stable storage. Pages in memory last as long as the process.
    ///
    /// # Errors
    /// [`IoError::Io`] if the backing file failed.
    pub fn flush(&self) -> Result<(), IoError> {
        self.counters.flushes_total.add(1);
        self.store.sync().map_err(|_| IoError::Io).inspect_err(|_| {
            self.counters.failed_writes_total.add(1);
        })
    }

    /// Returns what the bytes from `offset` hold, as at most `limit` runs, which cover `len` bytes
    /// or, where the limit cuts them short, less; neighbours differ in kind.
    ///
    /// # Errors
    /// [`IoError::OutOfRange`].
    ///
    /// # Panics
    /// If `limit` is 0.
    pub fn extents(&self, offset: u64, len: u64, limit: usize) -> Result<Vec<Extent>, IoError> {
        assert!(limit > 0, "at least one extent");
        self.check(offset, len)?;
        let mut extents: Vec<Extent> = Vec::new();
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let key = at / self.page_len;
            let (kind, until) = match self.store.peek(key) {
                Content::Absent => {
                    let last = end.div_ceil(self.page_len);
                    let next = self.store.next_present(key..last).unwrap_or(last);
                    (ExtentKind::Hole, next.max(key + 1))
                }
                Content::SameFilled(0) => (ExtentKind::Zero, key + 1),
                _ => (ExtentKind::Data, key + 1),
            };
            let until = until.saturating_mul(self.page_len).min(end);
            let full = extents.len() == limit;
            match extents.last_mut() {
                Some(last) if last.kind == kind => last.len += until - at,
                _ if full => break,
                _ => extents.push(Extent { len: until - at, kind }),
            }
            at = until;
        }
        Ok(extents)
    }

    /// Returns what was served.
    #[must_use]
    pub fn stats(&self) -> DiskStats {
        self.counters.snapshot()
    }

    /// Checks a range against the size.
    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), IoError> {
        let size = self.size();
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(IoError::OutOfRange { offset, len, size }),
        }
    }

    /// Runs a request that changes something, if it may.
    fn changing(
        &self,
        offset: u64,
        len: u64,
        change: impl FnOnce() -> Result<(), IoError>,
    ) -> Result<(), IoError> {
        let allowed = || match () {
            () if self.read_only => Err(IoError::ReadOnly),
            () if self.access.is_closed() => Err(IoError::Closed),
            () => self.check(offset, len),
        };
        let changed = allowed().and_then(|()| change());
        let acknowledged = changed.and_then(|()| match self.access.has_closed() {
            false => Ok(()),
            true => Err(IoError::Closed),
        });
        acknowledged.inspect_err(|_| self.counters.failed_writes_total.add(1))
    }

    /// Cuts a request at the borders of pages.
    fn parts(&self, offset: u64, len: usize) -> impl Iterator<Item = Part> + use<> {
        let page_len = self.page_len;
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = offset + done as u64;
            let begin = (at % page_len) as usize;
            let bytes = (page_len as usize - begin).min(len - done);
            let request = done..done + bytes;
            done += bytes;
            let part = Part { key: at / page_len, within: begin..begin + bytes, request };
            (bytes > 0).then_some(part)
        })
    }

    fn load(&self, key: u64, page: &mut [u8]) -> Result<(), IoError> {
        if !self.store.load(key, page)? {
            page.fill(0);
        }
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64, holes: Holes) -> Result<(), IoError> {
        let end = offset + len;
        let whole = offset.div_ceil(self.page_len)..end / self.page_len;
        if whole.start > whole.end {
            // Inside one page.
            return self.zero_part(whole.end, offset..end);
        }
        self.zero_part(whole.start.saturating_sub(1), offset..whole.start * self.page_len)?;
        self.zero_part(whole.end, whole.end * self.page_len..end)?;
        match holes {
            Holes::Allow => {
                self.counters.notify_free_total.add(self.store.invalidate_range(whole));
                Ok(())
            }
            Holes::Forbid => PAGE.with_borrow_mut(|page| {
                page.clear();
                page.resize(self.page_len(), 0);
                whole.into_iter().try_for_each(|key| {
                    self.store.overwrite(key, page)?;
                    Ok(())
                })
            }),
        }
    }

    /// Zeroes the bytes of a range that lies within page `key`.
    fn zero_part(&self, key: u64, bytes: Range<u64>) -> Result<(), IoError> {
        if bytes.is_empty() || self.store.peek(key) == Content::Absent {
            return Ok(());
        }
        let first = key * self.page_len;
        let within = (bytes.start - first) as usize..(bytes.end - first) as usize;
        self.store.update(key, |page| page[within.clone()].fill(0))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfold_pool::{Allocator, PoolOptions};
    use zfold_store::{CodecKind, StoreOptions};

    const PAGE: u64 = 4096;

    fn disk(pages: u64) -> Disk {
        let pool = zfold_pool::create("test", &PoolOptions::new(Allocator::Zsmalloc)).unwrap();
        let store = Store::new(pool, &StoreOptions::new(pages * 2, CodecKind::Lz4.into())).unwrap();
        let size = pages * PAGE;
        let options = DiskOptions { size, sector: SectorSize::B512, read_only: false };
        Disk::new(Arc::new(store), &options).unwrap()
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|n| (n / 7 % 251) as u8).collect()
    }

    fn read(disk: &Disk, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0xEE; len];
        disk.read(offset, &mut out).unwrap();
        out
    }

    #[test]
    fn any_offset_and_length_comes_back() {
        let disk = disk(8);
        for (offset, len) in [(0, 4096), (1, 1), (4095, 2), (100, 12_000), (512, 512), (8192, 0)] {
            let data = bytes(len);
            disk.write(offset, &data).unwrap();
            assert_eq!(read(&disk, offset, len), data, "{len} at {offset}");
        }
        disk.store().check();
    }

    #[test]
    fn a_part_written_leaves_the_rest_of_its_page() {
        let disk = disk(4);
        disk.write(0, &[7; 8192]).unwrap();
        disk.write(4000, &[9; 200]).unwrap();
        assert_eq!(read(&disk, 0, 4000), [7; 4000]);
        assert_eq!(read(&disk, 4000, 200), [9; 200]);
        assert_eq!(read(&disk, 4200, 3992), [7; 3992]);
    }

    #[test]
    fn discard_frees_whole_pages_and_zeroes_parts() {
        let disk = disk(8);
        disk.write(0, &bytes(8 * 4096)).unwrap();
        disk.discard(1000, 5 * PAGE).unwrap();
        assert_eq!(disk.store().len(), 4, "pages 1 to 4 are gone");
        assert_eq!(disk.stats().notify_free_total, 4);
        assert_eq!(read(&disk, 0, 1000), bytes(1000));
        assert_eq!(read(&disk, 1000, 5 * 4096), vec![0; 5 * 4096]);
        let rest = 1000 + 5 * 4096;
        assert_eq!(read(&disk, rest as u64, 8 * 4096 - rest), bytes(8 * 4096)[rest..]);
        disk.discard(10, 20).unwrap();
        assert_eq!(read(&disk, 10, 20), [0; 20]);
        assert_eq!(read(&disk, 0, 10), bytes(10));
    }

    #[test]
    fn write_zeroes_leaves_holes_unless_forbidden() {
        let disk = disk(8);
        disk.write(0, &bytes(8 * 4096)).unwrap();
        disk.write_zeroes(0, 2 * PAGE, Holes::Allow).unwrap();
        disk.write_zeroes(2 * PAGE, 2 * PAGE, Holes::Forbid).unwrap();
        let extent = |len, kind| Extent { len: len * PAGE, kind };
        let (hole, zero) = (extent(2, ExtentKind::Hole), extent(2, ExtentKind::Zero));
        let all = [hole, zero, extent(4, ExtentKind::Data)];
        assert_eq!(disk.extents(0, 8 * PAGE, 9).unwrap(), all);
        assert_eq!(disk.extents(0, 8 * PAGE, 2).unwrap(), all[..2]);
        let middle = [Extent { len: 100, ..hole }, Extent { len: 50, ..zero }];
        assert_eq!(disk.extents(2 * PAGE - 100, 150, 9).unwrap(), middle);
    }

    #[test]
    fn requests_beyond_the_end_touch_nothing() {
        let disk = disk(2);
        let size = 2 * PAGE;
        for (offset, len) in [(size, 1), (size - 1, 2), (u64::MAX, 2), (u64::MAX, 0)] {
            let error = IoError::OutOfRange { offset, len, size };
            assert_eq!(disk.write(offset, &bytes(len as usize)), Err(error));
            assert_eq!(disk.read(offset, &mut vec![0; len as usize]), Err(error));
            assert_eq!(disk.discard(offset, len), Err(error));
        }
        assert!(disk.store().is_empty());
        assert_eq!(disk.stats().failed_writes_total, 8);
        assert_eq!(disk.stats().failed_reads_total, 4);
        assert_eq!(disk.read(size, &mut []), Ok(()));
    }

    #[test]
    fn a_device_grows_up_to_its_store_and_never_shrinks() {
        let disk = disk(2);
        assert_eq!(disk.write(2 * PAGE, &[1]).map_err(IoError::errno), Err(22));
        disk.grow(3 * PAGE).unwrap();
        disk.write(2 * PAGE, &[1]).unwrap();
        let now = 3 * PAGE;
        assert_eq!(disk.grow(PAGE), Err(OpenError::Shrink { size: PAGE, now }));
        assert_eq!(disk.grow(100), Err(OpenError::Size { size: 100, sector: 512 }));
        let (size, max) = (5 * PAGE, 4 * PAGE);
        assert_eq!(disk.grow(size), Err(OpenError::TooLarge { size, max }));
        assert_eq!(disk.size(), now);
    }

    #[test]
    fn a_closed_device_refuses_changes_and_is_read() {
        let disk = disk(2);
        disk.write(0, &[5; 100]).unwrap();
        disk.close();
        assert_eq!(disk.write(0, &[1]), Err(IoError::Closed));
        assert_eq!(disk.discard(0, 4096), Err(IoError::Closed));
        assert_eq!(disk.write_zeroes(0, 4096, Holes::Forbid), Err(IoError::Closed));
        assert_eq!(read(&disk, 0, 100), [5; 100]);
        assert_eq!(disk.stats().failed_writes_total, 3);
    }

    /// Threads write until the device closes under them; what was acknowledged is in a snapshot
    /// that begins then.
    #[test]
    fn what_was_acknowledged_is_in_a_snapshot_after_the_end() {
        for _ in 0..50 {
            let disk = disk(64);
            let (acknowledged, saved) = std::thread::scope(|scope| {
                let writers: Vec<_> = (0..4u64)
                    .map(|thread| {
                        let disk = &disk;
                        scope.spawn(move || {
                            let write = |n: &u64| {
                                let page = (thread * 16 + n % 16) * PAGE;
                                disk.write(page, &(n + 1).to_le_bytes()).is_ok()
                            };
                            (0u64..).take_while(write).count() as u64
                        })
                    })
                    .collect();
                std::thread::sleep(std::time::Duration::from_micros(300));
                disk.close();
                let mut saved = Vec::new();
                disk.store().save(b"", &mut saved).unwrap();
                (writers.into_iter().map(|w| w.join().unwrap()).collect::<Vec<_>>(), saved)
            });
            let after = self::disk(64);
            after.store().restore(&mut &saved[..]).unwrap();
            for (thread, count) in (0u64..).zip(acknowledged) {
                for n in count.saturating_sub(16)..count {
                    let found = read(&after, (thread * 16 + n % 16) * PAGE, 8);
                    let found = u64::from_le_bytes(found.try_into().unwrap());
                    // The one that was refused may be there as well.
                    let refused = n + 16 == count;
                    assert!(
                        found == n + 1 || refused && found == n + 17,
                        "{n} of {count}: {found}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_claim_finds_nobody_and_keeps_everybody_out() {
        let disk = Arc::new(disk(2));
        let user = disk.attach("a test uses it");
        assert_eq!(disk.claim().err(), Some(vec!["a test uses it"]));
        drop(user);
        let claim = disk.claim().unwrap();
        std::thread::scope(|scope| {
            let came = scope.spawn(|| disk.attach("it came later"));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!came.is_finished(), "nobody comes in during a claim");
            drop(claim);
            let user = came.join().unwrap();
            assert_eq!(disk.claim().err(), Some(vec!["it came later"]));
            drop(user);
        });
        assert!(disk.claim().is_ok());
    }

    #[test]
    fn a_read_only_device_refuses_every_change() {
        let mut disk = disk(2);
        disk.write(0, &[5; 100]).unwrap();
        disk.read_only = true;
        assert_eq!(disk.write(0, &[1]), Err(IoError::ReadOnly));
        assert_eq!(disk.discard(0, 4096), Err(IoError::ReadOnly));
        assert_eq!(disk.write_zeroes(0, 4096, Holes::Forbid), Err(IoError::ReadOnly));
        assert_eq!(read(&disk, 0, 100), [5; 100]);
    }
}
