//! What happens when pages that must leave find no room.

use std::time::{Duration, Instant};

use super::*;

impl World {
    fn limit_store(&self, bytes: usize) {
        let store = self.engine.store();
        let mut tunables = store.tunables();
        tunables.limit_bytes = Some(bytes as u64);
        store.tune(&tunables).unwrap();
    }

    fn victims(&self) -> Vec<SpaceId> {
        lock(&self.asked.victims).clone()
    }
}

/// Bytes that do not compress.
fn noise(page: usize) {
    let mut word = page as u64;
    for at in (0..page_len()).step_by(8) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        sys::put(page + at, word);
    }
}

#[test]
fn what_finds_no_room_waits_for_one_victim_and_loses_nothing() {
    let Some(world) = World::new(8 * MIB) else { return };
    world.limit_store(4 * MIB);
    let memory = world.map(32 * MIB);
    std::thread::scope(|scope| {
        let fills = scope.spawn(|| pages(&memory).for_each(noise));
        while world.victims().is_empty() {
            std::thread::yield_now();
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(500) {
            assert!(world.resident() <= 8 * MIB, "{} resident", world.resident());
        }
        assert_eq!(world.victims(), [world.space], "the largest, once");
        assert!(!fills.is_finished(), "it waits");
        // There is room, as if another victim were gone.
        world.limit_store(64 * MIB);
        lock(&world.engine.shared.cold.starving).gone(world.space);
        world.engine.shared.evictor.call();
        fills.join().unwrap();
    });
    assert_eq!(world.victims().len(), 1);
    for page in pages(&memory) {
        let found = sys::get(page + 8);
        noise(page);
        assert_eq!(sys::get(page + 8), found, "page {page:#x}");
    }
}
