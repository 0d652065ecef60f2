//! Memory that cannot leave for a time.

use std::thread;
use std::time::{Duration, Instant};

use super::*;

/// Waits until so much is resident at most, while nobody touches anything.
fn wait_until_resident(world: &World, most: usize) {
    let began = Instant::now();
    while world.resident() > most {
        let stats = world.stats();
        assert!(began.elapsed() < Duration::from_secs(20), "{}: {stats:?}", world.resident());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Fills memory, more than the limit, and makes it such that it cannot leave, piece by piece,
/// before it does.
fn fix(memory: &Range<usize>, protection: i32) {
    for start in memory.clone().step_by(MIB / 2) {
        let piece = start..start + MIB / 2;
        pages(&piece).for_each(|page| fill(page, 1));
        sys::protect_as(&piece, protection);
    }
}

#[test]
fn memory_that_was_out_of_use_leaves_when_it_is_writable_again() {
    for protection in [libc::PROT_NONE, libc::PROT_READ] {
        let Some(world) = World::new("memory_that_was_out_of_use", 4 * MIB) else { return };
        let memory = world.map(12 * MIB);
        fix(&memory, protection);
        let fixed = world.resident();
        // How much more depends on who is quicker.
        assert!(fixed > 4 * MIB, "{fixed} of it could not leave");
        sys::protect(&memory, true);
        // Nobody touches it, and nobody says so.
        wait_until_resident(&world, 4 * MIB);
        pages(&memory).for_each(|page| verify(page, 1));
        wait_until_resident(&world, 4 * MIB);
        world.check();
    }
}

#[test]
fn memory_that_was_out_of_use_leaves_when_it_is_paged_out() {
    let Some(world) = World::new("memory_that_was_out_of_use_is_paged_out", 4 * MIB) else {
        return;
    };
    let memory = world.map(12 * MIB);
    fix(&memory, libc::PROT_READ);
    // From now on there is room for all of it.
    world.engine.set_limit(64 << 20);
    sys::protect(&memory, true);
    world.request(Request::PageOut { range: memory.clone() });
    assert!(world.resident() < MIB, "{} stay", world.resident());
    pages(&memory).for_each(|page| verify(page, 1));
    world.check();
}
