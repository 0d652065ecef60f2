//! Writing a snapshot: the sweep over the slots.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use super::error::{LABEL_MAX, SnapshotError, SnapshotReport};
use super::format::{Header, Record, Writer};
use crate::entry::{Entry, Flag, State};
use crate::error::LoadError;
use crate::files::{Readers, beside, replace_or, replaceable};
use crate::store::Store;

/// Slots swept between two looks at the list of preserved entries.
const SWEEP: usize = 256;

impl Store {
    /// Writes what the store holds at this moment to `out`. Other calls go on meanwhile; pages that
    /// they replace stay in memory until they are written. `label` is the owner's, and comes back
    /// with [`Header`]. Of pages that cannot be read, because they or the backing file are damaged,
    /// the report says how many there are; restored, they fail to load.
    ///
    /// # Errors
    /// [`SnapshotError`]; the output is not a complete snapshot then, and the store is unchanged.
    ///
    /// # Cost
    /// A copy of everything held; no codec.
    pub fn save(&self, label: &[u8], out: &mut dyn Write) -> Result<SnapshotReport, SnapshotError> {
        if label.len() > LABEL_MAX {
            return Err(SnapshotError::Label(label.len()));
        }
        let _turn = self.saving.turn.lock();
        let epoch = self.saving.turn_over();
        let header = Header {
            page_len: self.pages.len,
            label: label.to_vec(),
            codecs: self.pages.contexts.choices().to_vec(),
        };
        // What remains of the snapshot if a write panics.
        let broken = || Err(SnapshotError::Io(io::ErrorKind::BrokenPipe.into()));
        let mut sweep = Sweep { store: self, epoch, written: broken(), kept: Vec::new() };
        let swept = catch_unwind(AssertUnwindSafe(|| {
            // Moved, because the writer outlives the closure.
            let out = out;
            // S3: also a snapshot that fails with its first byte is swept to its end.
            sweep.written = Writer::begin(out, &header);
            sweep.run();
        }));
        if let Err(panic) = swept {
            sweep.written = broken();
            sweep.run();
            resume_unwind(panic);
        }
        sweep.written?.finish()
    }

    /// Saves to a file as [`save`](Self::save) does: the file at `path` is replaced as a whole
    /// once the new one is complete and on stable storage, else left alone.
    ///
    /// # Errors
    /// [`SnapshotError`]; [`Lost`](SnapshotError::Lost) if some pages cannot be read: then the
    /// others are in a file beside, whose name ends with `.incomplete`.
    pub fn save_to(&self, label: &[u8], path: &Path) -> Result<SnapshotReport, SnapshotError> {
        let incomplete = beside(&replaceable(path)?, ".incomplete");
        let target = |path: &Path, report: &SnapshotReport| match report.lost_pages {
            0 => path.to_owned(),
            _ => incomplete.clone(),
        };
        let report = replace_or(path, Readers::Owner, |out| self.save(label, out), target)?;
        match report.lost_pages {
            0 => Ok(report),
            pages => Err(SnapshotError::Lost { pages, saved: incomplete }),
        }
    }
}

/// A sweep over the slots.
struct Sweep<'a> {
    store: &'a Store,
    epoch: bool,
    /// The snapshot so far, or why there will be none (S3).
    written: Result<Writer<'a>, SnapshotError>,
    /// Bytes of the page at hand.
    kept: Vec<u8>,
}

impl Sweep<'_> {
    fn run(&mut self) {
        let slots = &self.store.slots;
        let (mut next, mut swept) = (0, 0);
        while let Some(key) = slots.next_in_use(next, slots.len()) {
            self.slot(key);
            next = key + 1;
            swept += 1;
            if swept % SWEEP == 0 {
                self.preserved();
            }
        }
        self.preserved();
    }

    /// Writes what a slot holds, if the snapshot needs it.
    fn slot(&mut self, key: u64) {
        loop {
            let mut slot = self.store.slots.lock(key);
            let entry = slot.entry();
            if entry.state.is_empty() || entry.state.has(Flag::Epoch) == self.epoch {
                return;
            }
            if !entry.state.has(Flag::Backed) || self.written.is_err() {
                let kept = self.keep(key, entry);
                slot.set_state(entry.state.set(Flag::Epoch, self.epoch));
                drop(slot);
                return self.write(key, entry.state, kept);
            }
            drop(slot);
            let kept = self.keep(key, entry);
            let mut slot = self.store.slots.lock(key);
            let now = slot.entry();
            if now.is_form_of(entry) {
                slot.set_state(now.state.set(Flag::Epoch, self.epoch));
                drop(slot);
                return self.write(key, entry.state, kept);
            }
            // It was replaced, and so preserved, or brought into another form.
        }
    }

    /// Writes and frees the entries that were replaced.
    fn preserved(&mut self) {
        while let Some((key, entry)) = self.store.saving.next_preserved() {
            let kept = self.keep(key, entry);
            // Before the write, which may panic.
            self.store.pages.release(entry);
            self.write(key, entry.state, kept);
        }
    }

    /// Copies what is kept of a page; no thread frees it meanwhile, or the checksum detects that.
    fn keep(&mut self, key: u64, entry: Entry) -> Result<(), LoadError> {
        self.kept.clear();
        if self.written.is_err() {
            return Ok(());
        }
        self.store.pages.copy_kept(key, entry, &mut self.kept)
    }

    fn write(&mut self, key: u64, state: State, kept: Result<(), LoadError>) {
        let Ok(writer) = &mut self.written else { return };
        let (kind, priority) = (state.kind(), state.priority());
        let written = match kept {
            Ok(()) => writer.page(&Record { key, kind, priority, kept: &self.kept }),
            Err(LoadError::Dead) => Err(SnapshotError::Load(LoadError::Dead)),
            Err(_) => writer.page(&Record::lost(key)),
        };
        if let Err(error) = written {
            self.written = Err(error);
        }
    }
}
