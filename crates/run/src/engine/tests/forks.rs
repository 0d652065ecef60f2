//! A fork waits for room if the kernel would end the program without.

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
    world.request(Request::Fork);
    assert_eq!((world.resident(), world.stats().evictions_total), (before, 0));

    world.engine.set_limit_together(8_800_000);
    world.request(Request::Fork);
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

    world.request(Request::Fork);
    assert_eq!(world.stats().evictions_total, evictions, "there is room");
    pages(&memory).for_each(|page| verify(page, 1));
    world.check();
}
