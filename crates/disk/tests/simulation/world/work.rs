//! Work of the store: writeback, recompression, limits; and the faults of its backing file.

use zfold_store::{ProcessError, Recompress, Selection};

use super::World;
use crate::model::PAGE;
use crate::setup::BATCH_MAX;

/// By how much a call may leave more held than the limit: a zspage of its longest run for the one
/// page, and a page of the slot table.
const OVER_LIMIT: u64 = 17 * PAGE as u64;

impl World {
    pub(super) fn process_any(&mut self) {
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

    pub(super) fn write_back(&mut self, selection: &Selection, most: Option<u64>) {
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

    pub(super) fn recompress(&mut self, selection: Selection, most: Option<u64>) {
        let threshold_bytes = self.rng.once_in(2).then_some(700);
        let how = Recompress::new(selection, 1)
            .with_threshold_bytes(threshold_bytes)
            .with_max_pages(most);
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

    pub(super) fn limit_any(&mut self) {
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

    pub(super) fn limit(&mut self, limit_bytes: Option<u64>) {
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
    pub(super) fn check_limit(&mut self) {
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

    pub(super) fn switch_faults(&mut self) {
        self.faulty = !self.faulty;
        match self.faulty {
            true => self.backing.set(self.setup.faults()),
            false => self.backing.heal(),
        }
        self.note(|world| format!("faulty: {}", world.faulty));
    }
}
