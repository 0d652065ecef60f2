//! Pages that leave as they came are not compressed again.

use zfold_region::{Memory, Region};

use super::{MIB, beside, once, read, small, write};

#[test]
fn pages_that_were_only_read_are_compressed_once() {
    let mut region = Region::new(8 * MIB, &small(MIB)).unwrap();
    write(&mut region, 1);
    read(&region, 1);
    let before = region.stats();
    for _ in 0..3 {
        read(&region, 1);
    }
    let after = region.stats();
    let kept = after.kept_copies_total - before.kept_copies_total;
    let stored = after.stores_total - before.stores_total;
    // Three passes over 2048 pages, most of which come from the store.
    assert!(kept > 3000 && stored < kept / 2, "{after:?}");
}

#[test]
fn copies_are_fewer_than_pages_that_lie_in_the_store_alone() {
    let mut region = Region::new(8 * MIB, &small(6 * MIB)).unwrap();
    write(&mut region, 1);
    for _ in 0..3 {
        read(&region, 1);
    }
    once(region.memory(), |stats| stats.copied_pages <= stats.stored_pages.max(256));
}

#[test]
fn copies_make_room_for_pages() {
    // What all pages but the resident ones take, and a little more.
    let mut region = Region::new(8 * MIB, &small(2 * MIB)).unwrap();
    write(&mut region, 1);
    region.pageout(..).unwrap();
    let full = region.stats().store_bytes;
    let limit = full as usize * 7 / 8;
    drop(region);
    let options = small(2 * MIB).with_store_limit(limit as u64);
    let mut region = Region::new(8 * MIB, &options).unwrap();
    let memory = region.memory().clone();
    let mut most = 0;
    let look = || most = most.max(memory.stats().store_bytes as usize);
    beside(look, || {
        // Until what was overwritten has left many holes: room must be found in spite of them.
        for version in 1..12 {
            write(&mut region, version);
            read(&region, version);
            read(&region, version);
        }
    });
    assert!(limit * 7 / 8 < most && most <= limit, "{most} bytes of {limit}");
}

#[test]
fn copies_of_pages_that_are_given_up_go_with_them() {
    let memory = Memory::new(&small(2 * MIB)).unwrap();
    let mut region = memory.region(8 * MIB).unwrap();
    write(&mut region, 1);
    read(&region, 1);
    assert!(memory.stats().copied_pages > 0);
    region.discard(..);
    once(&memory, |stats| (stats.copied_pages, stats.stored_pages) == (0, 0));
    write(&mut region, 2);
    read(&region, 2);
    drop(region);
    once(&memory, |stats| (stats.copied_pages, stats.stored_pages) == (0, 0));
}
