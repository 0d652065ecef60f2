//! Requests of clients, and what they may answer.

use zfold_disk::{ExtentKind, Holes, IoError};
use zfold_store::backing::Fault;

use super::World;
use crate::contents::contents;
use crate::model::{PAGE, parts};
use crate::setup::Bug;

impl World {
    /// Returns the offset and length of a request: within a page, of pages, or anything.
    pub(super) fn range(&mut self) -> (u64, usize) {
        let pages = self.model.pages() as u64;
        let page = PAGE as u64;
        let (offset, len) = match self.rng.below(4) {
            0 => (self.rng.below(pages) * page, page * (1 + self.rng.below(3))),
            1 => {
                let within = self.rng.below(page);
                let len = self.rng.below(page - within) + 1;
                (self.rng.below(pages) * page + within, len)
            }
            2 => (self.rng.below(pages * 8) * 512, 512 * (1 + self.rng.below(20))),
            _ => (self.rng.below(pages * page), self.rng.below(3 * page)),
        };
        (offset, len.min(pages * page - offset) as usize)
    }

    pub(super) fn write_any(&mut self) {
        let (offset, len) = self.range();
        let mut data = Vec::with_capacity(len);
        while data.len() < len {
            let piece = (len - data.len()).min(PAGE - (offset as usize + data.len()) % PAGE);
            data.extend(contents(&mut self.rng, piece));
        }
        self.write(offset, &data);
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let before = self.read_trouble();
        let written = match self.bug {
            Bug::TornPages => data
                .chunks(512)
                .zip(0..)
                .try_for_each(|(sector, n)| self.disk.write(offset + n * 512, sector)),
            _ => self.disk.write(offset, data),
        };
        let pieces = if self.bug == Bug::TornPages { 0 } else { 1 };
        self.counted.writes_total += pieces;
        self.counted.written_bytes_total += data.len() as u64 * pieces;
        self.note(|_| format!("write {}+{}: {written:?}", offset, data.len()));
        self.changed(written, before);
        if !self.closed {
            self.model.write(offset, data, written.is_ok());
        }
        written.is_ok()
    }

    pub(super) fn read_any(&mut self) {
        let (offset, len) = self.range();
        self.read(offset, len);
    }

    pub(super) fn read(&mut self, offset: u64, len: usize) -> bool {
        let before = self.read_trouble();
        let mut out = vec![0xEE; len];
        let mut read = self.disk.read(offset, &mut out);
        self.counted.reads_total += 1;
        self.counted.read_bytes_total += len as u64;
        self.counted.failed_reads_total += u64::from(read.is_err());
        self.note(|_| format!("read {offset}+{len}: {read:?}"));
        if self.bug == Bug::HiddenError {
            read = Ok(());
        }
        match read {
            Ok(()) => {
                if let Err(page) = self.model.read(offset, &out) {
                    panic!("page {page} has bytes that nobody wrote there");
                }
            }
            Err(error) => {
                assert_eq!(error, IoError::Io, "a read fails with the page, nothing else");
                self.assert_trouble(before, "a read");
                self.seen.failed_reads += 1;
            }
        }
        read.is_ok()
    }

    pub(super) fn zero_any(&mut self) {
        let (offset, len) = self.range();
        let how = self.rng.pick(&[None, Some(Holes::Allow), Some(Holes::Forbid)]);
        self.zero(offset, len, how);
    }

    /// Discards a range, or writes zeros to it.
    pub(super) fn zero(&mut self, offset: u64, len: usize, how: Option<Holes>) {
        let before = self.read_trouble();
        let forgotten = self.bug == Bug::ForgottenDiscard && self.rng.once_in(4);
        let wanted = len as u64;
        let zeroed = match how {
            _ if forgotten => Ok(()),
            None => self.disk.discard(offset, wanted),
            Some(holes) => self.disk.write_zeroes(offset, wanted, holes),
        };
        if how.is_some() {
            self.counted.write_zeroes_total += 1;
        } else {
            self.counted.discards_total += 1;
            self.counted.discarded_bytes_total += wanted;
        }
        self.note(|_| format!("zero {offset}+{len} {how:?}: {zeroed:?}"));
        self.changed(zeroed, before);
        if !self.closed {
            self.model.zero(offset, len, zeroed.is_ok());
        }
    }

    /// Counts a change that succeeded or failed, and checks that it had a reason to fail.
    pub(super) fn changed(&mut self, result: Result<(), IoError>, before: u64) {
        self.seen.changes_while_saving += u64::from(self.saving && result.is_ok());
        if self.closed {
            assert_eq!(result, Err(IoError::Closed), "a closed device takes no change");
            self.seen.changes_after_the_end += 1;
        }
        let Err(error) = result else { return };
        self.counted.failed_writes_total += 1;
        self.seen.failed_changes += 1;
        match error {
            IoError::NoSpace => {
                // Noise is refused by some stores; a raw page does not fit behind a key header.
                let picky = self.setup.reject || self.setup.key_header;
                let limited = self.store.tunables().limit_bytes.is_some();
                assert!(picky || limited, "no space without a limit");
                self.seen.refused += u64::from(limited);
            }
            IoError::Io => self.assert_trouble(before, "a change of a part of a page"),
            IoError::Closed => assert!(self.closed, "the device is open"),
            error => panic!("{error}"),
        }
    }

    pub(super) fn extents_any(&mut self) {
        let (offset, len) = self.range();
        let limit = 1 + self.rng.below(6) as usize;
        let extents = self.disk.extents(offset, len as u64, limit).unwrap();
        self.note(|_| format!("extents {offset}+{len}, {limit}: {extents:?}"));
        let covered: u64 = extents.iter().map(|extent| extent.len).sum();
        assert!(extents.len() <= limit && extents.iter().all(|extent| extent.len > 0));
        assert!(extents.windows(2).all(|two| two[0].kind != two[1].kind), "neighbours differ");
        let whole = covered == len as u64;
        assert!(whole || (covered < len as u64 && extents.len() == limit), "all is covered");
        let mut at = offset;
        for extent in extents {
            for (page, ..) in parts(at, extent.len as usize) {
                let zeros = extent.kind == ExtentKind::Data || self.model.read_zeros(page);
                assert!(zeros, "page {page} is said to be {:?}", extent.kind);
            }
            at += extent.len;
        }
    }

    pub(super) fn flush(&mut self) {
        let before = self.backing.count(Fault::SyncError);
        let flushed = self.disk.flush();
        self.counted.flushes_total += 1;
        self.counted.failed_writes_total += u64::from(flushed.is_err());
        self.note(|_| format!("flush: {flushed:?}"));
        let failed = self.backing.count(Fault::SyncError) > before;
        assert_eq!(flushed.is_err(), failed, "a flush fails with the backing file");
    }

    pub(super) fn beyond_the_end(&mut self) {
        let size = self.disk.size();
        let offset = size - self.rng.below(3);
        let error = IoError::OutOfRange { offset, len: 4, size };
        let refused = if self.closed { IoError::Closed } else { error };
        assert_eq!(self.disk.write(offset, &[1; 4]), Err(refused));
        assert_eq!(self.disk.discard(offset, 4), Err(refused));
        assert_eq!(self.disk.read(offset, &mut [0; 4]), Err(error));
        self.counted.writes_total += 1;
        self.counted.written_bytes_total += 4;
        self.counted.discards_total += 1;
        self.counted.discarded_bytes_total += 4;
        self.counted.reads_total += 1;
        self.counted.read_bytes_total += 4;
        self.counted.failed_writes_total += 2;
        self.counted.failed_reads_total += 1;
    }
}
