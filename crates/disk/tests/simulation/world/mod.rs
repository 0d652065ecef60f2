//! One run: a device over a store over a pool and a backing file with faults, and the model that
//! all of it is held against.

mod requests;
mod snapshots;
mod work;

use std::collections::VecDeque;
use std::sync::Arc;

use zfold_disk::{Disk, DiskStats, Holes};
use zfold_store::Store;
use zfold_store::backing::{Fault, Faults, FaultyBacking, MemoryBacking};
use zfold_testing::Random;

use crate::model::{Model, PAGE};
use crate::setup::{Bug, Seen, Setup, device};

/// Steps that are told of a run that fails.
const TOLD: usize = 40;

pub(crate) struct World {
    rng: Random,
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
        let mut rng = Random::new(seed);
        let setup = Setup::draw(&mut rng);
        let memory = MemoryBacking::new(setup.backing_bytes);
        let backing = Arc::new(FaultyBacking::new(memory, Faults::default(), rng.word()));
        let pages = 24 + rng.below(80) as usize;
        let (store, disk) = device(&setup, pages, &backing);
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
        world.note(|world| format!("{pages} pages, {:?}", world.setup));
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
            93..=95 if !self.saving => self.save_any(),
            96 if !self.saving && self.rng.once_in(2) => self.crash(),
            _ => {}
        }
        self.settle();
        self.check_limit();
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
