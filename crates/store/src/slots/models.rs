//! Models of T3: groups are given back while their slots are filled and emptied. Loom explores
//! all interleavings of two or three threads over groups of two slots, up to two preemptions.

use super::slot::GROUP_BYTES;
use super::table::{HELD, SlotTable};
use crate::entry::{Entry, State};
use crate::sync::atomic::Ordering;
use loom::sync::Arc;
use loom::thread;

fn entry(value: u64) -> Entry {
    Entry::same(value)
}

fn model(run: impl Fn(Arc<SlotTable>) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || run(Arc::new(SlotTable::new(2).unwrap())));
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
        assert_eq!(table.bytes(), GROUP_BYTES as u64);
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
        assert_eq!(table.bytes(), GROUP_BYTES as u64);
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
        let slot = table.memory.slot(0);
        match slot.try_lock() {
            // Nobody uses the other slot.
            Some(State::EMPTY) => {
                table.group(0).store(0, Ordering::Relaxed);
                table.memory.clear(0, Ordering::Relaxed);
            }
            Some(state) => slot.unlock(state),
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
