//! Tests of the slot table.

use super::slot::{GROUP_BYTES, GROUP_SLOTS};
use super::table::SlotTable;
use crate::entry::Entry;

fn entry(value: u64) -> Entry {
    Entry::same(value)
}

#[test]
fn slots_keep_what_was_put_in() {
    let table = SlotTable::new(10_000).unwrap();
    for index in (0..10_000).step_by(3) {
        assert_eq!(table.lock(index).replace(entry(index)), Entry::EMPTY);
    }
    for index in 0..10_000 {
        let found = table.lock_present(index).map(|slot| slot.entry());
        assert_eq!(found, (index % 3 == 0).then(|| entry(index)));
    }
}

#[test]
fn groups_cost_memory_only_while_they_hold_something() {
    let table = SlotTable::new(1 << 40).unwrap();
    assert_eq!(table.bytes(), 0);
    for index in [0, 1, 1 << 30, (1 << 40) - 1] {
        table.lock(index).replace(entry(1));
    }
    assert_eq!(table.bytes(), 3 * GROUP_BYTES as u64);
    for index in [0, 1, 1 << 30, (1 << 40) - 1] {
        table.lock(index).replace(Entry::EMPTY);
    }
    assert_eq!(table.bytes(), GROUP_BYTES as u64, "one group is parked");
    table.trim();
    assert_eq!(table.bytes(), 0);
    table.lock(1).replace(entry(5));
    assert_eq!(table.lock(1).entry(), entry(5));
}

#[test]
fn an_absent_slot_is_seen_without_a_write() {
    let table = SlotTable::new(1 << 20).unwrap();
    assert!(table.lock_present(77).is_none());
    assert_eq!(table.bytes(), 0);
}

#[test]
#[should_panic(expected = "slot 8 of 8")]
fn a_slot_beyond_the_end_panics() {
    let _ = SlotTable::new(8).unwrap().lock(8);
}

#[test]
fn a_table_that_cannot_be_reserved_is_an_error() {
    assert!(SlotTable::new(u64::MAX).is_err());
    assert!(SlotTable::new(u64::MAX / 64).is_err());
}

/// Threads fill and empty slots of the same few groups, so that groups are given back all
/// the time; no update may be lost.
#[test]
fn groups_given_back_under_traffic_lose_nothing() {
    let table = SlotTable::new(4 * GROUP_SLOTS).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let table = &table;
            scope.spawn(move || {
                for round in 1..30_000 {
                    // Each thread has its own slot in every group.
                    let index = (round % 4) * GROUP_SLOTS + thread;
                    let put = entry(thread << 32 | round);
                    assert_eq!(table.lock(index).replace(put), Entry::EMPTY);
                    assert_eq!(table.lock(index).replace(Entry::EMPTY), put);
                }
            });
        }
    });
    table.trim();
    assert!(table.bytes() <= 4 * GROUP_BYTES as u64);
    (0..table.len()).for_each(|index| assert!(table.lock_present(index).is_none()));
}
