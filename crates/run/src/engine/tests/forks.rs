//! What a fork waits for.

use std::time::Duration;

use zfold_testing::wait_until;

use super::*;

#[test]
fn a_fork_waits_until_a_part_of_what_it_shares_can_be_copied() {
    let Some((world, memory)) = World::filled(8 * MIB, 7 * MIB) else { return };
    let before = world.resident();
    assert!(before > 27 * MIB / 4, "{before}");

    // Nobody is ended above a limit of what is resident alone.
    world.request(Request::Fork { number_at: None });
    assert_eq!((world.resident(), world.stats().evictions_total), (before, 0));

    world.engine.set_limit_together(8_800_000);
    world.engine.set_limit(u64::MAX);
    world.request(Request::Fork { number_at: None });
    // The evictor frees a little more than the fork waited for, and then there is room.
    wait_until("a fork waits for nothing", || {
        let before = world.stats().evictions_total;
        world.request(Request::Fork { number_at: None });
        std::thread::sleep(Duration::from_millis(50));
        world.stats().evictions_total == before
    });
    let resident = world.resident();
    assert!(resident + resident / 4 <= 8 * MIB, "{resident}");
    assert!(resident > 5 * MIB, "no more than needed: {resident}");
    pages(&memory).for_each(|page| verify(page, 1));
}

/// The kernel writes the number in the child before the tracer sees it, and would not sleep.
#[test]
fn the_page_of_a_childs_number_is_there_until_the_fork_is_over() {
    let Some((world, memory)) = World::filled(16 * MIB, MIB) else { return };
    let page_out = || world.page_out(&memory);
    let [first, second] = [7, 9].map(|page| memory.start + page * page_len() + 64);
    let fork = |number_at| world.request(Request::Fork { number_at });

    for over in [false, true] {
        page_out();
        assert_eq!(world.there(&memory), [0; 0]);
        fork(Some(first));
        assert_eq!(world.there(&memory), [7]);
        page_out();
        assert_eq!(world.there(&memory), [7], "it stays");
        match over {
            false => world.engine.unborn(world.space),
            // There is no child, so it gets a space of its own, without pages.
            true => {
                let child = world.engine.forked(world.space, std::process::id() as i32);
                world.engine.gone(child);
            }
        }
        page_out();
        assert_eq!(world.there(&memory), [0; 0], "the fork is over");
    }

    // Of the last one alone: the other is over.
    fork(Some(first));
    fork(Some(second));
    page_out();
    assert_eq!(world.there(&memory), [9]);
    fork(None);
    page_out();
    assert_eq!(world.there(&memory), [0; 0]);
    pages(&memory).for_each(|page| verify(page, 1));
}
