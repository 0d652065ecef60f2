//! The word of a page against a naive model, one thread at a time.

use super::*;
use proptest::prelude::*;

/// What a page is, naively.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    there: bool,
    slot: Option<u32>,
    stored: bool,
    entry: bool,
    pins: u32,
    storing: Option<u32>,
    /// Writes fault.
    protected: bool,
    /// It was written since it came.
    written: bool,
}

#[derive(Clone, Debug)]
enum Op {
    Fault(bool),
    Write,
    Drop,
    Leave(u32),
    BeginStore,
    EndStore,
    Free,
    Pin,
    Unpin,
    Discard,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        proptest::bool::ANY.prop_map(Op::Fault),
        Just(Op::Write),
        Just(Op::Drop),
        (0..4_u32).prop_map(Op::Leave),
        Just(Op::BeginStore),
        Just(Op::EndStore),
        Just(Op::Free),
        Just(Op::Pin),
        Just(Op::Unpin),
        Just(Op::Discard),
    ]
}

/// The program touches the page; if it comes from the store, it is protected or not.
fn fault(protect: bool, page: Page<'_>, model: &mut Model) {
    let was = page.change(Word::arriving);
    assert_eq!(was.is_ok(), !model.there, "{model:?}");
    let Ok(was) = was else { return };
    let stored = was.state() == State::Stored;
    assert_eq!(stored, model.stored);
    assert_eq!(model.slot, (was.state() == State::Staged).then(|| was.value()));
    let protected = stored && protect;
    assert!(!protected || page.change(Word::protected).is_ok());
    page.settle(State::Resident, 0, stored);
    let came = Model { there: true, slot: None, stored: false, ..model.clone() };
    *model = Model { protected, written: !stored, ..came };
}

/// The program writes to the page, if it is there.
fn write(page: Page<'_>, model: &mut Model) {
    if !model.there {
        return;
    }
    assert_eq!(page.load().is_protected(), model.protected, "W5");
    if model.protected {
        page.change(Word::claimed).unwrap();
        page.settle(State::Resident, 0, false);
    }
    (model.protected, model.written) = (false, true);
}

/// The page is dropped where it is, if it may be.
fn drop_place(page: Page<'_>, model: &mut Model) {
    if page.change(Word::dropping).is_err() {
        assert!(!model.protected || !model.entry, "W5: {model:?}");
        return;
    }
    assert!(model.there && !model.written && model.entry && model.pins == 0, "W5");
    page.settle(State::Stored, 0, false);
    *model = Model { there: false, stored: true, protected: false, ..model.clone() };
}

/// Applies an operation to both; `entry` says whether a store would hold something.
fn apply(op: &Op, page: Page<'_>, model: &mut Model) {
    match op {
        Op::Fault(protect) => fault(*protect, page, model),
        Op::Write => write(page, model),
        Op::Drop => drop_place(page, model),
        Op::Leave(slot) => {
            let left = page.change(Word::leaving).is_ok();
            assert_eq!(left, model.there && model.pins == 0 && model.storing.is_none());
            if left {
                page.settle(State::Staged, *slot, false);
                let left = Model { there: false, slot: Some(*slot), ..model.clone() };
                *model = Model { protected: false, ..left };
            }
        }
        Op::BeginStore => {
            let slot = model.slot.unwrap_or(9);
            let begun = page.change(|word| word.storing(slot)).is_ok();
            assert_eq!(begun, model.slot.is_some() && model.storing.is_none());
            if begun {
                (model.storing, model.entry) = (Some(slot), true);
            }
        }
        Op::EndStore => {
            let Some(slot) = model.storing.take() else { return };
            let stored = page.change(|word| word.stored(slot)).is_ok();
            assert_eq!(stored, model.slot == Some(slot), "W4");
            if stored {
                (model.stored, model.slot) = (true, None);
            } else if page.change(Word::kept).is_err() {
                let _ = page.change(|word| Some(word.freed()));
                model.entry = false;
            }
        }
        Op::Free => {
            page.unlist();
            let frees = page.change(Word::freeing).is_ok();
            if frees {
                assert!(model.entry && !model.stored && model.storing.is_none(), "W2");
                let _ = page.change(|word| Some(word.freed()));
                model.entry = false;
            }
        }
        Op::Pin => {
            let pinned = page.change(Word::pinned).is_ok();
            assert_eq!(pinned, model.there && !model.protected);
            model.pins += u32::from(pinned);
        }
        Op::Unpin => {
            let unpinned = page.change(Word::unpinned).is_ok();
            assert_eq!(unpinned, model.pins > 0);
            model.pins -= u32::from(unpinned);
        }
        Op::Discard => {
            let was = page.change(|word| word.arriving().or(word.claimed()));
            assert_eq!(was.is_ok(), model.pins == 0);
            if let Ok(was) = was {
                if was.state() == State::Stored {
                    model.entry = false;
                }
                page.settle(State::Missing, 0, false);
                let gone = Model { there: false, slot: None, stored: false, ..model.clone() };
                *model = Model { protected: false, ..gone };
            }
        }
    }
}

proptest! {
    /// W1 to W5 for one thread at a time: what the word says is what a naive model says.
    #[test]
    fn the_word_follows_the_model(ops in proptest::collection::vec(op(), 0..200)) {
        let (word, mut model) = (AtomicU32::new(0), Model::default());
        for op in &ops {
            apply(op, Page(&word), &mut model);
            let now = Page(&word).load();
            prop_assert_eq!(now.is_there(), model.there);
            prop_assert_eq!(now.state() == State::Stored, model.stored);
            prop_assert_eq!(now.state() == State::Pinned, model.pins > 0);
            prop_assert_eq!(now.is_storing(), model.storing.is_some());
            prop_assert_eq!(now.is_protected(), model.protected);
            prop_assert!(model.stored <= model.entry, "a stored page has an entry");
            // W2: an entry that is not the page is a copy, or in work.
            let left_over = model.entry && !model.stored && model.storing.is_none();
            prop_assert_eq!(now.is_copied() && !now.is_storing(), left_over, "{:?}", now);
        }
    }
}

#[test]
fn a_word_keeps_the_largest_value_beside_its_flags() {
    let word = AtomicU32::new(0);
    let page = Page(&word);
    page.change(Word::arriving).unwrap();
    page.change(Word::waited).unwrap();
    let settled = page.settle(State::Staged, VALUE_MAX, true);
    assert_eq!(settled, Settled { wake: true, list: true });
    let now = page.load();
    assert_eq!((now.state(), now.value()), (State::Staged, VALUE_MAX));
    assert!(now.is_copied() && !now.is_waited());
}
