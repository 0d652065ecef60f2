//! What a fork waits for.

use std::slice;
use std::time::Duration;

use zfold_testing::wait_until;

use super::*;

#[test]
fn a_fork_waits_until_a_part_of_what_it_shares_can_be_copied() {
    let Some(world) = World::new("fork_waits_for_room", 8 * MIB) else { return };
    let memory = world.map(7 * MIB);
    pages(&memory).for_each(|page| fill(page, 1));
    let before = world.resident();
    assert!(before > 27 * MIB / 4, "{before}");

    // Nobody is ended above a limit of what is resident alone.
    world.request(Request::Fork { number_at: None });
    assert_eq!((world.resident(), world.stats().evictions_total), (before, 0));

    world.engine.set_limit_together(8_800_000);
    world.request(Request::Fork { number_at: None });
    // The evictor frees a little more than the fork waited for.
    let mut evictions = 0;
    wait_until("the evictor rests", || {
        let before = std::mem::replace(&mut evictions, world.stats().evictions_total);
        std::thread::sleep(Duration::from_millis(50));
        before == evictions
    });
    let resident = world.resident();
    assert!(resident + resident / 4 <= 8 * MIB, "{resident}");
    assert!(resident > 5 * MIB, "no more than needed: {resident}");

    world.request(Request::Fork { number_at: None });
    assert_eq!(world.stats().evictions_total, evictions, "there is room");
    pages(&memory).for_each(|page| verify(page, 1));
    world.check();
}

/// The kernel writes the number in the child before the tracer sees it, and would not sleep.
#[test]
fn the_page_of_a_childs_number_is_there_until_the_fork_is_over() {
    let Some(world) = World::new("the_page_of_a_childs_number", 16 * MIB) else { return };
    let memory = world.map(MIB);
    pages(&memory).for_each(|page| fill(page, 1));
    let page_out = || world.request(Request::PageOut { range: memory.clone() });
    let numbers = [7, 9].map(|page| memory.start + page * page_len() + 64);
    let [first, second] = numbers.map(|at| at - 64..at - 64 + page_len());
    let fork = |number_at| world.request(Request::Fork { number_at });
    let is_there = |page: &Range<usize>| !world.map.present(page).unwrap().is_empty();

    for over in [false, true] {
        page_out();
        assert!(!is_there(&first));
        fork(Some(numbers[0]));
        assert!(is_there(&first));
        page_out();
        assert_eq!(world.map.present(&memory).unwrap(), slice::from_ref(&first), "it stays");
        match over {
            false => world.engine.unborn(world.space),
            // There is no child, so it gets a space of its own, without pages.
            true => {
                let child = world.engine.forked(world.space, std::process::id() as i32);
                world.engine.gone(child);
            }
        }
        page_out();
        assert!(!is_there(&first), "the fork is over");
    }

    // Of the last one alone: the other is over.
    fork(Some(numbers[0]));
    fork(Some(numbers[1]));
    page_out();
    assert_eq!(world.map.present(&memory).unwrap(), [second]);
    fork(None);
    page_out();
    assert_eq!(world.map.present(&memory).unwrap(), []);
    pages(&memory).for_each(|page| verify(page, 1));
    world.check();
}
