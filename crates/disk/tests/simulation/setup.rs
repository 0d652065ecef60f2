//! What a run is: the device that it draws, how that may be wrong, and what came up.

use std::sync::Arc;

use zfold_disk::{Disk, DiskOptions, SectorSize};
use zfold_pool::{Contexts, Locking, PoolOptions};
use zfold_store::backing::{Backing, Fault, Faults, FaultyBacking, MemoryBacking};
use zfold_store::{
    BackingOptions, CodecKind, CodecSpec, Incompressible, Recompress, Selection, Store,
    StoreOptions,
};
use zfold_testing::Random;

use crate::model::PAGE;

/// What a deliberately wrong device does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// A write goes sector by sector, so that one that fails leaves a part of a page.
    TornPages,
    /// Some discards are not done.
    ForgottenDiscard,
    /// A read that fails says that it did not.
    HiddenError,
    /// A snapshot is compared with the moment at which it ended.
    LateSnapshot,
    /// A device takes changes while its last snapshot is written.
    OpenAtTheEnd,
}

/// What came up in a run, so that a set of runs can show that it covered everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) refused: u64,
    pub(crate) failed_reads: u64,
    pub(crate) failed_changes: u64,
    pub(crate) lost_pages: u64,
    pub(crate) snapshots: u64,
    pub(crate) failed_snapshots: u64,
    pub(crate) incomplete_snapshots: u64,
    pub(crate) changes_while_saving: u64,
    pub(crate) changes_after_the_end: u64,
    pub(crate) crashes: u64,
    pub(crate) written_back: u64,
    pub(crate) recompressed: u64,
    pub(crate) limited_checks: u64,
    pub(crate) over_limit_max: u64,
    pub(crate) faults: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Self) {
        self.refused += other.refused;
        self.failed_reads += other.failed_reads;
        self.failed_changes += other.failed_changes;
        self.lost_pages += other.lost_pages;
        self.snapshots += other.snapshots;
        self.failed_snapshots += other.failed_snapshots;
        self.incomplete_snapshots += other.incomplete_snapshots;
        self.changes_while_saving += other.changes_while_saving;
        self.changes_after_the_end += other.changes_after_the_end;
        self.crashes += other.crashes;
        self.written_back += other.written_back;
        self.recompressed += other.recompressed;
        self.limited_checks += other.limited_checks;
        self.over_limit_max = self.over_limit_max.max(other.over_limit_max);
        self.faults += other.faults;
    }

    /// Asserts that nothing was left out.
    pub(crate) fn assert_all(&self) {
        let all = [
            self.refused,
            self.failed_reads,
            self.failed_changes,
            self.lost_pages,
            self.snapshots,
            self.failed_snapshots,
            self.incomplete_snapshots,
            self.changes_while_saving,
            self.changes_after_the_end,
            self.crashes,
            self.written_back,
            self.recompressed,
            self.limited_checks,
            self.faults,
        ];
        assert!(all.iter().all(|&count| count > 0), "something never came up: {self:?}");
    }
}

/// What a run can be, drawn once.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) codec: CodecKind,
    pub(crate) recompress: bool,
    pub(crate) deduplicate: bool,
    pub(crate) key_header: bool,
    pub(crate) reject: bool,
    pub(crate) backing_bytes: usize,
    /// Per mille of calls with an error that is told.
    pub(crate) honest: u16,
    /// Per mille of calls with one that is not.
    pub(crate) lying: u16,
    /// Whether there is a limit most of the time.
    pub(crate) limited: bool,
}

impl Setup {
    /// Draws one.
    pub(crate) fn draw(rng: &mut Random) -> Self {
        let deduplicate = rng.once_in(2);
        Self {
            codec: rng.pick(&[CodecKind::Lz4, CodecKind::Lz4, CodecKind::Zstd]),
            recompress: !rng.once_in(3),
            deduplicate,
            key_header: !deduplicate && rng.once_in(4),
            reject: rng.once_in(6),
            backing_bytes: rng.pick(&[32 << 10, 128 << 10, 1 << 20]),
            honest: rng.pick(&[0, 30, 150]),
            lying: rng.pick(&[0, 0, 20]),
            limited: !rng.once_in(3),
        }
    }

    pub(crate) fn store(&self, slots: u64, backing: Arc<dyn Backing>) -> Store {
        // Neither depends on which CPU a thread is on or on how many there are.
        let mut pool = PoolOptions::default().with_locking(Locking::PoolLock);
        pool.rules.contexts = Contexts::Single;
        let mut options = StoreOptions::new(slots, self.codec.into());
        options.deduplicate = self.deduplicate;
        options.key_header = self.key_header;
        if self.reject {
            options.incompressible = Incompressible::Reject;
        }
        if self.recompress {
            let strong: CodecSpec = "zstd:3".parse().unwrap();
            options.recompression = vec![strong.into()];
        }
        options.backing = Some(BackingOptions::new(backing));
        Store::new(zfold_pool::create("simulated", &pool).unwrap(), &options).unwrap()
    }

    pub(crate) fn faults(&self) -> Faults {
        let mut faults = Faults::default();
        for fault in [Fault::ReadError, Fault::WriteError, Fault::NoSpace, Fault::ShortWrite] {
            faults = faults.with(fault, self.honest);
        }
        faults = faults.with(Fault::SyncError, self.honest * 5);
        for fault in [Fault::FlippedBit, Fault::LostWrite, Fault::MisdirectedWrite] {
            faults = faults.with(fault, self.lying);
        }
        faults
    }
}

/// Most pages of one write of the backing file.
pub(crate) const BATCH_MAX: u64 = 16;

/// Returns a device of `pages` pages, with a store.
pub(crate) fn device(
    setup: &Setup,
    pages: usize,
    backing: &Arc<FaultyBacking<MemoryBacking>>,
) -> (Arc<Store>, Arc<Disk>) {
    let store = Arc::new(setup.store(pages as u64, Arc::clone(backing) as Arc<dyn Backing>));
    warm_up(&store);
    let size = (pages * PAGE) as u64;
    let options = DiskOptions::new(size).with_sector(SectorSize::B512);
    let disk = Disk::new(Arc::clone(&store), &options).unwrap();
    (store, Arc::new(disk))
}

/// Has all buffers and contexts made that a thread needs, so that memory grows by pages alone
/// afterwards.
fn warm_up(store: &Store) {
    let mut rng = Random::new(1);
    let mut tunables = store.tunables();
    let batch = tunables.writeback_batch_pages;
    tunables.writeback_batch_pages = BATCH_MAX as u32;
    store.tune(&tunables).unwrap();
    let keys = store.slots().min(BATCH_MAX);
    let mut page = vec![0; PAGE];
    for round in 0..2 {
        for key in 0..keys {
            // Half noise, which every store takes, and compressible.
            page.iter_mut().take(PAGE / 2).for_each(|byte| *byte = rng.word() as u8);
            page[PAGE / 2..].fill(key as u8);
            store.store(key, &page).unwrap();
        }
        store.update(0, |page| page[0] ^= 1).unwrap();
        let how = Recompress::new(Selection::All, 1);
        let _ = store.recompress(&how);
        if round == 1 {
            let _ = store.writeback(&Selection::All, None);
        }
        (0..keys).for_each(|key| assert!(store.load(key, &mut page).unwrap()));
        store.invalidate_range(0..keys);
    }
    tunables.writeback_batch_pages = batch;
    store.tune(&tunables).unwrap();
    store.compact();
}
