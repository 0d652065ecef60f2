//! The log against a model: one vector that says where each unit lies.
//!
//! Properties: a unit is found where it was last told to lie, together with those that lie beside
//! it; an object is handed out as dead once, exactly when nothing lies there; what the cleaner
//! copied counts only where nothing changed meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const UNITS: u32 = 2000;

#[derive(Clone, Debug)]
enum Step {
    Write {
        unit: u32,
        len: u32,
    },
    FailedWrite,
    Discard {
        unit: u32,
        len: u32,
    },
    /// The cleaner copies; meanwhile something is written, discarded, and the copy may fail.
    Clean {
        unit: u32,
        len: u32,
        discarded: u32,
        fails: bool,
    },
    Leave,
    Delete {
        most: usize,
    },
    Age,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let unit = || 0..UNITS;
    let len = || prop_oneof![3 => 1..12_u32, 2 => 12..=124_u32];
    let step = prop_oneof![
        8 => (unit(), len()).prop_map(|(unit, len)| Step::Write { unit, len }),
        1 => Just(Step::FailedWrite),
        3 => (unit(), 0..200_u32).prop_map(|(unit, len)| Step::Discard { unit, len }),
        4 => (unit(), len(), unit(), any::<bool>()).prop_map(|(unit, len, discarded, fails)| {
            Step::Clean { unit, len, discarded, fails: fails && len % 4 == 0 }
        }),
        1 => Just(Step::Leave),
        2 => (0..20_usize).prop_map(|most| Step::Delete { most }),
        1 => Just(Step::Age),
    ];
    prop::collection::vec(step, 1..150)
}

struct Model {
    log: Log,
    at: Vec<Option<Spot>>,
    acknowledged: BTreeSet<u64>,
    failed: BTreeMap<u64, u32>,
    handed_out: BTreeSet<u64>,
}

impl Model {
    fn new() -> Self {
        Self {
            log: Log::new(UNITS, 0),
            at: vec![None; UNITS as usize],
            acknowledged: BTreeSet::new(),
            failed: BTreeMap::new(),
            handed_out: BTreeSet::new(),
        }
    }

    fn span(unit: u32, len: u32) -> Span {
        Span { unit, len: len.min(UNITS - unit) }
    }

    fn write(&mut self, span: Span) {
        let number = self.log.begin();
        self.log.publish(number, span).unwrap();
        assert!(self.acknowledged.insert(number), "a number came twice");
        for index in 0..span.len {
            self.at[(span.unit + index) as usize] = Some(Spot { number, index });
        }
    }

    fn discard(&mut self, span: Span) {
        self.log.discard(span);
        self.at[span.unit as usize..][..span.len as usize].fill(None);
    }

    fn fail(&mut self) {
        let number = self.log.begin();
        self.log.doubt(number);
        self.failed.insert(number, 0);
    }

    fn spot_of(piece: &Piece, at: u32) -> Spot {
        Spot { index: piece.spot.index + at, ..piece.spot }
    }

    fn clean(&mut self, written: Span, discarded: u32, fails: bool) {
        let pieces = self.log.victims();
        for piece in &pieces {
            for at in 0..piece.span.len {
                let lies = self.at[(piece.span.unit + at) as usize];
                assert_eq!(lies, Some(Self::spot_of(piece, at)), "a victim is what lives");
            }
        }
        self.write(written);
        self.discard(Self::span(discarded, 20));
        if fails {
            return self.fail();
        }
        if pieces.is_empty() {
            return;
        }
        let number = self.log.begin();
        self.log.relocate(number, &pieces).unwrap();
        self.acknowledged.insert(number);
        let mut index = 0;
        for piece in &pieces {
            for at in 0..piece.span.len {
                let lies = &mut self.at[(piece.span.unit + at) as usize];
                if *lies == Some(Self::spot_of(piece, at)) {
                    *lies = Some(Spot { number, index });
                }
                index += 1;
            }
        }
    }

    fn delete(&mut self, most: usize) {
        let used: BTreeSet<u64> = self.at.iter().flatten().map(|spot| spot.number).collect();
        let taken = self.log.take_dead(most);
        assert!(taken.len() <= most);
        for number in taken {
            assert!(!used.contains(&number), "{number} is still in use");
            assert!(self.handed_out.insert(number), "{number} is handed out again");
            let aged = self.failed.get(&number).is_none_or(|&ages| ages == 2);
            assert!(aged, "{number} may still be under way");
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Write { unit, len } => self.write(Self::span(unit, len)),
            Step::FailedWrite => self.fail(),
            Step::Discard { unit, len } => self.discard(Self::span(unit, len)),
            Step::Clean { unit, len, discarded, fails } => {
                self.clean(Self::span(unit, len), discarded, fails);
            }
            Step::Leave => {
                if let Some(piece) = self.log.victims().first() {
                    self.log.leave(piece);
                }
            }
            Step::Delete { most } => self.delete(most),
            Step::Age => {
                self.log.age();
                self.failed.values_mut().for_each(|ages| *ages = 2.min(*ages + 1));
            }
        }
    }

    fn check(&self) {
        self.log.check();
        for unit in 0..UNITS {
            let beside = |&at: &u32| {
                let first = self.at[unit as usize]?;
                let index = first.index + at;
                let there = *self.at.get((unit + at) as usize)?;
                (there == Some(Spot { index, ..first })).then_some(())
            };
            let together = (0..50).take_while(|at| beside(at).is_some()).count() as u32;
            let expected = self.at[unit as usize].map(|spot| (spot, together));
            let most = 50.min(UNITS - unit);
            assert_eq!(self.log.find(unit, most), expected, "unit {unit}");
        }
        let used: BTreeSet<u64> = self.at.iter().flatten().map(|spot| spot.number).collect();
        assert_eq!(self.log.objects() as usize, used.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_log_says_what_the_model_says(steps in steps()) {
        let mut model = Model::new();
        for step in &steps {
            model.run(step);
            model.check();
        }
        // At the end nothing is left that was ever put.
        model.discard(Model::span(0, UNITS));
        model.log.discard_all();
        model.failed.values_mut().for_each(|ages| *ages = 2);
        model.delete(usize::MAX);
        let all = model.acknowledged.len() + model.failed.len();
        prop_assert_eq!(model.handed_out.len(), all);
        prop_assert_eq!(model.log.sealed_bytes(), (0, 0));
    }
}

/// Cleans until nothing is worth it; returns the units written anew.
fn clean_all(log: &mut Log) -> u32 {
    let mut units = 0;
    loop {
        let pieces = log.victims();
        if pieces.is_empty() {
            return units;
        }
        let number = log.begin();
        log.relocate(number, &pieces).unwrap();
        units += pieces.iter().map(|piece| piece.span.len).sum::<u32>();
    }
}

#[test]
fn pages_written_one_by_one_are_merged_once() {
    let mut log = Log::new(3000, 0);
    for page in 0..1000 {
        let number = log.begin();
        log.publish(number, Span { unit: 3 * page, len: 3 }).unwrap();
    }
    assert_eq!(log.objects(), 1000);
    let written = clean_all(&mut log);
    log.check();
    assert!(written <= 3000, "{written} units are written for 3000");
    assert!(log.objects() <= 1 + 3000 / 62, "{} objects are left", log.objects());
    assert_eq!(clean_all(&mut log), 0, "what was merged is not merged again");
}

#[test]
fn an_object_half_dead_is_rewritten_when_a_third_of_all_is_dead() {
    let mut log = Log::new(1240, 0);
    for at in 0..10 {
        let number = log.begin();
        log.publish(number, Span { unit: 124 * at, len: 124 }).unwrap();
    }
    for at in 0..4 {
        log.discard(Span { unit: 124 * at, len: 80 });
        assert_eq!(log.victims(), [], "320 of 1240 are less than a third");
    }
    log.discard(Span { unit: 124 * 4, len: 124 });
    assert_eq!(log.objects(), 9);
    log.discard(Span { unit: 124 * 5, len: 80 });
    let pieces = log.victims();
    assert_eq!(pieces.len(), 2, "two of 44 units, of three, fill an object of 124");
    assert_eq!(pieces[0].spot, Spot { number: 0, index: 80 });
    assert!(clean_all(&mut log) >= 88);
    let (stored, live) = log.sealed_bytes();
    assert!(2 * (stored - live) <= live, "{live} of {stored} live");
}

#[test]
fn a_slot_used_again_does_not_pass_for_the_object_before() {
    let mut log = Log::new(100, 0);
    let number = log.begin();
    log.publish(number, Span { unit: 0, len: 2 }).unwrap();
    let spot = Spot { number, index: 0 };
    let piece = Piece { span: Span { unit: 0, len: 2 }, spot, slot: 0 };
    let again = log.begin();
    log.publish(again, Span { unit: 50, len: 1 }).unwrap();
    log.discard(Span { unit: 0, len: 2 });
    let same_place = log.begin();
    log.publish(same_place, Span { unit: 0, len: 2 }).unwrap();
    assert_eq!(log.find(0, 2), Some((Spot { number: same_place, ..spot }, 2)));
    let copy = log.begin();
    log.relocate(copy, &[piece]).unwrap();
    log.check();
    assert_eq!(log.find(0, 2), Some((Spot { number: same_place, ..spot }, 2)));
    assert_eq!(log.take_dead(9), [number, copy]);
}

#[test]
fn a_log_without_room_is_cleaned_until_it_has_some() {
    let mut log = Log::new(4000, 0);
    log.slots_max = 100;
    let mut unit = 0;
    let refused = loop {
        let number = log.begin();
        if log.publish(number, Span { unit, len: 40 }).is_err() {
            break number;
        }
        unit += 40;
    };
    assert_eq!((log.objects(), log.victims()), (100 - u64::from(KEPT_SLOTS), Vec::new()));
    assert_eq!(log.take_dead(9), [refused]);
    // Too little is dead otherwise.
    for at in 0..6 {
        log.discard(Span { unit: 40 * at, len: 30 });
    }
    assert_eq!(clean_all(&mut log), 60);
    assert!(log.has_room());
    log.check();
}
