//! Which pages a fault gets besides the one that it asks for.

use super::*;

/// A space of which the pages from 100 to 200 are closed and in these states.
fn space(states: impl Fn(PageNo) -> Page) -> Space {
    let mut space = Space::default();
    let all = 100..200;
    let mut present = Ranges::default();
    present.insert(all.clone());
    space.close(&all, &present, 0);
    all.for_each(|page| space.set(page, states(page)));
    space
}

/// Has faults follow each other at these pages, of which each gets its page alone.
fn follow(space: &mut Space, pages: impl IntoIterator<Item = PageNo>) {
    pages.into_iter().for_each(|page| drop(space.filled(page, &(page..page + 1), Space::NEW)));
}

#[test]
fn a_fault_gets_its_page_and_those_that_are_like_it() {
    let mut absent =
        space(|page| if page < 110 { Page::Resident { age: 0 } } else { Page::Absent });
    follow(&mut absent, [112, 111]);
    assert_eq!(absent.fault(110, 64), Answer::Zero(110..111), "below it is another state");
    follow(&mut absent, [197, 198]);
    assert_eq!(absent.fault(199, 64), Answer::Zero(199..200), "the range ends");

    let mut stored = space(|page| Page::Stored(page as Key));
    assert_eq!(stored.fault(150, 16), Answer::Stored(150, vec![150]));
    follow(&mut stored, [150]);
    assert_eq!(stored.fault(149, 16), Answer::Stored(148, vec![148, 149]));
    assert_eq!(stored.fault(151, 16), Answer::Stored(151, vec![151, 152]));
    assert_eq!(stored.fault(151, 1), Answer::Stored(151, vec![151]), "there is room for one");
    assert_eq!(stored.fault(151, 0), Answer::NoRoom);
}

#[test]
fn pages_come_from_the_swap_cache_with_those_that_left_with_them() {
    // From 150 on they left in another batch.
    let slot = |page: PageNo| page as SlotNo - if page < 150 { 100 } else { 20 };
    let mut cached = space(|page| Page::Cached(slot(page)));
    assert_eq!(cached.fault(120, 16), Answer::Cached(120..121, 20));
    follow(&mut cached, [120]);
    assert_eq!(cached.fault(119, 16), Answer::Cached(118..120, 19));
    assert_eq!(cached.fault(121, 16), Answer::Cached(121..123, 21));
    follow(&mut cached, [148]);
    assert_eq!(cached.fault(149, 16), Answer::Cached(149..150, 49), "the next is elsewhere");
    follow(&mut cached, [151]);
    assert_eq!(cached.fault(150, 16), Answer::Cached(150..151, 130), "the one below, too");
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
    assert_eq!(space.page(below), Space::NEW);
    // What lies between was passed over, and has grown with it.
    assert_eq!(space.fault(below + 1, 0), Answer::NoRoom);
    space.check();
}
