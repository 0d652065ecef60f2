//! Runs of units against a vector of bools.

use proptest::prelude::*;

use super::*;

impl Extents {
    fn check_invariants(&self) {
        let bit = |at: usize| self.words[at / WORD] >> (at % WORD) & 1 == 1;
        assert_eq!((0..self.units).filter(|&at| bit(at)).count(), self.used, "X3");
        assert!((self.units..self.words.len() * WORD).all(bit), "X1");
        let mut again = Self { levels: self.levels.clone(), words: self.words.clone(), ..*self };
        again.refresh(0, self.levels[0].len());
        assert_eq!(again.levels, self.levels, "X2");
        assert_eq!(self.levels.last().unwrap().len(), self.words.len().min(1));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u32),
    AllocateUpTo(u32),
    /// The allocation of this index, if there are so many.
    Free(usize),
}

fn op() -> impl Strategy<Value = Step> {
    let len = prop_oneof![4 => 0..20u32, 1 => 0..9000u32];
    prop_oneof![
        6 => len.clone().prop_map(Step::Allocate),
        2 => len.prop_map(Step::AllocateUpTo),
        6 => (0..64usize).prop_map(Step::Free),
    ]
}

/// The longest free run of a model of one bool a unit.
fn longest_run(model: &[bool]) -> usize {
    model.split(|&used| used).map(<[bool]>::len).max().unwrap_or(0)
}

fn take(model: &mut [bool], first: u32, len: u32) {
    let range = &mut model[first as usize..(first + len) as usize];
    assert!(range.iter().all(|&used| !used), "units {first}+{len} were in use");
    range.fill(true);
}

proptest! {
    /// A run is found if there is one, is free, and the tree follows.
    #[test]
    fn behaves_like_a_vector_of_bools(
        units in 0..20_000u32,
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut extents = Extents::new(units);
        let mut model = vec![false; units as usize];
        let mut taken = Vec::new();
        for op in ops {
            match op {
                Step::Allocate(len) => match extents.allocate(len) {
                    Some(first) => {
                        take(&mut model, first, len);
                        taken.push((first, len));
                    }
                    None => prop_assert!(len == 0 || longest_run(&model) < len as usize),
                },
                Step::AllocateUpTo(len) => match extents.allocate_up_to(len) {
                    Some((first, got)) => {
                        prop_assert_eq!(got as usize, longest_run(&model).min(len as usize));
                        take(&mut model, first, got);
                        taken.push((first, got));
                    }
                    None => prop_assert!(len == 0 || longest_run(&model) == 0),
                },
                Step::Free(index) if index < taken.len() => {
                    let (first, len) = taken.swap_remove(index);
                    extents.free(first, len);
                    model[first as usize..(first + len) as usize].fill(false);
                }
                Step::Free(_) => {}
            }
            extents.check_invariants();
            prop_assert_eq!(
                extents.used() as usize,
                model.iter().filter(|&&used| used).count()
            );
        }
    }
}

#[test]
fn runs_follow_each_other_and_come_round() {
    let mut extents = Extents::new(100);
    assert_eq!(extents.allocate(40), Some(0));
    assert_eq!(extents.allocate(40), Some(40));
    extents.free(0, 40);
    assert_eq!(extents.allocate(20), Some(80));
    assert_eq!(extents.allocate(20), Some(0));
    assert_eq!(extents.allocate(21), None);
    assert_eq!(extents.allocate_up_to(21), Some((20, 20)));
    assert_eq!(extents.allocate_up_to(1), None);
    assert_eq!(extents.used(), 100);
    // A part of a run.
    extents.free(50, 3);
    assert_eq!((extents.allocate(3), extents.allocate(1)), (Some(50), None));
}

#[test]
fn a_hole_in_a_full_backing_is_found_at_once() {
    // 128 GiB: a test that read the whole bitmap for each search would take minutes.
    let units = 1 << 28;
    let mut extents = Extents::new(units);
    assert_eq!(extents.allocate(units), Some(0));
    for at in 1..20_000u32 {
        let hole = at.wrapping_mul(2_654_435_761) % (units - 8);
        extents.free(hole, 8);
        assert_eq!(extents.allocate(8), Some(hole));
    }
    assert_eq!(extents.used(), units);
}

#[test]
fn the_largest_backing_has_a_last_unit() {
    let mut extents = Extents::new(u32::MAX);
    extents.cursor = u32::MAX as usize - 10;
    assert_eq!(extents.allocate(8), Some(u32::MAX - 10));
    assert_eq!(extents.allocate_up_to(8), Some((0, 8)));
    assert_eq!(extents.allocate(u32::MAX), None);
    extents.free(u32::MAX - 10, 8);
    assert_eq!(extents.used(), 8);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic = "were not all in use"]
fn a_unit_freed_twice_is_caught() {
    let mut extents = Extents::new(64);
    extents.allocate(8).unwrap();
    extents.free(0, 8);
    extents.free(0, 8);
}

#[test]
#[should_panic = "are beyond 64"]
fn units_beyond_the_end_are_not_freed() {
    Extents::new(64).free(60, 8);
}
