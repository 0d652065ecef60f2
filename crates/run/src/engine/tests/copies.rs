//! Pages that leave as they came are not compressed again.

use super::*;

fn read(memory: &Range<usize>, version: u64) {
    pages(memory).for_each(|page| verify(page, version));
}

#[test]
fn pages_that_were_only_read_are_compressed_once() {
    let Some((world, memory)) = World::filled(8 * MIB, 32 * MIB) else { return };
    read(&memory, 1);
    let before = world.stats();
    (0..3).for_each(|_| read(&memory, 1));
    let after = world.stats();
    let kept = after.kept_copies_total - before.kept_copies_total;
    let stored = after.stores_total - before.stores_total;
    // Three passes, most of whose pages come from the store; fewer on a busy machine, where a read
    // that is late ends a sequence: without copies, all of 18,000 would be compressed.
    let all = (memory.len() / page_len()) as u64;
    assert!(kept > all && stored < all, "kept {kept}, stored {stored}: {after:?}");
    assert!(after.copied_pages > all / 80, "{after:?}");
    // What is changed is what comes back, time and again.
    for version in 2..5 {
        pages(&memory).for_each(|page| fill(page, version));
        read(&memory, version);
        read(&memory, version);
    }
}

#[test]
fn pages_that_mostly_change_are_not_compared_each_time() {
    let Some(world) = World::new(4 * MIB) else { return };
    let memory = world.map(16 * MIB);
    for version in 1..8 {
        pages(&memory).for_each(|page| fill(page, version));
    }
    read(&memory, 7);
    let stats = world.stats();
    assert!(stats.kept_copies_total < stats.stores_total / 8, "{stats:?}");
}

#[test]
fn copies_count_against_the_limit() {
    let Some((world, memory)) = World::filled(8 * MIB, 32 * MIB) else { return };
    for _ in 0..3 {
        for page in pages(&memory) {
            verify(page, 1);
            if page % (64 * page_len()) == 0 {
                let stats = world.stats();
                let each = stats.stored_bytes / stats.stored_pages.max(1);
                let copies = stats.copied_pages * each.min(page_len() as u64);
                let held = world.resident() as u64 + copies;
                assert!(held <= 8 * MIB as u64 + MIB as u64 / 2, "{held} held, {stats:?}");
                assert!(copies <= 2 * MIB as u64 + MIB as u64 / 2, "{stats:?}");
            }
        }
    }
    assert_eq!(world.stats().over_limit_total, 0);
}

#[test]
fn copies_make_room_for_pages() {
    let Some((world, memory)) = World::filled(8 * MIB, 32 * MIB) else { return };
    world.page_out(&memory);
    // What all pages but the resident ones take, and a little more.
    let held = world.stats().stored_bytes;
    let limit = held * 7 / 8;
    read(&memory, 1);
    let store = world.engine.store();
    store.compact();
    let limit = limit.max(store.held_bytes());
    let mut tunables = store.tunables();
    tunables.limit_bytes = Some(limit);
    store.tune(&tunables).unwrap();
    for version in 2..5 {
        pages(&memory).for_each(|page| fill(page, version));
        read(&memory, version);
        read(&memory, version);
        let held = store.stats().held_bytes();
        assert!(held <= limit, "{held} bytes of {limit}");
    }
}

#[test]
fn copies_of_what_is_given_up_go_with_it() {
    let Some((world, memory)) = World::filled(8 * MIB, 16 * MIB) else { return };
    read(&memory, 1);
    assert!(world.stats().copied_pages > 0, "{:?}", world.stats());
    let half = memory.start..memory.start + 8 * MIB;
    world.discard(&half, libc::MADV_DONTNEED);
    pages(&half).for_each(|page| assert_eq!(sys::get(page), 0));
    let moved =
        world.remap(&(half.end..memory.end), world.window.start + (1 << 31), 8 * MIB, false);
    // The first word names the page that it was written to.
    for (from, to) in pages(&(half.end..memory.end)).zip(pages(&moved)) {
        assert_eq!(sys::get(to), from as u64 ^ (1 << 20));
    }
    world.unmap(&moved);
    world.unmap(&half);
    world.wait_until_released();
    assert_eq!(world.stats().copied_pages, 0);
}

#[test]
fn what_is_zeros_by_now_has_no_copy() {
    let Some((world, memory)) = World::filled(4 * MIB, 8 * MIB) else { return };
    read(&memory, 1);
    for page in pages(&memory) {
        (0..page_len()).step_by(8).for_each(|at| sys::put(page + at, 0));
    }
    world.page_out(&memory);
    world.wait_until_released();
    assert_eq!(world.stats().copied_pages, 0);
    pages(&memory).for_each(|page| assert_eq!(sys::get(page + 64), 0));
}
