//! One run: a device over a store over a pool and a backing file with faults, and the model that
//! all of it is held against.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;

use zfold_disk::{Disk, DiskStats, ExtentKind, Holes, IoError};
use zfold_store::backing::{Fault, Faults, FaultyBacking, MemoryBacking};
use zfold_store::snapshot::SnapshotError;
use zfold_store::{CodecKind, LoadError, ProcessError, Recompress, Selection, Store, StoreError};

use crate::model::{Model, PAGE, parts};
use crate::rng::Rng;
use crate::setup::{BATCH_MAX, Bug, Seen, Setup, device};

/// By how much a call may leave more held than the limit: a zspage of its longest run for the one
/// page, and a page of the slot table.
const OVER_LIMIT: u64 = 17 * PAGE as u64;

/// Steps that are told of a run that fails.
const TOLD: usize = 40;

pub(crate) struct World {
    rng: Rng,
    bug: Bug,
    setup: Setup,
    backing: Arc<FaultyBacking<MemoryBacking>>,
    store: Arc<Store>,
    disk: Arc<Disk>,
    model: Model,
    /// The last snapshot, and what it must hold.
    snapshot: Option<(Vec<u8>, Model)>,
    /// What the counters of the device must be.
    counted: DiskStats,
    codec_changed: bool,
    faulty: bool,
    saving: bool,
    /// Whether the device takes no changes any more.
    closed: bool,
    /// Held at most, while there is a limit.
    ceiling: Option<u64>,
    steps: VecDeque<String>,
    tell: bool,
    pub(crate) seen: Seen,
}

impl World {
    pub(crate) fn new(seed: u64, bug: Bug, tell: bool) -> Self {
        let mut rng = Rng(seed);
        let setup = Setup::draw(&mut rng);
        let memory = MemoryBacking::new(setup.backing_bytes);
        let backing = Arc::new(FaultyBacking::new(memory, Faults::default(), rng.next()));
        let pages = 24 + rng.below(80) as usize;
        let slots = pages as u64 * 2;
        let (store, disk) = device(&setup, slots, pages, &backing);
        let mut world = Self {
            rng,
            bug,
            setup,
            backing,
            store,
            disk,
            model: Model::new(pages),
            snapshot: None,
            counted: DiskStats::default(),
            codec_changed: false,
            faulty: false,
            saving: false,
            closed: false,
            ceiling: None,
            steps: VecDeque::new(),
            tell,
            seen: Seen::default(),
        };
        world.note(|world| format!("{pages} pages of {slots}, {:?}", world.setup));
        world
    }

    /// Does `steps` operations, ends all faults, and checks that nothing is lost but what a lying
    /// backing file has lost.
    pub(crate) fn run(&mut self, steps: usize) {
        for step in 0..steps {
            self.step();
            if step % 64 == 63 {
                self.check_at_rest();
            }
        }
        self.note(|_| "the end: healed, no limit".into());
        self.backing.heal();
        self.faulty = false;
        self.limit(None);
        self.check_at_rest();
        self.overwrite_what_is_lost();
        self.save_at_the_end();
        let size = self.disk.size();
        self.zero(0, size as usize, Some(Holes::Allow));
        self.check_at_rest();
        let stats = self.store.stats();
        assert_eq!((stats.stored_pages, stats.backing_used_bytes), (0, 0), "all is discarded");
        self.count_faults();
    }

    fn note(&mut self, text: impl FnOnce(&Self) -> String) {
        let text = text(self);
        if self.tell {
            eprintln!("{text}");
        }
        self.steps.push_back(text);
        if self.steps.len() > TOLD {
            self.steps.pop_front();
        }
    }

    pub(crate) fn last_steps(&self) -> String {
        Vec::from_iter(self.steps.iter().cloned()).join("\n")
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..=29 => self.write_any(),
            30..=54 => self.read_any(),
            55..=62 => self.zero_any(),
            63..=66 => self.extents_any(),
            67..=68 => self.flush(),
            69..=80 => self.process_any(),
            81..=82 => _ = self.store.mark_idle(None),
            83..=84 => _ = self.store.compact(),
            85..=88 => self.limit_any(),
            // What is lost once the device is closed nobody can write anew.
            89..=90 if !self.closed => self.switch_faults(),
            91 => self.beyond_the_end(),
            92 => self.grow(),
            93..=95 if !self.saving => self.save_any(),
            96 if !self.saving && self.rng.once_in(2) => self.crash(),
            97 if !self.saving && self.rng.once_in(4) => self.reset(),
            _ => {}
        }
        self.settle();
        self.check_limit();
    }

    /// Returns the offset and length of a request: within a page, of pages, or anything.
    fn range(&mut self) -> (u64, usize) {
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

    fn write_any(&mut self) {
        let (offset, len) = self.range();
        let mut data = Vec::with_capacity(len);
        while data.len() < len {
            let piece = (len - data.len()).min(PAGE - (offset as usize + data.len()) % PAGE);
            data.extend(self.rng.bytes(piece));
        }
        self.write(offset, &data);
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> bool {
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

    fn read_any(&mut self) {
        let (offset, len) = self.range();
        self.read(offset, len);
    }

    fn read(&mut self, offset: u64, len: usize) -> bool {
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

    fn zero_any(&mut self) {
        let (offset, len) = self.range();
        let how = self.rng.pick(&[None, Some(Holes::Allow), Some(Holes::Forbid)]);
        self.zero(offset, len, how);
    }

    /// Discards a range, or writes zeros to it.
    fn zero(&mut self, offset: u64, len: usize, how: Option<Holes>) {
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
    fn changed(&mut self, result: Result<(), IoError>, before: u64) {
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

    /// Returns a number that grows when the backing file gives a reason for reads to fail now.
    fn read_trouble(&self) -> u64 {
        self.backing.count(Fault::ReadError) + self.backing.count(Fault::FlippedBit)
    }

    /// Returns whether pages may be lost for good.
    fn lied_to(&self) -> bool {
        self.backing.count(Fault::LostWrite) + self.backing.count(Fault::MisdirectedWrite) > 0
    }

    fn count_faults(&mut self) {
        let count = |&fault: &Fault| self.backing.count(fault);
        self.seen.faults += Fault::ALL.iter().map(count).sum::<u64>();
    }

    fn assert_trouble(&self, before: u64, what: &str) {
        let reason = self.lied_to() || self.read_trouble() > before;
        assert!(reason, "{what} failed, and the backing file is not to blame");
    }

    fn extents_any(&mut self) {
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

    fn flush(&mut self) {
        let before = self.backing.count(Fault::SyncError);
        let flushed = self.disk.flush();
        self.counted.flushes_total += 1;
        self.counted.failed_writes_total += u64::from(flushed.is_err());
        self.note(|_| format!("flush: {flushed:?}"));
        let failed = self.backing.count(Fault::SyncError) > before;
        assert_eq!(flushed.is_err(), failed, "a flush fails with the backing file");
    }

    fn process_any(&mut self) {
        let first = self.rng.below(self.model.pages() as u64);
        let selection = match self.rng.below(8) {
            0 => Selection::All,
            1 => Selection::Idle,
            2 => Selection::Huge,
            3 => Selection::HugeIdle,
            4 => Selection::Incompressible,
            5 => Selection::Keys(vec![first..first + 9, 0..4, first + 5..first + 12]),
            _ => Selection::Lru,
        };
        let most = (!self.rng.once_in(3)).then(|| self.rng.below(24));
        if self.rng.once_in(3) {
            self.recompress(selection, most);
        } else {
            self.write_back(&selection, most);
        }
    }

    fn write_back(&mut self, selection: &Selection, most: Option<u64>) {
        let before = self.store.stats().backed_pages;
        let written = self.store.writeback(selection, most);
        self.note(|_| format!("write back {selection:?}, {most:?}: {written:?}"));
        let now = self.store.stats().backed_pages;
        match written {
            Ok(written) => {
                assert_eq!(now - before, written.pages);
                assert!(most.is_none_or(|most| written.pages <= most));
                self.seen.written_back += written.pages;
            }
            Err(ProcessError::Backing(_)) => assert!(self.faulty, "a write failed"),
            Err(ProcessError::BackingFull | ProcessError::WritebackLimit) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn recompress(&mut self, selection: Selection, most: Option<u64>) {
        let threshold_bytes = self.rng.once_in(2).then_some(700);
        let how = Recompress { selection, threshold_bytes, max_pages: most, priority: 1 };
        let done = self.store.recompress(&how);
        self.note(|_| format!("recompress {how:?}: {done:?}"));
        match done {
            Ok(done) => {
                assert!(done.bytes_after <= done.bytes_before);
                assert!(most.is_none_or(|most| done.pages <= most));
                self.seen.recompressed += done.pages;
            }
            Err(ProcessError::Priority { max: 0, .. }) => assert!(!self.setup.recompress),
            Err(error) => panic!("{error}"),
        }
    }

    fn limit_any(&mut self) {
        let held = self.store.held_bytes();
        let limit = match self.rng.below(4) {
            _ if !self.setup.limited => None,
            0 => None,
            1 => Some(held + self.rng.below(64) * PAGE as u64),
            2 => Some(held.saturating_sub(self.rng.below(32) * PAGE as u64)),
            _ => Some(held),
        };
        self.limit(limit);
    }

    fn limit(&mut self, limit_bytes: Option<u64>) {
        let mut tunables = self.store.tunables();
        tunables.limit_bytes = limit_bytes;
        tunables.accept_percent = self.rng.pick(&[50, 90, 100]);
        tunables.same_filled = !self.rng.once_in(8);
        tunables.writeback_batch_pages = 1 + self.rng.below(BATCH_MAX) as u32;
        tunables.writeback_limit_pages =
            (limit_bytes.is_some() && self.rng.once_in(6)).then(|| self.rng.below(40));
        self.store.tune(&tunables).unwrap();
        self.ceiling = limit_bytes.map(|limit| limit.max(self.store.held_bytes()));
        self.note(|_| format!("{tunables:?}"));
    }

    /// What is held only falls to a limit that was lowered below it, and never grows beyond.
    fn check_limit(&mut self) {
        let (Some(ceiling), Some(limit)) = (self.ceiling, self.store.tunables().limit_bytes) else {
            return;
        };
        // Preserved pages of a snapshot count, and are let go by it alone.
        let held = self.store.held_bytes();
        let over = held.saturating_sub(ceiling);
        assert!(over <= OVER_LIMIT, "{held} bytes held, {over} more than {ceiling} allow");
        self.seen.limited_checks += 1;
        self.seen.over_limit_max = self.seen.over_limit_max.max(over);
        self.ceiling = Some(ceiling.min(held.max(limit)));
    }

    fn switch_faults(&mut self) {
        self.faulty = !self.faulty;
        match self.faulty {
            true => self.backing.set(self.setup.faults()),
            false => self.backing.heal(),
        }
        self.note(|world| format!("faulty: {}", world.faulty));
    }

    fn beyond_the_end(&mut self) {
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

    fn grow(&mut self) {
        let pages = self.model.pages() + self.rng.below(3) as usize;
        let size = (pages * PAGE) as u64;
        if self.disk.grow(size).is_ok() {
            self.model.grow(pages);
            self.note(|_| format!("grown to {pages} pages"));
        } else {
            assert!(size > self.disk.max_size(), "{size} bytes are refused");
        }
    }

    fn save_any(&mut self) {
        let room = self.rng.once_in(5).then(|| self.rng.below(100_000) as usize);
        _ = self.save(room);
    }

    /// Closes the device and saves it, while clients go on; what they were told is kept is kept.
    fn save_at_the_end(&mut self) {
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

    /// Drops all contents, as nobody uses the device.
    fn reset(&mut self) {
        let user = self.disk.attach("a client");
        assert_eq!(self.disk.claim().err(), Some(vec!["a client"]));
        drop(user);
        let claim = self.disk.claim().expect("nobody is left");
        self.store.invalidate_range(0..self.store.slots());
        drop(claim);
        self.note(|_| "reset".into());
        self.model = Model::new(self.model.pages());
        self.seen.resets += 1;
    }

    /// Takes a snapshot while other things happen; with `room`, its file cannot be longer.
    /// Returns whether it was written.
    fn save(&mut self, room: Option<usize>) -> bool {
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

    fn check_snapshot(&self, file: &[u8], mut moment: Model, lost: u64) {
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
    fn crash(&mut self) {
        self.note(|_| "crash".into());
        self.seen.crashes += 1;
        let slots = self.store.slots();
        // Another codec may read the snapshot from now on.
        let codec = self.rng.pick(&[CodecKind::Lz4, CodecKind::Zstd]);
        self.codec_changed |= codec != self.setup.codec;
        self.setup.codec = codec;
        let memory = MemoryBacking::new(self.setup.backing_bytes);
        let seed = self.rng.next();
        self.count_faults();
        self.backing = Arc::new(FaultyBacking::new(memory, Faults::default(), seed));
        self.faulty = false;
        let pages = self.model.pages();
        (self.store, self.disk) = device(&self.setup, slots, pages, &self.backing);
        self.closed = false;
        self.counted = DiskStats::default();
        self.ceiling = None;
        self.model = Model::new(pages);
        if let Some((file, moment)) = &self.snapshot {
            match self.store.restore(&mut &file[..]) {
                Ok(report) => {
                    assert_eq!(report.pages, self.store.len());
                    self.model = moment.clone();
                    self.model.grow(pages);
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

    /// Reads pages that have become too uncertain, or else overwrites them.
    fn settle(&mut self) {
        while let Some(page) = self.model.uncertain() {
            let offset = (page * PAGE) as u64;
            if !self.read(offset, PAGE) {
                self.zero(offset, PAGE, Some(Holes::Allow));
            }
        }
    }

    /// Checks everything, while nothing else happens.
    fn check_at_rest(&mut self) {
        self.store.check();
        for page in 0..self.model.pages() {
            self.read((page * PAGE) as u64, PAGE);
        }
        let mut stats = self.disk.stats();
        if self.bug == Bug::None {
            // How many pages were there is the store's matter.
            stats.notify_free_total = 0;
            assert_eq!(stats, self.counted, "the device's counters");
        }
        let present = (0..self.store.slots()).filter(|&key| self.store.contains(key)).count();
        assert_eq!(self.store.stats().stored_pages, present as u64, "the store's counters");
    }

    /// A page that a lying backing file has lost stays lost, until it is written anew.
    fn overwrite_what_is_lost(&mut self) {
        for page in 0..self.model.pages() {
            let offset = (page * PAGE) as u64;
            if self.read(offset, PAGE) {
                continue;
            }
            assert!(!self.read(offset, PAGE), "page {page} was lost only once");
            self.seen.lost_pages += 1;
            assert!(self.write(offset, &[page as u8 + 1; PAGE]), "page {page} can be written");
            assert!(self.read(offset, PAGE), "page {page} can be read again");
        }
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
