//! Models of P1 and P3: one thread brings a page into another form while another one uses it.
//! Loom explores all interleavings of the two, up to three preemptions.
//!
//! The processor does to the slot what `choose`, `still_marked` and `swap_form` do; a form is the
//! value with [`FORM`] set. Not modelled: bytes, and who frees them.

use loom::sync::Arc;
use loom::thread;

use crate::entry::{Entry, Flag};
use crate::slots::{Form, SlotTable};

/// Tells the new form of a page from the old one.
const FORM: u64 = 1 << 40;

/// Chooses the page of slot 0, works on it, and swaps the form in; returns whether it did.
fn process(table: &SlotTable, looks: impl Fn(Entry, Entry) -> bool) -> bool {
    let chosen = {
        let mut slot = table.lock(0);
        let entry = slot.entry();
        slot.set_state(entry.state.with(Flag::Marked));
        entry
    };
    thread::yield_now();
    let slot = table.lock(0);
    let now = slot.entry();
    let swaps = looks(now, chosen);
    if swaps {
        let state = chosen.state.set(Flag::Marked, false);
        slot.replace(Entry { state, value: chosen.value | FORM });
    }
    swaps
}

fn still_marked(now: Entry, chosen: Entry) -> bool {
    now.state.has(Flag::Marked) && now.is_form_of(chosen)
}

fn model(run: impl Fn(Arc<SlotTable>) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let table = SlotTable::new(1, Form::Narrow).unwrap();
        table.lock(0).replace(Entry::same(1));
        run(Arc::new(table));
    });
}

/// A page is replaced, with the same bytes even, while its old form is worked on.
fn replaced(by: u64, looks: impl Fn(Entry, Entry) -> bool + Send + Sync + Copy + 'static) {
    model(move |table| {
        let processor = thread::spawn({
            let table = Arc::clone(&table);
            move || process(&table, looks)
        });
        let old = table.lock(0).replace(Entry::same(by));
        let swapped = processor.join().unwrap();
        let left = table.lock(0).entry();
        assert_eq!(left.value & !FORM, by, "the user's page was lost");
        // Both ways, each form is taken out of the slot once: nobody frees it twice.
        let forms = [old.value, left.value].iter().filter(|&&value| value & FORM != 0).count();
        assert_eq!(forms, usize::from(swapped), "a form was lost or doubled");
    });
}

#[test]
fn a_page_replaced_while_it_is_worked_on_stays_the_users() {
    replaced(2, still_marked);
}

#[test]
fn a_page_replaced_by_an_equal_one_is_not_swapped_by_an_old_mark() {
    replaced(1, still_marked);
}

#[test]
fn a_page_that_is_read_meanwhile_is_left_alone() {
    model(|table| {
        let processor = thread::spawn({
            let table = Arc::clone(&table);
            move || process(&table, still_marked)
        });
        let (read, marked) = {
            let mut slot = table.lock(0);
            let entry = slot.entry();
            slot.set_state(entry.state.used(0));
            (entry.value, entry.state.has(Flag::Marked))
        };
        let swapped = processor.join().unwrap();
        assert_eq!(read & !FORM, 1, "either form is the same page");
        assert!(!(marked && swapped), "a use after the choice takes the mark away");
    });
}

#[test]
#[should_panic(expected = "the user's page was lost")]
fn a_twin_that_swaps_without_a_look_is_caught() {
    replaced(2, |_, _| true);
}
