//! Spaces that lose their helpers and get others.

use std::time::{Duration, Instant};

use super::*;

/// Between two helpers nothing can leave: what is missing waits for the next, and does not come in
/// above the limit.
#[test]
fn faults_wait_for_another_helper() {
    const LIMIT: usize = 8 * MIB;
    let Some(uffd) = uffd() else { return };
    let number = uffd.as_fd().as_raw_fd() as u64;
    let world = World::unattached(LIMIT, Resting::together());
    world.attach(uffd);
    let memory = world.map(32 * MIB);
    pages(&memory).for_each(|page| fill(page, 1));
    // Faults wait for 50 ms, and on a busy machine a look may come later than that.
    let mut in_time = 0;
    for version in 2..40 {
        std::thread::scope(|scope| {
            lock(&world.asked.attach).clear();
            let since = Instant::now();
            world.engine.unattached(world.space);
            let writer = scope.spawn(|| {
                pages(&memory).for_each(|page| verify(page, version - 1));
                pages(&memory).for_each(|page| fill(page, version));
            });
            while lock(&world.asked.attach).is_empty() {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(10));
            let resident = world.resident();
            if since.elapsed() < Duration::from_millis(50) {
                in_time += 1;
                assert!(resident <= LIMIT, "{resident} bytes of {LIMIT}");
            }
            world.give_helper(number, None);
            writer.join().unwrap();
        });
        if in_time == 3 {
            break;
        }
    }
    if in_time == 0 {
        zfold_testing::skip("the machine is too busy");
    }
}
