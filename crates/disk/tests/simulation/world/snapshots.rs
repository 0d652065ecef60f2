//! Snapshots, while other things happen, and what is left after a crash.

use std::io::{self, Write};
use std::sync::Arc;

use zfold_disk::DiskStats;
use zfold_store::backing::{Faults, FaultyBacking, MemoryBacking};
use zfold_store::snapshot::SnapshotError;
use zfold_store::{CodecKind, LoadError, StoreError};

use super::World;
use crate::model::{Model, PAGE};
use crate::setup::{Bug, device};

impl World {
    pub(super) fn save_any(&mut self) {
        let room = self.rng.once_in(5).then(|| self.rng.below(100_000) as usize);
        _ = self.save(room);
    }

    /// Closes the device and saves it, while clients go on; what they were told is kept is kept.
    pub(super) fn save_at_the_end(&mut self) {
        if self.bug != Bug::OpenAtTheEnd {
            self.disk.close();
            self.closed = true;
        }
        assert!(self.save(None), "all can be saved");
        let acknowledged = self.model.clone();
        self.crash();
        if self.store.is_empty() {
            // A page was refused by the codec that came with the crash.
            return;
        }
        let mut found = vec![0; PAGE];
        for page in 0..acknowledged.pages() {
            let read = self.disk.read((page * PAGE) as u64, &mut found);
            self.counted.reads_total += 1;
            self.counted.read_bytes_total += PAGE as u64;
            read.expect("a page in memory");
            let kept = acknowledged.clone().read((page * PAGE) as u64, &found).is_ok();
            assert!(kept, "page {page} has lost what was acknowledged before the end");
        }
    }

    /// Takes a snapshot while other things happen; with `room`, its file cannot be longer.
    /// Returns whether it was written.
    pub(super) fn save(&mut self, room: Option<usize>) -> bool {
        self.note(|_| "a snapshot begins".into());
        let moment = self.model.clone();
        let before = self.read_trouble();
        let store = Arc::clone(&self.store);
        self.saving = true;
        let mut sink = Sink { world: self, file: Vec::new(), room, writes: 0 };
        let saved = store.save(b"simulation", &mut sink);
        let file = sink.file;
        self.saving = false;
        self.note(|_| format!("the snapshot ends: {saved:?}"));
        let whole = saved.as_ref().is_ok_and(|report| report.lost_pages == 0);
        let moment = if self.bug == Bug::LateSnapshot { self.model.clone() } else { moment };
        match saved {
            Ok(report) => {
                assert_eq!(report.bytes, file.len() as u64);
                self.check_snapshot(&file, moment.clone(), report.lost_pages);
                if report.lost_pages == 0 {
                    self.seen.snapshots += 1;
                    self.snapshot = Some((file, moment));
                } else {
                    self.assert_trouble(before, "a snapshot of a page");
                    self.seen.incomplete_snapshots += 1;
                }
            }
            Err(SnapshotError::Io(_)) => {
                assert!(room.is_some(), "the snapshot's file had room");
                self.seen.failed_snapshots += 1;
            }
            Err(error) => panic!("{error}"),
        }
        self.store.check();
        whole
    }

    pub(super) fn check_snapshot(&self, file: &[u8], mut moment: Model, lost: u64) {
        let backing = Arc::new(MemoryBacking::new(PAGE));
        let restored = self.setup.store(self.store.slots(), backing);
        match restored.restore(&mut &*file) {
            Ok(_) => {}
            // A page that came from a store with another codec, and lay on the backing file whole,
            // need not fit behind a key header by this store's first codec.
            Err(SnapshotError::Store(StoreError::Incompressible))
                if self.setup.key_header && self.codec_changed =>
            {
                return;
            }
            Err(error) => panic!("a snapshot that was just written: {error}"),
        }
        let mut page = vec![0; PAGE];
        let mut failed = 0;
        for key in 0..moment.pages() {
            match restored.load(key as u64, &mut page) {
                Ok(true) => {}
                Ok(false) => page.fill(0),
                Err(error) => {
                    assert_eq!(error, LoadError::Damaged { key: key as u64 });
                    failed += 1;
                    continue;
                }
            }
            let right = moment.read((key * PAGE) as u64, &page).is_ok();
            assert!(right, "page {key} of the snapshot is not of the moment it began");
        }
        assert_eq!(failed, lost, "what is lost is told");
        let beyond = restored.next_present(moment.pages() as u64..restored.slots());
        assert_eq!(beyond, None, "a page beyond the end of the device");
    }

    /// Loses all but the last snapshot.
    pub(super) fn crash(&mut self) {
        self.note(|_| "crash".into());
        self.seen.crashes += 1;
        // Another codec may read the snapshot from now on.
        let codec = self.rng.pick(&[CodecKind::Lz4, CodecKind::Zstd]);
        self.codec_changed |= codec != self.setup.codec;
        self.setup.codec = codec;
        let memory = MemoryBacking::new(self.setup.backing_bytes);
        let seed = self.rng.word();
        self.count_faults();
        self.backing = Arc::new(FaultyBacking::new(memory, Faults::default(), seed));
        self.faulty = false;
        let pages = self.model.pages();
        (self.store, self.disk) = device(&self.setup, pages, &self.backing);
        self.closed = false;
        self.counted = DiskStats::default();
        self.ceiling = None;
        self.model = Model::new(pages);
        if let Some((file, moment)) = &self.snapshot {
            match self.store.restore(&mut &file[..]) {
                Ok(report) => {
                    assert_eq!(report.pages, self.store.len());
                    self.model = moment.clone();
                }
                // With another codec a page may be noise that is refused.
                Err(SnapshotError::Store(_)) => {
                    assert!(self.setup.reject || self.setup.key_header, "a page was refused");
                    assert!(self.store.is_empty());
                }
                Err(error) => panic!("{error}"),
            }
        }
        self.check_at_rest();
    }
}

/// Where a snapshot goes, and where time passes while it is written.
struct Sink<'a> {
    world: &'a mut World,
    file: Vec<u8>,
    room: Option<usize>,
    writes: u64,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writes += 1;
        if self.world.rng.once_in(4) {
            self.world.step();
        }
        if self.room.is_some_and(|room| self.file.len() + bytes.len() > room) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // A part, now and then, as writers may.
        let taken =
            if self.writes.is_multiple_of(7) { bytes.len().div_ceil(2) } else { bytes.len() };
        self.file.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
