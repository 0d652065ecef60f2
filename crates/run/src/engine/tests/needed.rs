//! What programs say they will need comes back before it is touched.

use super::*;

impl World {
    fn need(&self, range: &Range<usize>) {
        self.request(Request::WillNeed { range: range.clone() });
    }

    /// Bytes of a range that are there.
    fn present(&self, range: &Range<usize>) -> usize {
        self.map.present(range).unwrap().iter().map(|part| part.len()).sum()
    }

    /// Returns when at least so many pages were brought ahead of touches; returns how many.
    fn prefetched(&self, least: u64) -> u64 {
        loop {
            let found = self.stats().prefetched_total;
            if found >= least {
                return found;
            }
            std::thread::yield_now();
        }
    }

    fn wait_until_present(&self, range: &Range<usize>) {
        while self.present(range) < range.len() {
            std::thread::yield_now();
        }
    }

    /// Fills memory, all of which leaves.
    fn away(&self, memory: &Range<usize>, version: u64) {
        pages(memory).for_each(|page| fill(page, version));
        // Pages that are in use elsewhere at that moment are tried again.
        while self.present(memory) > 0 {
            self.page_out(memory);
        }
    }
}

#[test]
fn what_is_needed_comes_back_untouched() {
    let Some(world) = World::new(8 * MIB) else { return };
    let memory = world.map(3 * MIB);
    world.away(&memory, 1);
    // Other memory, and what is not the space's.
    world.need(&(0..page_len()));
    let before = world.stats();
    world.need(&memory);
    world.wait_until_present(&memory);
    pages(&memory).for_each(|page| verify(page, 1));
    let all = before.prefetched_total + (memory.len() / page_len()) as u64;
    assert_eq!(world.prefetched(all), all);
    assert_eq!(world.stats().loads_total, before.loads_total, "no fault");
    world.check();
}

#[test]
fn what_is_needed_comes_though_other_pages_must_leave_for_it() {
    let Some(world) = World::new(8 * MIB) else { return };
    let memory = world.map(3 * MIB);
    let others = world.map(16 * MIB);
    for version in 1..4 {
        world.away(&memory, version);
        pages(&others).for_each(|page| fill(page, version));
        world.need(&memory);
        world.wait_until_present(&memory);
        assert!(world.resident() <= 8 * MIB, "{} resident", world.resident());
        pages(&memory).for_each(|page| verify(page, version));
        pages(&others).for_each(|page| verify(page, version));
    }
    assert_eq!(world.stats().over_limit_total, 0, "{:?}", world.stats());
    world.check();
}

#[test]
fn of_one_call_half_a_limit_comes_back() {
    let Some(world) = World::new(8 * MIB) else { return };
    let memory = world.map(16 * MIB);
    world.away(&memory, 1);
    let before = world.stats().prefetched_total;
    world.need(&memory);
    let half = memory.start..memory.start + 4 * MIB;
    world.wait_until_present(&half);
    // By the time that this is there, a call that goes on would have brought more.
    let last = memory.end - page_len()..memory.end;
    world.need(&last);
    world.wait_until_present(&last);
    let all = before + (half.len() / page_len()) as u64 + 1;
    assert_eq!(world.prefetched(all), all);
    assert_eq!(world.resident(), half.len() + page_len());
    pages(&memory).for_each(|page| verify(page, 1));
    world.check();
}

#[test]
fn what_was_needed_and_is_gone_does_not_come_back() {
    let Some(world) = World::new(8 * MIB) else { return };
    for round in 1..30 {
        let memory = world.map_at(world.window.start, 3 * MIB);
        world.away(&memory, round);
        world.need(&memory);
        match round % 3 {
            0 => world.discard(&memory, libc::MADV_DONTNEED),
            1 => {
                world.unmap(&memory);
                world.map_at(memory.start, memory.len());
            }
            _ => {
                let moved = world.remap(&memory, world.window.start + 16 * MIB, memory.len(), true);
                for (from, to) in pages(&memory).zip(pages(&moved)) {
                    // The first word names the page that it was written to.
                    assert_eq!(sys::get(to), from as u64 ^ (round << 20));
                }
                world.unmap(&moved);
            }
        }
        pages(&memory).for_each(|page| assert_eq!(sys::get(page), 0, "{page:#x} in {round}"));
        world.unmap(&memory);
        world.wait_until_released();
    }
    let memory = world.map_at(world.window.start, 3 * MIB);
    world.away(&memory, 1);
    world.need(&memory);
    world.engine.gone(world.space);
    world.wait_until_released();
    assert_eq!(*lock(&world.asked.end), [""; 0]);
}
