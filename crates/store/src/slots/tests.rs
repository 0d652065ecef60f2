//! Tests of the slot table.

use std::collections::HashMap;

use super::form::{Form, GROUP_BYTES};
use super::table::SlotTable;
use crate::entry::{Entry, Flag, Kind, State};
use zfold_testing::random::mixed;
use zfold_testing::wait::at_once;

const FORMS: [Form; 2] = [Form::Wide, Form::Narrow];

fn entry(value: u64) -> Entry {
    Entry::same(value)
}

/// Returns an entry whose value lies beside a narrow slot.
fn odd(value: u64) -> Entry {
    Entry::same(value << 32 | 0x8000_0000_0000_0001)
}

/// Entries of every kind replace each other, and change flags and stamp, beside a model.
#[test]
fn entries_of_all_kinds_take_each_others_place() {
    for form in FORMS {
        let table = SlotTable::new(1000, form).unwrap();
        let mut model: HashMap<u64, Entry> = HashMap::new();
        for step in 1..100_000_u64 {
            let word = mixed(step);
            let (index, len) = (word >> 32 & 1023, word as usize % 4096);
            if index >= 1000 {
                continue;
            }
            let state = State::new(Kind::Compressed, len, (word >> 20) as u8 & 3);
            let put = match word >> 50 & 7 {
                0 => Entry::EMPTY,
                1 => entry(word >> 31),
                2 => entry(word),
                3 => Entry { state, value: word >> 1 },
                4 => Entry { state: state.with(Flag::Backed), value: word },
                5 => Entry::of_address(state, zfold_pool::Address::from_bits(word >> 10)),
                _ => Entry::of_address(state, zfold_pool::Address::from_bits(word >> 30)),
            };
            let used = |entry: Entry| {
                let state = entry.state.used(step as u32).set(Flag::Idle, step % 2 == 0);
                if entry.state.is_empty() { entry } else { Entry { state, ..entry } }
            };
            let before = table.lock(index).replace(put);
            assert_eq!(before, model.insert(index, used(put)).unwrap_or(Entry::EMPTY));
            let mut slot = table.lock(index);
            slot.set_state(used(put).state);
            drop(slot);
            let now = table.lock(index).entry();
            assert_eq!(now, used(put), "{form:?}");
            assert_eq!(table.state_now(index), now.state);
        }
        let present: Vec<u64> = std::iter::successors(table.next_present(0, 1000), |&key| {
            table.next_present(key + 1, 1000)
        })
        .collect();
        let mut expected: Vec<_> = model
            .iter()
            .filter(|(_, entry)| !entry.state.is_empty())
            .map(|(&key, _)| key)
            .collect();
        expected.sort_unstable();
        assert_eq!(present, expected);
    }
}

#[test]
fn groups_cost_memory_only_while_they_hold_something() {
    for form in FORMS {
        let table = SlotTable::new(1 << 40, form).unwrap();
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
}

#[test]
fn narrow_slots_take_three_quarters_and_values_beside_them_a_page() {
    let [wide, narrow] = FORMS.map(|form| SlotTable::new(100_000, form).unwrap());
    for index in 0..100_000 {
        let _ = [&wide, &narrow].map(|table| table.lock(index).replace(entry(index)));
    }
    assert_eq!((wide.bytes(), narrow.bytes()), (391 * 4096, 294 * 4096));
    // The first and last of one group, and one of another.
    for index in [0, 340, 341] {
        assert_eq!(narrow.lock(index).replace(odd(index)), entry(index));
    }
    assert_eq!(narrow.bytes(), 296 * 4096);
    assert_eq!([0, 340, 341].map(|index| narrow.lock(index).entry()), [0, 340, 341].map(odd));
    (0..100_000).for_each(|index| {
        narrow.lock(index).replace(Entry::EMPTY);
    });
    narrow.trim();
    assert_eq!(narrow.bytes(), 0);
}

#[test]
fn an_absent_slot_is_seen_without_a_write() {
    for form in FORMS {
        let table = SlotTable::new(1 << 20, form).unwrap();
        assert!(table.lock_present(77).is_none());
        assert_eq!(table.bytes(), 0);
    }
}

#[test]
#[should_panic(expected = "slot 8 of 8")]
fn a_slot_beyond_the_end_panics() {
    let _ = SlotTable::new(8, Form::Narrow).unwrap().lock(8);
}

#[test]
fn a_table_that_cannot_be_reserved_is_an_error() {
    for form in FORMS {
        assert!(SlotTable::new(u64::MAX, form).is_err());
        assert!(SlotTable::new(u64::MAX / 64, form).is_err());
    }
}

/// Threads fill and empty slots of the same few groups, so that groups are given back all
/// the time; no update may be lost.
#[test]
fn groups_given_back_under_traffic_lose_nothing() {
    for (form, entry) in
        [(Form::Wide, entry as fn(u64) -> _), (Form::Narrow, entry), (Form::Narrow, odd)]
    {
        let table = SlotTable::new(4 * form.group_slots(), form).unwrap();
        at_once(0..4_u64, |thread| {
            for round in 1..30_000 {
                // Each thread has its own slot in every group.
                let index = (round % 4) * form.group_slots() + thread;
                let put = entry(thread << 20 | round);
                assert_eq!(table.lock(index).replace(put), Entry::EMPTY);
                assert_eq!(table.lock(index).replace(Entry::EMPTY), put);
            }
        });
        table.trim();
        assert!(table.bytes() <= 8 * GROUP_BYTES as u64);
        (0..table.len()).for_each(|index| assert!(table.lock_present(index).is_none()));
    }
}
