//! Several threads of a program at once, each of which knows what its memory must hold.

use std::thread;

use super::*;

/// A generator of numbers that repeats itself for a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below
    }
}

#[test]
fn threads_that_write_at_random_find_what_they_wrote() {
    let Some(world) = World::new("threads_that_write_at_random", 6 * MIB) else { return };
    let world = &world;
    thread::scope(|scope| {
        for seed in 1..=4_u64 {
            scope.spawn(move || {
                let memory = world.map(6 * MIB);
                let count = memory.len() / PAGE;
                let mut versions = vec![0_u64; count];
                let mut numbers = Numbers(seed * 0x1234_5678_9abc);
                for step in 0..15_000 {
                    let at = numbers.next(count);
                    let page = memory.start + at * PAGE;
                    if versions[at] == 0 {
                        assert_eq!(sys::get(page), 0, "seed {seed} step {step}");
                    } else {
                        verify(page, versions[at]);
                    }
                    if numbers.next(3) == 0 {
                        versions[at] = step + 1;
                        fill(page, versions[at]);
                    }
                }
            });
        }
    });
    assert_eq!(world.stats().over_limit_total, 0, "{:?}", world.stats());
    assert!(world.resident() <= 6 * MIB);
    world.check();
}

#[test]
fn threads_that_share_pages_lose_no_write() {
    let Some(world) = World::new("threads_that_share_pages", 4 * MIB) else { return };
    let memory = world.map(8 * MIB);
    let (world, memory) = (&world, &memory);
    let count = memory.len() / PAGE;
    // Each thread counts up its own word of every page: a page that came back old would show.
    thread::scope(|scope| {
        for thread in 0..4_usize {
            scope.spawn(move || {
                let mut numbers = Numbers(thread as u64 + 99);
                let mut counts = vec![0_u64; count];
                for _ in 0..20_000 {
                    let at = numbers.next(count);
                    let word = memory.start + at * PAGE + thread * 64;
                    assert_eq!(sys::get(word), counts[at]);
                    counts[at] += 1;
                    sys::put(word, counts[at]);
                }
            });
        }
    });
    world.check();
}

#[test]
fn threads_that_change_their_mappings_disturb_nobody() {
    let Some(world) = World::new("threads_that_change_mappings", 6 * MIB) else { return };
    let world = &world;
    thread::scope(|scope| {
        for seed in 1..=3_usize {
            scope.spawn(move || {
                // A part of the window of its own, so that addresses are used again and again.
                let base = world.window.start + seed * (256 * MIB);
                let mut numbers = Numbers(seed as u64 * 0xabc_def1);
                for round in 1..60 {
                    let len = (1 + numbers.next(6)) * MIB;
                    let mut memory = world.map_at(base, len, false);
                    let version = round * 8;
                    pages(&memory).for_each(|page| fill(page, version));
                    let gone = memory.start + len / 4..memory.start + len / 4 + 64 * PAGE;
                    match numbers.next(4) {
                        0 => world.discard(&gone, libc::MADV_DONTNEED),
                        1 => drop(world.map_at(gone.start, gone.len(), true)),
                        2 => {
                            world.unmap(&gone);
                            world.map_at(gone.start, gone.len(), false);
                        }
                        _ => {
                            let there = base + 128 * MIB;
                            let moved = world.remap(&memory, there, len, false);
                            for (old, new) in pages(&memory).zip(pages(&moved)) {
                                assert_eq!(sys::get(new), (old as u64) ^ (version << 20));
                            }
                            memory = world.remap(&moved, base, len, false);
                            world.discard(&gone, libc::MADV_DONTNEED);
                        }
                    }
                    for page in pages(&memory) {
                        if gone.contains(&page) {
                            assert_eq!(sys::get(page), 0, "seed {seed} round {round}");
                        } else {
                            verify(page, version);
                        }
                    }
                    world.unmap(&memory);
                }
            });
        }
    });
    world.wait_until_released();
    world.check();
}
