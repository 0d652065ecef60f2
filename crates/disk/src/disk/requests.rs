//! Requests: cut at the borders of pages, and done page by page.

use std::cell::RefCell;
use std::ops::Range;

use zfold_store::Content;

use super::Disk;
use super::options::{Extent, ExtentKind, Holes};
use crate::error::IoError;

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
