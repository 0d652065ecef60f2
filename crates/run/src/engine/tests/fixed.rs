//! Memory that cannot leave for a time.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;

/// Waits until so much is resident at most, while nobody touches anything.
fn wait_until_resident(world: &World, most: usize) {
    zfold_testing::wait_for(|| match world.resident() {
        resident if resident <= most => Ok(()),
        resident => Err(Box::new((resident, world.stats()))),
    });
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
        let Some(world) = World::new(4 * MIB) else { return };
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
    }
}

#[test]
fn memory_that_was_out_of_use_leaves_when_it_is_paged_out() {
    let Some(world) = World::new(4 * MIB) else { return };
    let memory = world.map(12 * MIB);
    fix(&memory, libc::PROT_READ);
    // From now on there is room for all of it.
    world.engine.set_limit(64 << 20);
    sys::protect(&memory, true);
    world.page_out(&memory);
    assert!(world.resident() < MIB, "{} stay", world.resident());
    pages(&memory).for_each(|page| verify(page, 1));
}

/// Who asks for that is told that all threads stand still, which hold no protection up.
#[test]
fn memory_that_cannot_be_written_to_leaves_while_nobody_can_change_that() {
    for protection in [libc::PROT_READ, libc::PROT_READ | libc::PROT_EXEC, libc::PROT_NONE] {
        let Some(world) = World::new(4 * MIB) else { return };
        world.engine.space(world.space).may_protect.store(true, Ordering::Relaxed);
        let memory = world.map(12 * MIB);
        let (done, goes_on) = mpsc::channel::<()>();
        let world = &world;
        thread::scope(|scope| {
            scope.spawn(move || {
                while goes_on.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    let asked = *lock(&world.asked.stand);
                    asked.inspect(|&(space, turn)| world.engine.stands(space, turn));
                    thread::sleep(Duration::from_micros(100));
                }
            });
            fix(&memory, protection);
            wait_until_resident(world, 4 * MIB);
            if protection != libc::PROT_NONE {
                pages(&memory).for_each(|page| verify(page, 1));
                wait_until_resident(world, 4 * MIB);
            }
            drop(done);
        });
        // Nobody is at work there any more, and all is what it was.
        while lock(&world.asked.stand).is_some() {
            thread::yield_now();
        }
        let vmas = crate::sys::procmap::within(std::process::id() as i32, &memory).unwrap();
        assert!(vmas.iter().all(|vma| i32::from(vma.protection) == protection), "{vmas:?}");
        sys::protect(&memory, true);
        pages(&memory).for_each(|page| verify(page, 1));
    }
}
