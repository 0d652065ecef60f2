//! Models of T3: groups are given back while their slots are filled and emptied. Loom explores
//! all interleavings of two or three threads over groups of two slots, up to two preemptions.

use super::form::{Form, GROUP_BYTES};
use super::slot::Slot;
use super::table::{HELD, SlotTable};
use crate::entry::Entry;
use crate::sync::atomic::Ordering;
use loom::sync::Arc;
use loom::thread;

/// Returns an entry whose value lies beside a narrow slot.
fn entry(value: u64) -> Entry {
    Entry::same(value << 32 | 0x8000_0000_0000_0001)
}

/// Returns what a table with a group in use holds.
fn group_bytes(table: &SlotTable) -> u64 {
    let pages = if table.memory.form() == Form::Narrow { 2 } else { 1 };
    pages * GROUP_BYTES as u64
}

fn model_of(form: Form, run: impl Fn(Arc<SlotTable>) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || run(Arc::new(SlotTable::new(2, form).unwrap())));
}

/// Narrow slots, and then wide ones.
fn model(run: impl Fn(Arc<SlotTable>) + Send + Sync + 'static) {
    let run = std::sync::Arc::new(run);
    for form in [Form::Narrow, Form::Wide] {
        let run = std::sync::Arc::clone(&run);
        model_of(form, move |table| run(table));
    }
}

#[test]
fn a_slot_filled_while_its_group_is_given_back_keeps_its_entry() {
    model(|table| {
        table.lock(0).replace(entry(1));
        table.lock(0).replace(Entry::EMPTY);
        let giver = Arc::clone(&table);
        let giver = thread::spawn(move || giver.give_back(0));
        table.lock(1).replace(entry(7));
        giver.join().unwrap();
        assert_eq!(table.lock(1).entry(), entry(7));
        assert_eq!(table.bytes(), group_bytes(&table));
    });
}

#[test]
fn a_group_given_back_by_two_threads_is_uncounted_once() {
    model(|table| {
        table.lock(0).replace(entry(1));
        table.lock(0).replace(Entry::EMPTY);
        let givers = [0; 2].map(|_| {
            let table = Arc::clone(&table);
            thread::spawn(move || table.give_back(0))
        });
        givers.into_iter().for_each(|giver| giver.join().unwrap());
        assert_eq!(table.bytes(), 0);
        table.lock(0).replace(entry(2));
        assert_eq!(table.bytes(), group_bytes(&table));
    });
}

#[test]
fn two_threads_on_one_slot_take_turns() {
    model(|table| {
        let other = Arc::clone(&table);
        let other = thread::spawn(move || other.lock(0).replace(entry(1)));
        let before = table.lock(0).replace(entry(2));
        let other_before = other.join().unwrap();
        let last = table.lock(0).entry();
        let orders = [(Entry::EMPTY, entry(2), entry(1)), (entry(1), Entry::EMPTY, entry(2))];
        assert!(orders.contains(&(before, other_before, last)));
    });
}

/// A slot filled and emptied, and its group given back as `give_back` says, while another thread
/// fills the slot.
fn found_beside(give_back: impl Fn(&SlotTable) + Send + Sync + 'static) {
    model(move |table| {
        let other = Arc::clone(&table);
        let other = thread::spawn(move || other.lock(0).replace(entry(7)));
        table.lock(0).replace(entry(1));
        table.lock(0).replace(Entry::EMPTY);
        give_back(&table);
        let found = other.join().unwrap();
        assert!([Entry::EMPTY, entry(1)].contains(&found), "half an entry: {found:?}");
    });
}

#[test]
fn a_slot_that_was_given_back_is_found_empty() {
    found_beside(|table| table.give_back(0));
}

/// The twin: zeros that are not released.
#[test]
#[should_panic(expected = "half an entry")]
fn a_twin_that_clears_a_page_without_release_is_caught() {
    found_beside(|table| {
        let slot = Slot::of(&table.memory, 0);
        match slot.try_lock() {
            // Nobody uses the other slot.
            Some(0) => {
                table.group(0).store(0, Ordering::Relaxed);
                table.memory.clear(0, Ordering::Relaxed);
            }
            Some(word) => slot.unlock(word),
            None => {}
        }
    });
}

/// The twin: gives back without taking the slots' locks.
#[test]
#[should_panic(expected = "an entry was lost")]
fn a_twin_that_gives_back_without_the_locks_is_caught() {
    model(|table| {
        table.lock(0).replace(entry(1));
        table.lock(0).replace(Entry::EMPTY);
        let giver = Arc::clone(&table);
        let giver = thread::spawn(move || {
            if giver.group(0).load(Ordering::Relaxed) == HELD {
                giver.group(0).store(0, Ordering::Relaxed);
                // SAFETY: none: this is the bug that the model must see.
                unsafe { giver.memory.release(0) };
            }
        });
        table.lock(1).replace(entry(7));
        giver.join().unwrap();
        assert_eq!(table.lock(1).entry(), entry(7), "an entry was lost");
    });
}

/// The twin: the values beside a group go after its slots, whose locks no longer hold by then.
#[test]
#[should_panic(expected = "a value was lost")]
fn a_twin_that_gives_the_values_back_last_is_caught() {
    model_of(Form::Narrow, |table| {
        let giver = Arc::clone(&table);
        let giver = thread::spawn(move || {
            let locked = [0, 1].map(|index| Slot::of(&giver.memory, index).try_lock());
            for (index, word) in (0..).zip(locked) {
                if let Some(word) = word.filter(|_| locked != [Some(0); 2]) {
                    Slot::of(&giver.memory, index).unlock(word);
                }
            }
            if locked == [Some(0); 2] {
                // SAFETY: none for the second: this is the bug that the model must see.
                unsafe { giver.memory.release(0) };
                unsafe { giver.memory.release_beside(0) };
            }
        });
        table.lock(1).replace(entry(7));
        giver.join().unwrap();
        assert_eq!(table.lock(1).entry(), entry(7), "a value was lost");
    });
}
