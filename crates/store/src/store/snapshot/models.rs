//! Models of S1 to S3: one thread sweeps the slots while another one fills, replaces or empties a
//! slot. Loom explores all interleavings of the two, up to three preemptions.
//!
//! The replacer is `Store::install` and the sweeper is [`Sweep`](super::save), both without
//! bytes: what they do to slots, epoch and list is the same, in the same order. Not modelled:
//! forms on a backing file, and panics.

use loom::sync::Arc;
use loom::thread;

use super::epoch::Saving;
use crate::entry::{Entry, Flag};
use crate::slots::{Form, SlotTable};

struct Shared {
    table: SlotTable,
    saving: Saving,
}

/// In what a replacer may be wrong.
#[derive(Clone, Copy, PartialEq)]
enum Replacer {
    Right,
    /// It does not announce that it fills an empty slot.
    Silent,
    /// It looks at the epoch before it has locked the slot.
    Hasty,
}

/// Puts `entry` into slot 0.
fn install(shared: &Shared, mut entry: Entry, replacer: Replacer) {
    let hasty = (replacer == Replacer::Hasty).then(|| shared.saving.epoch());
    let mut slot = shared.table.lock(0);
    if replacer != Replacer::Silent && !entry.state.is_empty() {
        slot.announce();
    }
    let epoch = hasty.unwrap_or_else(|| shared.saving.epoch());
    if !entry.state.is_empty() {
        entry.state = entry.state.set(Flag::Epoch, epoch);
    }
    let old = slot.entry();
    if !old.state.is_empty() && old.state.has(Flag::Epoch) != epoch {
        shared.saving.preserve(0, old);
    }
    slot.replace(entry);
}

/// Returns the values that a snapshot has.
fn sweep(shared: &Shared) -> Vec<u64> {
    let epoch = shared.saving.turn_over();
    let mut written = Vec::new();
    let mut next = 0;
    while let Some(key) = shared.table.next_in_use(next, shared.table.len()) {
        let mut slot = shared.table.lock(key);
        let entry = slot.entry();
        if !entry.state.is_empty() && entry.state.has(Flag::Epoch) != epoch {
            slot.set_state(entry.state.set(Flag::Epoch, epoch));
            written.push(entry.value);
        }
        next = key + 1;
    }
    while let Some((_, entry)) = shared.saving.next_preserved() {
        written.push(entry.value);
    }
    written
}

/// Sweeps while slot 0, which holds `before`, gets `after`; the snapshot must be of one of them.
fn model(before: Option<u64>, after: Option<u64>, replacer: Replacer) {
    let entry = |value: Option<u64>| value.map_or(Entry::EMPTY, Entry::same);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let (table, saving) = (SlotTable::new(1, Form::Narrow).unwrap(), Saving::default());
        let shared = Arc::new(Shared { table, saving });
        if before.is_some() {
            shared.table.lock(0).replace(entry(before));
        }
        let sweeper = thread::spawn({
            let shared = Arc::clone(&shared);
            move || sweep(&shared)
        });
        install(&shared, entry(after), replacer);
        let written = sweeper.join().unwrap();
        let left = shared.table.lock(0).entry().state;
        let swept = left.is_empty() || left.has(Flag::Epoch) == shared.saving.epoch();
        assert!(swept, "S3: an entry was left behind");
        assert_eq!(shared.saving.next_preserved(), None, "S3: an entry was preserved for nobody");
        let one_of_them = [before, after].iter().any(|value| written == Vec::from_iter(*value));
        assert!(one_of_them, "the snapshot is of no moment: {written:?}");
    });
}

#[test]
fn a_page_replaced_while_a_snapshot_begins_is_in_it_once() {
    model(Some(1), Some(2), Replacer::Right);
}

#[test]
fn a_page_dropped_while_a_snapshot_begins_is_in_it_once_or_not_at_all() {
    model(Some(1), None, Replacer::Right);
}

#[test]
fn a_slot_filled_while_a_snapshot_begins_is_in_this_one_or_the_next() {
    model(None, Some(2), Replacer::Right);
}

#[test]
#[should_panic(expected = "S3: an entry was left behind")]
fn a_twin_that_fills_a_slot_unannounced_is_caught() {
    model(None, Some(2), Replacer::Silent);
}

#[test]
#[should_panic(expected = "S3: an entry was left behind")]
fn a_twin_that_looks_at_the_epoch_before_the_lock_is_caught() {
    model(Some(1), Some(2), Replacer::Hasty);
}
