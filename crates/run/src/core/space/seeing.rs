//! Tests of what the hand and the sample see where accesses are seen, beside what is true.

use std::collections::BTreeSet;

use zfold_testing::random::Random;
use zfold_uffd::policy::watched::Watched;
use zfold_uffd::policy::{Clock, Haste};

use super::*;
use crate::core::pages::told::{CHUNK, PART, bits_of};

/// A space, the kernel's marks, and what was touched since each of the two looked.
struct World {
    space: Space,
    clock: Clock,
    pages: Pages,
    marked: BTreeSet<PageNo>,
    since_mark: BTreeSet<PageNo>,
    since_sample: BTreeSet<PageNo>,
    came: BTreeSet<PageNo>,
    /// The twins: one of the two keeps what it has seen for itself.
    silent: [bool; 2],
}

impl World {
    fn new(pages: Pages) -> Self {
        let mut space = Space::default();
        space.watch();
        space.close(&pages, &Ranges::default(), 0);
        let [marked, since_mark, since_sample, came] = Default::default();
        let clock = Clock::default();
        let silent = [false; 2];
        Self { space, clock, pages, marked, since_mark, since_sample, came, silent }
    }

    fn is_there(&self, page: PageNo) -> bool {
        self.space.page(page).is_present()
    }

    /// Where marks tell nothing, some are not (`Telling`).
    fn is_watched(&self, page: PageNo) -> bool {
        let Page::Resident { age } = self.space.page(page) else { return false };
        Watched::from_rounds(age).is_some()
    }

    fn touch(&mut self, page: PageNo) {
        if !self.is_there(page) {
            self.space.arrived(Some(page), &(page..page + 1), false);
            self.came.insert(page);
        }
        self.marked.remove(&page);
        self.since_mark.insert(page);
        self.since_sample.insert(page);
    }

    fn mark(&mut self) -> Vec<Pages> {
        let runs = self.space.take_unmarked();
        for page in runs.iter().cloned().flatten() {
            self.marked.insert(page);
            self.since_mark.remove(&page);
        }
        runs
    }

    /// Marks, and has the hand pass over everything; returns the pages that leave, and those of
    /// them that were touched since they were marked.
    fn pass(&mut self) -> (Vec<PageNo>, Vec<PageNo>) {
        self.mark();
        let (mut victims, mut at) = (Vec::new(), Some(0));
        while let Some(from) = at {
            let marked = &self.marked;
            let look = |range: &Pages| {
                assert!(range.len() <= CHUNK && range.start / CHUNK == (range.end - 1) / CHUNK);
                let found = range.clone().filter(|page| !marked.contains(page));
                Some(bits_of(found.map(|page| page..page + 1)))
            };
            let never = |_| false;
            let haste = Haste::after(0);
            at = self.space.pick(from, usize::MAX, haste, never, look, &mut victims);
        }
        self.mark();
        let is_wrong = |page: &&PageNo| self.is_watched(**page) && self.since_mark.contains(page);
        let wrong = victims.iter().filter(is_wrong).copied().collect();
        for (slot, &page) in victims.iter().enumerate() {
            self.space.set(page, Page::Cached(slot as SlotNo));
            self.marked.remove(&page);
        }
        // What has come lately does not leave (policy/P2).
        self.clock.advance(victims.len().max(20), 600);
        self.space.set_now(self.clock.now());
        (victims, wrong)
    }

    /// Looks at the sample, which is all, and marks it; returns what was found accessed.
    fn sample(&mut self) -> BTreeSet<PageNo> {
        let mut found = BTreeSet::new();
        for first in self.pages.clone().step_by(PART) {
            let there = (first..first + PART).filter(|&page| self.is_there(page));
            let there: Vec<_> = there.collect();
            let accessed = there.iter().filter(|page| !self.marked.contains(page));
            let accessed: u32 = accessed.map(|page| 1 << (page % PART)).sum();
            let told = self.space.sampled(first, if self.silent[0] { 0 } else { accessed });
            let all = if self.silent[1] { accessed } else { accessed | told };
            found.extend(there.iter().filter(|&page| all >> (page % PART) & 1 == 1));
            self.marked.extend(there);
        }
        found
    }

    /// A program of which a fifth is hot; returns which of the two was wrong.
    fn run(&mut self) -> [bool; 2] {
        let (mut random, mut wrong, mut left) = (Random::new(3), [false; 2], 0);
        let (first, len) = (self.pages.start, self.pages.len());
        for round in 0..400 {
            for _ in 0..400 {
                let hot = if random.once_in(5) { len } else { len / 5 };
                self.touch(first + random.index(hot));
            }
            if round % 3 == 0 {
                let found = self.sample();
                let truth = std::mem::take(&mut self.since_sample);
                let came = std::mem::take(&mut self.came);
                let missing =
                    truth.iter().any(|&page| self.is_there(page) && !found.contains(&page));
                wrong[1] |= missing;
                assert!(found.iter().all(|page| truth.contains(page) || came.contains(page)));
            }
            let (victims, touched) = self.pass();
            left += victims.len();
            wrong[0] |= !touched.is_empty();
        }
        assert!(left > 1000, "{left} leave");
        self.space.check();
        wrong
    }
}

/// seen/A7.
#[test]
fn neither_the_hand_nor_the_sample_takes_evidence_from_the_other() {
    assert_eq!(World::new(512..2048).run(), [false; 2]);
    let twin = |silent| World { silent, ..World::new(512..2048) }.run();
    assert!(twin([true, false])[0], "the hand does not hear what the sample saw");
    assert!(twin([false, true])[1], "the sample does not hear what the hand saw");
}

#[test]
fn what_comes_is_marked_once_neighbours_together() {
    let mut world = World::new(512..2048);
    [900, 700, 701, 900, 702, 1023, 1024].into_iter().for_each(|page| world.touch(page));
    // It leaves before it is marked.
    world.touch(1500);
    world.space.set(1500, Page::Cached(1));
    assert_eq!(world.mark(), [700..703, 900..901, 1023..1025]);
    assert!(world.mark().is_empty());
    // The thread that waits may not have used the last page yet.
    world.touch(1700);
    assert!(world.mark().is_empty());
    world.touch(1702);
    assert!(world.mark().into_iter().flatten().eq([1700]));
}

#[test]
fn what_comes_along_is_judged_by_its_faults() {
    let mut world = World::new(512..2048);
    world.space.filled(701, &(700..703), false);
    world.space.brought(&(703..706), false);
    assert!((700..706).all(|page| world.is_watched(page) == (page == 701)));
    world.touch(900);
    assert!(world.mark().into_iter().flatten().eq([701]));
}

#[test]
fn what_cannot_be_marked_or_seen_stays_as_its_faults_say() {
    let mut world = World::new(512..2048);
    (600..610).for_each(|page| world.touch(page));
    let age = |world: &World, page| match world.space.page(page) {
        Page::Resident { age } => age,
        other => panic!("{other:?}"),
    };
    assert!(Watched::from_rounds(age(&world, 600)).is_some());
    world.space.unwatch(&(600..605));
    assert_eq!([600, 604].map(|page| age(&world, page)), [0; 2]);
    assert!(world.mark().into_iter().flatten().eq(605..609), "and 609 once another has come");
    world.clock.advance(100, 100);
    world.space.set_now(world.clock.now());
    let mut victims = Vec::new();
    let pick = |space: &mut Space, victims: &mut Vec<_>| {
        space.pick(0, 100, Haste::after(0), |_| false, |_| None, victims)
    };
    assert_eq!(pick(&mut world.space, &mut victims), None);
    assert_eq!(victims, [600, 601, 602, 603, 604], "nothing is known of the others");
    assert_eq!(age(&world, 605), 0);
    victims.clear();
    pick(&mut world.space, &mut victims);
    assert_eq!(victims.len(), 10);
}
