//! Properties of the heap, against a map of what was taken:
//! - any sequence of takes, gives and evacuations keeps every invariant after each step, and no
//!   two places overlap; also when evacuations leave some objects where they are, and when memory
//!   runs out
//! - all short sequences of a few operations do, too
//! - a long run does, and shows how densely the heap packs

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use zfold_testing::Random;

use super::heap::Heap;
use super::heap::evacuation::Reserved;
use super::place::{OBJECT_MAX, PAGE, Place, SEGMENT, SEGMENT_PAGES};
use crate::memory::arena::Arena;
use crate::memory::source::PageSource;
use crate::testing::{FailingPages, HeapPages};
use crate::units::PageSize;

/// A heap, and the granules of every place that was taken in it.
struct Model {
    heap: Heap,
    taken: BTreeMap<Place, u16>,
    source: FailingPages,
}

impl Model {
    fn new(pages: usize) -> Self {
        let source = FailingPages::new(Arc::new(HeapPages), u32::MAX);
        let arena = Arena::new(source.reserve(pages << 12).unwrap(), PageSize::KIB4);
        Self { heap: Heap::new(arena), taken: BTreeMap::new(), source }
    }

    fn used_pages(&self) -> u64 {
        self.heap.arena.used().0
    }

    fn take(&mut self, granules: u16) -> bool {
        let before = self.used_pages();
        match self.heap.take(granules, || true).map(|place| place.expect("it may grow")) {
            Ok(place) => {
                self.assert_apart(place, granules);
                assert_eq!(self.taken.insert(place, granules), None);
                true
            }
            Err(_) => {
                assert_eq!(self.used_pages(), before, "heap/F7");
                self.check();
                false
            }
        }
    }

    /// Asserts that a new place overlaps no other.
    fn assert_apart(&self, place: Place, granules: u16) {
        assert!(place.at + granules <= SEGMENT, "{place:?}");
        let before = self.taken.range(..=place).next_back();
        let apart =
            |(at, len): (&Place, &u16)| at.segment < place.segment || at.at + len <= place.at;
        assert!(before.is_none_or(apart), "{place:?} after {before:?}");
        let after = self.taken.range(place..).next();
        let apart =
            |(at, _): (&Place, &u16)| at.segment > place.segment || place.at + granules <= at.at;
        assert!(after.is_none_or(apart), "{place:?} before {after:?}");
    }

    fn nth(&self, n: usize) -> Option<Place> {
        self.taken.keys().nth(n % self.taken.len().max(1)).copied()
    }

    fn give(&mut self, place: Place) {
        self.taken.remove(&place).expect("taken");
        self.heap.give(place);
    }

    fn give_nth(&mut self, n: usize) {
        if let Some(place) = self.nth(n) {
            self.give(place);
        }
    }

    /// Evacuates a segment; of its objects those move that `moves` says, and `meanwhile` is done
    /// between the reservation and the moves.
    fn evacuate(
        &mut self,
        segment: u32,
        meanwhile: impl FnOnce(&mut Self),
        moves: impl Fn(usize) -> bool,
    ) -> bool {
        let before = self.used_pages();
        let Some(mut evacuation) = self.heap.begin_evacuation(segment) else { return false };
        let in_segment = |place: &&Place| place.segment == segment;
        assert_eq!(evacuation.moves.len(), self.taken.keys().filter(in_segment).count());
        let reserved = loop {
            match self.heap.reserve(&mut evacuation, 3) {
                Reserved::Some => {}
                done => break done == Reserved::All,
            }
        };
        meanwhile(self);
        for (n, of) in evacuation.moves.iter().enumerate() {
            assert!(of.to.is_some() || !reserved, "heap/F5");
            let Some(to) = of.to else { continue };
            assert_ne!(to.segment, segment, "heap/F3");
            match self.taken.get(&of.from) {
                Some(&granules) if reserved && moves(n) => {
                    self.heap.give_either(of.from);
                    self.taken.remove(&of.from);
                    self.assert_apart(to, granules);
                    self.taken.insert(to, granules);
                }
                _ => self.heap.give_either(to),
            }
        }
        let freed = self.heap.end_evacuation(&evacuation);
        assert_eq!(self.heap.reserved(), 0, "heap/F8");
        assert!(freed <= before as i64);
        true
    }

    fn emptiest(&self) -> Option<u32> {
        let live = |&segment: &u32| self.heap.worth_evacuation(segment);
        (0..self.heap.segments()).filter(|s| live(s).is_some()).min_by_key(|s| live(s))
    }

    fn compact(&mut self) {
        loop {
            let before = self.used_pages();
            let mut candidates: Vec<_> = (0..self.heap.segments())
                .filter_map(|s| Some((self.heap.worth_evacuation(s)?, s)))
                .collect();
            candidates.sort_unstable();
            for (_, segment) in candidates {
                self.evacuate(segment, |_| {}, |_| true);
            }
            if self.used_pages() >= before {
                self.heap.settle();
                return;
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.heap.check(), self.taken.len() as u64 + self.heap.reserved());
        for (&place, &granules) in &self.taken {
            let extent = self.heap.granules_at(place).expect("taken");
            assert!(
                (granules..=granules + 1).contains(&extent),
                "directory/E2: {extent} for {granules}"
            );
        }
    }

    fn live(&self) -> u64 {
        self.taken.values().map(|&granules| u64::from(granules)).sum()
    }

    /// The share of the committed granules that objects have.
    fn fill(&self) -> f64 {
        self.live() as f64 / (self.used_pages() * u64::from(PAGE)) as f64
    }

    fn finish(mut self) {
        while let Some(place) = self.nth(0) {
            self.give(place);
        }
        self.check();
        assert_eq!(self.used_pages(), 0);
        self.heap.trim(false);
        self.check();
        assert_eq!(self.heap.bytes(), 0, "an empty heap has no tables");
    }
}

/// Lengths of objects as pages compress, now and then a whole page.
fn granules(word: u32) -> u16 {
    match word % 16 {
        0 => OBJECT_MAX,
        1..=3 => (word >> 8) as u16 % 10 + 1,
        n => (word >> 8) as u16 % (n as u16 * 32) + 1,
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(64))]
    #[test]
    fn any_sequence_keeps_every_invariant(words in vec(any::<u32>(), 1..300)) {
        let mut model = Model::new(256);
        for word in words {
            let (pick, number) = ((word >> 4) as usize, word >> 4);
            match word % 16 {
                0..=7 => {
                    model.take(granules(number));
                }
                8..=12 => model.give_nth(pick),
                13 => model.source.allow(number % 8 * 100),
                14 => model.heap.trim(number % 2 == 0),
                _ => {
                    let Some(segment) = model.emptiest() else { continue };
                    // Some are pinned, some freed, some new.
                    let meanwhile = |model: &mut Model| {
                        model.give_nth(pick);
                        model.take(granules(number.rotate_left(7)));
                    };
                    let pinned = pick % 7;
                    model.evacuate(segment, meanwhile, |n| pinned == 0 || n % 7 != pinned);
                }
            }
            model.check();
        }
        model.finish();
    }
}

#[test]
fn all_short_sequences_keep_every_invariant() {
    const LEN: u32 = if cfg!(miri) { 3 } else { 6 };
    for number in 0..6_u32.pow(LEN) {
        let mut model = Model::new(64);
        (0..18).for_each(|_| assert!(model.take(250)));
        for step in 0..LEN {
            match number / 6_u32.pow(step) % 6 {
                length @ 0..=2 => {
                    model.take([1, 249, OBJECT_MAX][length as usize]);
                }
                3 => model.give_nth(0),
                4 => model.give_nth(1),
                _ => {
                    model.emptiest().map(|segment| model.evacuate(segment, |_| {}, |_| true));
                }
            }
        }
        model.check();
    }
}

/// What the store counts on to stay below a limit.
#[test]
fn a_tight_trim_undoes_whatever_one_place_took() {
    let mut model = Model::new(1 << 12);
    let held = |model: &Model| model.heap.bytes() + model.heap.arena.held_bytes();
    let mut random = Random::new(1);
    for step in 0..if cfg!(miri) { 50 } else { 3000 } {
        let word = random.word() as u32;
        let before = held(&model);
        let place = model.heap.take(granules(word), || true).expect("room").expect("it may grow");
        model.heap.give(place);
        // As a compaction of no pages does.
        let idle = model.heap.arena.begin_release(crate::units::PageCount::ZERO);
        idle.release();
        model.heap.arena.end_release(idle);
        model.heap.trim(true);
        model.check();
        // A run of frames that was new before is on a stack now.
        let before = before + size_of::<crate::units::FrameIndex>() as u64;
        assert!(held(&model) <= before, "{} after {before} in step {step}", held(&model));
        assert!(model.take(granules(word)));
        if word.is_multiple_of(3) {
            model.give_nth(word as usize);
        }
    }
    model.finish();
}

#[test]
fn a_place_that_fits_exactly_is_taken_before_a_larger_one() {
    let mut model = Model::new(64);
    let mut take = |granules| {
        assert!(model.take(granules));
        model.taken.iter().next_back().map(|(&place, _)| place).unwrap()
    };
    let [large, _, small, _] = [400, 50, 300, 50].map(&mut take);
    model.give(large);
    model.give(small);
    for expected in [small, large] {
        assert_eq!(model.heap.take(300, || false), Ok(Some(expected)));
    }
}

/// Objects of one length are what best fit is at its best with, and of two lengths at its worst.
#[test]
fn objects_that_are_nearly_alike_are_replaced_in_each_others_holes() {
    for (spread, fill) in [(1, 0.96), (2, 0.95), (8, 0.95)] {
        for base in [209, 210] {
            let live = if cfg!(miri) { 100 } else { 2000 };
            let mut words = Random::new(1);
            let mut random = move || words.word() as u32;
            let mut model = Model::new(1 << 12);
            (0..live).for_each(|_| assert!(model.take(base + random() as u16 % spread)));
            for _ in 0..4 * live {
                assert!(model.take(base + random() as u16 % spread));
                model.give_nth(random() as usize);
            }
            model.check();
            let seen = model.fill();
            assert!(cfg!(miri) || seen > fill, "{base} to {}: {seen:.4}", base + spread - 1);
            model.finish();
        }
    }
}

#[test]
fn a_heap_that_may_not_grow_takes_holes_only() {
    let mut model = Model::new(64);
    assert_eq!(model.heap.take(300, || false), Ok(None));
    assert!(model.take(300) && model.take(PAGE - 300));
    assert_eq!(model.heap.take(300, || false), Ok(None));
    assert_eq!(model.used_pages(), 1);
    model.give_nth(0);
    assert!(matches!(model.heap.take(300, || false), Ok(Some(_))));
}

#[test]
fn a_heap_with_many_holes_is_loose() {
    let mut model = Model::new(256);
    (0..960).for_each(|_| assert!(model.take(PAGE / 4)));
    assert!(!model.heap.is_loose());
    (0..50).for_each(|n| model.give_nth(2 * n));
    assert!(!model.heap.is_loose(), "less than a sixteenth, and than a segment");
    (0..20).for_each(|n| model.give_nth(2 * n));
    assert!(model.heap.is_loose());
    model.compact();
    assert!(!model.heap.is_loose());
}

#[test]
fn memory_that_runs_out_changes_nothing_and_holes_are_used_to_the_last() {
    let mut model = Model::new(64);
    model.source.allow(3);
    while model.take(OBJECT_MAX) {}
    assert!(model.used_pages() <= 4, "{} pages", model.used_pages());
    model.check();
    model.source.allow(u32::MAX);
    while model.take(OBJECT_MAX) {}
    assert_eq!(model.used_pages(), 64, "the whole arena");
    while model.take(1) {}
    assert!(model.fill() > 0.998, "{}", model.fill());
    model.finish();
}

#[test]
fn an_evacuation_without_room_moves_nothing() {
    let mut model = Model::new(16);
    while model.take(OBJECT_MAX) {}
    let place = model.nth(3).unwrap();
    model.give(place);
    let segment = model.emptiest().expect("a hole");
    let before = model.taken.clone();
    assert!(model.evacuate(segment, |_| {}, |_| true));
    assert_eq!(model.taken, before);
    model.check();
}

#[test]
fn an_extent_that_moves_from_hole_to_hole_grows_no_longer() {
    let mut model = Model::new(64);
    // Full segments, each with a hole a granule longer than the one before.
    for hole in OBJECT_MAX + 1..OBJECT_MAX + 4 {
        let mut left = SEGMENT;
        for granules in [300, hole - 300].into_iter().chain([OBJECT_MAX; SEGMENT_PAGES as usize]) {
            assert!(left == 0 || model.take(granules.min(left)));
            left -= granules.min(left);
        }
    }
    assert!(model.take(OBJECT_MAX));
    let mut at = model.taken.keys().next_back().copied().expect("taken");
    assert_eq!(at, Place { segment: 3, at: 0 });
    for segment in 0..3 {
        [0, 300].into_iter().for_each(|at| model.give(Place { segment, at }));
    }
    for next in 0..3 {
        assert!(model.evacuate(at.segment, |_| {}, |_| true));
        at = Place { segment: next, at: 0 };
        assert_eq!(model.heap.granules_at(at), Some(OBJECT_MAX));
        model.check();
        // It alone is left to be moved.
        let others = model.taken.keys().filter(|of| of.segment == next && **of != at);
        others.copied().collect::<Vec<_>>().into_iter().for_each(|other| model.give(other));
    }
    model.finish();
}

#[test]
fn long_runs_pack_densely() {
    let live = if cfg!(miri) { 200 } else { 6000 };
    let mut words = Random::new(1);
    let mut model = Model::new(1 << 14);
    let mut random = move || words.word() as u32;
    (0..live).for_each(|_| assert!(model.take(granules(random()))));
    println!("filled: {:.4}", model.fill());
    assert!(cfg!(miri) || model.fill() > 0.985, "{}", model.fill());
    for _ in 0..4 * live {
        let place = model.nth(random() as usize).expect("live");
        model.give(place);
        assert!(model.take(granules(random())));
    }
    model.check();
    println!("after many were replaced: {:.4}", model.fill());
    for _ in 0..live / 2 {
        let place = model.nth(random() as usize).expect("live");
        model.give(place);
    }
    let before = model.used_pages();
    assert!(model.heap.freeable_pages().0 > before / 4);
    model.compact();
    model.check();
    assert_eq!(model.heap.freeable_pages().0, 0);
    println!("half freed and compacted: {:.4}", model.fill());
    assert!(cfg!(miri) || model.fill() > 0.97, "{}", model.fill());
    model.finish();
}
