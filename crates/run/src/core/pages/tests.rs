//! The table beside a plain map.

use std::collections::HashMap;

use proptest::prelude::*;
use zfold_uffd::policy::Clock;
use zfold_uffd::policy::watched::Watched;

use super::parts::Part;
use super::told::PART;
use super::*;

const STATES: [Page; 8] = [
    Page::Absent,
    Page::Resident { age: 0 },
    Page::Resident { age: 3 },
    Page::Doomed { epoch: 0 },
    Page::Doomed { epoch: PAYLOADS - 1 },
    Page::Cached(PAYLOADS - 1),
    Page::Stored(PAYLOADS - 1),
    Page::Fixed { rest: 7 },
];

#[test]
fn a_word_keeps_its_state() {
    for state in STATES {
        assert_eq!(Page::from_word(state.word()), state);
    }
    assert_eq!(Page::Absent.word(), 0, "a fresh chunk is absent");
}

#[test]
fn when_pages_were_evicted_that_came_back_is_kept_until_it_is_taken() {
    let (mut table, clock) = (PageTable::default(), Clock::default());
    table.arrive(7, true, clock.now());
    clock.advance(1, 16);
    let evicted = clock.now();
    table.leave(7, 0, evicted);
    clock.advance(1, 16);
    table.arrive(7, true, clock.now());
    table.arrive(8, true, clock.now());
    assert_eq!(table.take_returned().collect::<Vec<_>>(), [evicted], "not of new pages");
    assert_eq!(table.take_returned().count(), 0);
}

proptest! {
    /// The table is a map whose counts agree and whose empty chunks go.
    #[test]
    fn a_table_is_a_map(
        ops in prop::collection::vec((0_usize..2000, 0..STATES.len(), 0_usize..900), 1..200),
    ) {
        let (mut table, mut model) = (PageTable::default(), HashMap::<PageNo, Page>::new());
        let mut copies = HashMap::<PageNo, Key>::new();
        for (page, state, len) in ops {
            if len > 800 {
                let of = page..page + len;
                let mut taken = HashMap::new();
                table.take_copies(&of, usize::MAX, |page, key| { taken.insert(page, key); });
                let inside = copies.iter().filter(|(p, _)| of.contains(p));
                prop_assert_eq!(taken, inside.map(|(&p, &k)| (p, k)).collect());
                copies.retain(|p, _| !of.contains(p));
                let inside = model.iter().filter(|(p, _)| of.contains(p));
                let mut expected: Vec<_> = inside.map(|(&p, &s)| (p, s)).collect();
                expected.sort_by_key(|(p, _)| *p);
                let taken: Vec<_> = table.take(&of).into_iter().map(|(p, s, _)| (p, s)).collect();
                prop_assert_eq!(taken, expected);
                model.retain(|p, _| !of.contains(p));
            } else {
                let state = STATES[state];
                if !state.may_be_copied() {
                    prop_assert_eq!(table.take_copy(page), copies.remove(&page));
                }
                let was = model.remove(&page).unwrap_or(Page::Absent);
                if state != Page::Absent {
                    model.insert(page, state);
                }
                prop_assert_eq!(table.set(page, state), was);
                if state.may_be_copied() && !copies.contains_key(&page) {
                    table.keep(page, len as Key);
                    copies.insert(page, len as Key);
                }
            }
        }
        let mut seen = HashMap::new();
        table.for_each_copy(|page, key| { seen.insert(page, key); });
        prop_assert_eq!(&seen, &copies);
        prop_assert!(copies.iter().all(|(page, key)| table.copy(*page) == Some(*key)));
        let mut counts = Counts { copied: copies.len(), ..Counts::default() };
        model.values().for_each(|&state| counts.change(state, 1));
        prop_assert_eq!(table.counts(), counts);
        let mut seen = HashMap::new();
        table.for_each(|page, state| { seen.insert(page, state); });
        prop_assert_eq!(&seen, &model);
        let mut present = Vec::new();
        let mut from = Some(0);
        while let Some(at) = from {
            from = table.visit_present(at, 1, |page, state, _, _| {
                present.push(page);
                if page % 3 == 0 { Visit::SetAndStop(state) } else { Visit::Set(state) }
            });
        }
        let mut expected: Vec<_> =
            model.iter().filter(|(_, s)| s.is_present()).map(|(&p, _)| p).collect();
        expected.sort_unstable();
        prop_assert_eq!(present, expected);
        let used: std::collections::HashSet<_> = model.keys().map(|p| p / CHUNK).collect();
        prop_assert_eq!(table.chunks.len(), used.len());
    }
}

#[test]
fn where_most_pages_that_come_back_come_along_none_is_watched() {
    let (mut table, now) = (PageTable::default(), Clock::default().now());
    table.watch();
    // Of eight pages that leave and come back, so many come along with others.
    let watched = [3, 5, 3].map(|along| {
        for page in (0..8).cycle().take(8000) {
            table.arrive(page, page >= along, now);
            table.leave(page, 0, now);
        }
        table.arrive(100 + along, true, now);
        let state = table.get(100 + along);
        table.leave(100 + along, 0, now);
        matches!(state, Page::Resident { age } if Watched::from_rounds(age).is_some())
    });
    assert_eq!(watched, [true, false, true]);
}

#[test]
fn a_part_says_which_pages_are_there_and_which_have_left_since() {
    let (mut table, clock) = (PageTable::default(), Clock::default());
    let first = 3 * CHUNK + 2 * PART;
    for at in [0, 1, 2, PART - 1] {
        table.arrive(first + at, true, clock.now());
    }
    table.leave(first + 1, 5, clock.now());
    let since = clock.now();
    clock.advance(1, 32);
    table.leave(first + 2, 6, clock.now());
    table.set(first + PART, Page::Fixed { rest: 1 });
    let last = 1 << (PART - 1);
    let part = Part { known: 0b111 | last, present: 1 | last, left: 0b100 };
    assert_eq!(table.part(first, since), part);
    assert_eq!(table.part(first + PART, since), Part { known: 1, present: 1, left: 0 });
    assert_eq!(table.part(0, since), Part::default());
    assert_eq!(table.parts().collect::<Vec<_>>(), [3 * CHUNK]);
}
