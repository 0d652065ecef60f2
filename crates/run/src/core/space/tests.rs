//! Which pages a fault gets besides the one that it asks for.

use zfold_uffd::policy::{Clock, Haste};

use super::*;

impl Space {
    /// Asserts S4, S7 for states, and that counts agree.
    pub(crate) fn check(&self) {
        let mut counts = Counts::default();
        self.table.for_each(|page, state| {
            assert!(self.closed.around(page).is_some(), "S4: {page:#x} is {state:?}");
            counts.present += usize::from(state.is_present());
            counts.doomed += usize::from(matches!(state, Page::Doomed { .. }));
            counts.fixed += usize::from(matches!(state, Page::Fixed { .. }));
            counts.cached += usize::from(matches!(state, Page::Cached(_)));
            counts.stored += usize::from(matches!(state, Page::Stored(_)));
        });
        self.table.for_each_copy(|page, key| {
            assert!(self.table.get(page).may_be_copied(), "S7: {page:#x} has {key} as a copy");
            counts.copied += 1;
        });
        assert_eq!(counts, self.table.counts());
    }
}

/// A space of which the pages from 100 to 200 are closed and in these states.
fn space(states: impl Fn(PageNo) -> Page) -> Space {
    let mut space = Space::default();
    let all = 100..200;
    let mut present = Ranges::default();
    present.insert(all.clone());
    space.close(&all, &present, 0);
    all.for_each(|page| match states(page) {
        Page::Absent => space.emptied(page),
        state => space.set(page, state),
    });
    space
}

/// Has faults follow each other at these pages, of which each gets its page alone.
fn follow(space: &mut Space, pages: impl IntoIterator<Item = PageNo>) {
    pages.into_iter().for_each(|page| space.filled(page, &(page..page + 1), false));
}

/// The answer for these pages, each of which is under its number.
fn stored(pages: &[PageNo]) -> Answer {
    Answer::Stored(pages.iter().map(|&page| (page, page as Key)).collect())
}

#[test]
fn a_fault_gets_its_page_and_those_that_are_like_it() {
    let mut absent =
        space(|page| if page < 110 { Page::Resident { age: 0 } } else { Page::Absent });
    follow(&mut absent, [112, 111]);
    assert_eq!(absent.fault(110, 64), Answer::Zero(110..111), "below it is another state");
    follow(&mut absent, [197, 198]);
    assert_eq!(absent.fault(199, 64), Answer::Zero(199..200), "the range ends");

    let mut all = space(|page| Page::Stored(page as Key));
    assert_eq!(all.fault(150, 16), stored(&[150]));
    follow(&mut all, [150]);
    let most = loads_max().min(2);
    assert_eq!(all.fault(149, 16), stored(&[148, 149][2 - most..]));
    assert_eq!(all.fault(151, 16), stored(&[151, 152][..most]));
    assert_eq!(all.fault(151, 1), stored(&[151]), "there is room for one");
    assert_eq!(all.fault(151, 0), Answer::NoRoom);
}

#[test]
fn pages_come_from_the_swap_cache_with_those_that_left_with_them() {
    // From 150 on they left in another batch.
    let slot = |page: PageNo| page as SlotNo - if page < 150 { 100 } else { 20 };
    let mut cached = space(|page| Page::Cached(slot(page)));
    assert_eq!(cached.fault(120, 32), Answer::Cached(120..121, 20));
    follow(&mut cached, [120]);
    assert_eq!(cached.fault(119, 32), Answer::Cached(118..120, 19));
    assert_eq!(cached.fault(121, 32), Answer::Cached(121..123, 21));
    follow(&mut cached, [148]);
    assert_eq!(cached.fault(149, 32), Answer::Cached(149..150, 49), "the next is elsewhere");
    follow(&mut cached, [151]);
    assert_eq!(cached.fault(150, 32), Answer::Cached(150..151, 130), "the one below, too");
}

#[test]
fn what_could_not_be_moved_is_found_and_picked_again() {
    let mut space = space(|page| match page {
        110..=119 | 125 => Space::FIXED,
        121 => Space::BUSY,
        122 => Page::Doomed { epoch: 0 },
        _ => Page::Resident { age: 3 },
    });
    assert_eq!(space.fixed_from(0), (vec![110..120, 121..122, 125..126], None));
    assert_eq!(space.fixed_from(118), (vec![118..120, 121..122, 125..126], None));
    let mut victims = Vec::new();
    let next = space.pick_in(&(118..124), 4, |page| page == 119, &mut victims);
    assert_eq!((victims, next), (vec![118, 120, 121, 123], None), "not what is kept or given up");
    assert!(space.may_leave(118) && space.may_leave(121) && !space.may_leave(122));
    assert_eq!(space.fixed_from(0).0, [110..118, 119..120, 125..126]);
}

#[test]
fn a_stack_that_grows_waits_for_room() {
    let mut space = space(|_| Page::Resident { age: 0 });
    space.set_helpers(Helpers { all: 300..310, spare: 309 });
    let below = 97;
    assert_eq!(space.fault(below, 0), Answer::NoRoom);
    assert_eq!(space.fault(below, 5), Answer::Check);
    assert_eq!(space.fault(305, 0), Answer::Check, "the helper's");
    follow(&mut space, [below]);
    assert_eq!(space.page(below), Page::Resident { age: 0 });
    // What lies between was passed over, and has grown with it.
    assert_eq!(space.fault(below + 1, 0), Answer::NoRoom);
    space.check();
}

/// What a fault brings from the store, with its copies or without.
fn load(space: &mut Space, pages: Pages, keeps: bool) -> Vec<Key> {
    space.filled(pages.start, &pages, keeps);
    space.check();
    given_up(space)
}

fn given_up(space: &mut Space) -> Vec<Key> {
    space.take_free().collect()
}

#[test]
fn what_comes_from_the_store_has_a_copy_until_it_is_nowhere_or_in_the_store() {
    let mut space = space(|page| Page::Stored(page as Key));
    assert_eq!(load(&mut space, 100..110, true), []);
    assert_eq!(load(&mut space, 110..112, false), [110, 111]);
    assert_eq!(
        (space.copy(102), space.copy(103), space.counts().copied),
        (Some(102), Some(103), 10)
    );
    // It was zeros when it left.
    space.emptied(100);
    assert_eq!((given_up(&mut space), space.copy(100)), (vec![100], None));
    // It leaves, comes back and leaves again: the copy is the page, or what was compressed is.
    (101..104).for_each(|page| space.set(page, Page::Cached(page as SlotNo)));
    space.filled(101, &(101..102), true);
    assert_eq!(space.copy(101), Some(101), "the bytes are those of the slot");
    assert!(space.kept(101, 101, 101), "it is there: nothing to compress");
    assert_eq!((space.page(101), space.copy(101)), (Page::Resident { age: 0 }, Some(101)));
    assert!(space.kept(102, 102, 102));
    assert_eq!((space.page(102), space.copy(102)), (Page::Stored(102), None));
    space.set(101, Page::Cached(1));
    assert!(space.stored(101, 1, 77));
    assert!(!space.stored(101, 1, 78), "it is in the store");
    assert_eq!(given_up(&mut space), [101]);
    assert_eq!(space.page(101), Page::Stored(77));
    // What is given up, moved and unmapped.
    space.doomed(&(104..105));
    assert_eq!((given_up(&mut space), space.copy(104)), (vec![104], None));
    space.moved(&(105..107), 300, |_, _| ());
    assert_eq!((space.copy(105), space.copy(300), space.copy(301)), (None, Some(105), Some(106)));
    space.unmapped(&(107..109));
    assert_eq!(given_up(&mut space), [107, 108]);
    space.check();
}

#[test]
fn a_child_refers_to_the_copies_of_its_parent() {
    let mut space = space(|page| Page::Stored(page as Key));
    load(&mut space, 100..150, true);
    space.set(100, Page::Cached(1));
    let mut keys = Vec::new();
    let mut child = space.fork(|key| keys.push(key));
    child.check();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(101..200), "but to that of a page that is not copied");
    assert_eq!((child.copy(101), child.counts().copied), (Some(101), 49));
    child.forget_all();
    assert_eq!(given_up(&mut child).len(), 99);
}

#[test]
fn a_page_that_comes_back_soon_is_spared() {
    let (mut space, clock) = (space(|_| Page::Resident { age: 0 }), Clock::default());
    let pass = |space: &mut Space, back: PageNo| {
        clock.advance(10, 100);
        space.set_now(clock.now());
        let mut victims = Vec::new();
        let next = space.pick(100, 90, Haste::after(0), |_| false, |_| None, &mut victims);
        assert!(next.is_none() || victims.len() == 90);
        victims.iter().for_each(|&page| space.set(page, Page::Cached(page as SlotNo)));
        if victims.contains(&back) {
            follow(space, [back]);
        }
        victims.contains(&back)
    };
    // It comes back at once whenever it has left.
    let left: Vec<_> = (0..20).map(|_| pass(&mut space, 100)).collect();
    assert_eq!(left.iter().filter(|left| **left).count(), 2, "{left:?}: 16 rounds");
    // What is mapped elsewhere is remembered there; what is new here is not known.
    space.moved(&(100..101), 300, |_, _| ());
    let Page::Resident { age } = space.page(300) else { panic!("{:?}", space.page(300)) };
    space.set(300, Page::Cached(1));
    follow(&mut space, [300, 100]);
    assert!(space.page(300) == Page::Resident { age: 64 } && age < 64, "it was hot");
    assert_eq!(space.page(100), Page::Resident { age: 0 });
    assert!(space.fork(|_| ()).page(300) == space.page(300));
}
