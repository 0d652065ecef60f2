//! Layouts, moves and waiting pages of z3fold, page by page.

use super::*;
use crate::memory::source::PageSource;
use crate::testing::HeapPages;
use crate::units::{PageCount, PageSize};

fn z3fold(page_size: PageSize) -> Z3fold {
    let arena = Arena::new(HeapPages.reserve(64 * page_size.bytes()).unwrap(), page_size);
    let records = HeapPages.reserve(64 << 10).unwrap();
    Z3fold::new(arena, records, true)
}

fn places(z3fold: &Z3fold, handles: &[Handle]) -> Vec<(u32, Buddy)> {
    let objects = handles.iter().map(|&handle| z3fold.find(handle).unwrap());
    objects.map(|object| (object.page, object.place)).collect()
}

fn alloc(core: &mut Z3fold, len: usize) -> Handle {
    core.alloc(len).unwrap().0
}

#[test]
fn the_header_takes_the_kernels_chunks() {
    let shared = |size| z3fold(size).layout.shared_len_max();
    assert_eq!(shared(PageSize::KIB4), 61 * 64);
    assert_eq!(shared(PageSize::KIB16), 62 * 256);
    assert_eq!(z3fold(PageSize::KIB64).len_max(), 65536);
}

#[test]
fn three_objects_share_a_page_in_the_order_first_last_middle() {
    let mut z3fold = z3fold(PageSize::KIB4);
    let handles = [0; 3].map(|_| alloc(&mut z3fold, 1280));
    assert_eq!(
        places(&z3fold, &handles),
        [(0, Buddy::First), (0, Buddy::Last), (0, Buddy::Middle)]
    );
    z3fold.check();
    let fourth = alloc(&mut z3fold, 100);
    assert_eq!(places(&z3fold, &[fourth])[0].0, 1);
}

#[test]
fn an_object_that_leaves_no_chunk_owns_its_page() {
    let mut z3fold = z3fold(PageSize::KIB4);
    let (shared, headless) = (alloc(&mut z3fold, 3904), alloc(&mut z3fold, 3905));
    assert_eq!(places(&z3fold, &[shared]), [(0, Buddy::First)]);
    assert_eq!(places(&z3fold, &[headless]), [(1, Buddy::Headless)]);
    z3fold.free(headless, &Pins::default()).unwrap();
    assert_eq!(z3fold.arena.used(), PageCount(1));
    z3fold.check();
}

#[test]
fn a_lone_middle_object_becomes_the_first() {
    let mut z3fold = z3fold(PageSize::KIB4);
    let pins = Pins::default();
    let [first, last, middle] = [0; 3].map(|_| alloc(&mut z3fold, 1000));
    // SAFETY: the object has 1000 bytes, and nobody else uses this core.
    unsafe { z3fold.locate(middle).unwrap().as_mut() }.fill(7);
    z3fold.free(first, &pins).unwrap();
    z3fold.free(last, &pins).unwrap();
    assert_eq!(places(&z3fold, &[middle]), [(0, Buddy::First)]);
    let bytes = z3fold.locate(middle).unwrap();
    // SAFETY: nobody else uses this core.
    assert_eq!(unsafe { bytes.as_ref() }, [7; 1000]);
    z3fold.check();
}

#[test]
fn the_middle_object_slides_only_over_gaps_of_three_chunks() {
    let pins = Pins::default();
    for (gap_chunks, slides) in [(2, false), (3, true)] {
        let mut z3fold = z3fold(PageSize::KIB4);
        // First of 10 chunks; last leaves `gap_chunks` between it and the middle.
        let first = alloc(&mut z3fold, 10 * 64);
        let last = alloc(&mut z3fold, (62 - 10 - 20 - gap_chunks) * 64);
        let middle = alloc(&mut z3fold, 20 * 64);
        z3fold.free(first, &pins).unwrap();
        let start = z3fold.layout.middle_start(z3fold.find(middle).unwrap().page);
        assert_eq!(start, if slides { 12 + gap_chunks } else { 12 });
        assert!(z3fold.locate(last).is_ok());
        z3fold.check();
    }
}

#[test]
fn a_single_object_moves_into_another_page_unless_it_is_pinned() {
    for pinned in [false, true] {
        let mut z3fold = z3fold(PageSize::KIB4);
        let big = alloc(&mut z3fold, 2600);
        let (a, b) = (alloc(&mut z3fold, 2000), alloc(&mut z3fold, 1800));
        let small = alloc(&mut z3fold, 900);
        assert_eq!(places(&z3fold, &[big, a, b, small]).iter().map(|p| p.0).max(), Some(1));
        let mut pins = Pins::default();
        if pinned {
            pins.add(b);
        }
        z3fold.free(small, &pins).unwrap();
        z3fold.free(big, &pins).unwrap();
        alloc(&mut z3fold, 1500);
        z3fold.free(a, &pins).unwrap();
        assert_eq!(z3fold.arena.used(), PageCount(if pinned { 2 } else { 1 }));
        z3fold.check();
    }
}

#[test]
fn a_layout_that_is_put_off_waits_until_it_is_optimised() {
    let mut z3fold = z3fold(PageSize::KIB4);
    z3fold.defer_layout();
    let pins = Pins::default();
    let [first, last, middle] = [0; 3].map(|_| alloc(&mut z3fold, 1000));
    z3fold.free(first, &pins).unwrap();
    z3fold.free(last, &pins).unwrap();
    assert_eq!(places(&z3fold, &[middle]), [(0, Buddy::Middle)]);
    z3fold.check();
    let other = alloc(&mut z3fold, 1000);
    assert_eq!(places(&z3fold, &[other]), [(1, Buddy::First)], "a waiting page takes nothing");
    assert_eq!(z3fold.optimise_some(&pins), 0);
    assert_eq!(places(&z3fold, &[middle, other]), [(1, Buddy::Last), (1, Buddy::First)]);
    assert_eq!(z3fold.arena.used(), PageCount(1));
    z3fold.check();
}

#[test]
fn a_page_that_empties_while_it_waits_leaves_at_once() {
    let mut z3fold = z3fold(PageSize::KIB4);
    z3fold.defer_layout();
    let pins = Pins::default();
    let handles = [0; 3].map(|_| alloc(&mut z3fold, 1000));
    for handle in handles {
        z3fold.free(handle, &pins).unwrap();
        z3fold.check();
    }
    assert_eq!(z3fold.arena.used(), PageCount::ZERO);
    assert_eq!(z3fold.waiting_pages, 0);
}

#[test]
fn pages_wait_in_bounded_number_and_leave_in_batches() {
    let arena = Arena::new(HeapPages.reserve(4 << 20).unwrap(), PageSize::KIB4);
    let mut z3fold = Z3fold::new(arena, HeapPages.reserve(64 << 10).unwrap(), false);
    z3fold.defer_layout();
    let pins = Pins::default();
    // Pairs that fill a page; of the ones that stay, three do.
    let lens = [1000, 2900].into_iter().cycle();
    let handles: Vec<_> = lens.take(600).map(|len| alloc(&mut z3fold, len)).collect();
    for (n, pair) in (1..).zip(handles.chunks(2)) {
        z3fold.free(pair[1], &pins).unwrap();
        assert_eq!(z3fold.waiting_pages, n.min(WAITING_MAX));
        assert_eq!(z3fold.optimise_due(), n >= OPTIMISE_BATCH);
    }
    z3fold.check();
    let before = z3fold.arena.used();
    let step = z3fold.compact_step(&pins);
    assert_eq!(z3fold.waiting_pages, WAITING_MAX - OPTIMISE_BATCH);
    assert_eq!(step.freed, before.0 - z3fold.arena.used().0);
    assert!(!step.done && step.freed >= 10, "{step:?}: of three pages, two leave");
    while z3fold.optimise_some(&pins) > 0 {}
    assert_eq!(z3fold.arena.used(), PageCount(100));
    z3fold.check();
}

#[test]
fn a_waiting_page_can_be_reclaimed() {
    let mut z3fold = z3fold(PageSize::KIB4);
    z3fold.defer_layout();
    let pins = Pins::default();
    let [first, last, middle] = [0; 3].map(|_| alloc(&mut z3fold, 1000));
    z3fold.free(first, &pins).unwrap();
    let victim = z3fold.begin_reclaim().unwrap();
    assert_eq!(victim.handles, [middle, last]);
    assert_eq!(z3fold.optimise_some(&pins), 0, "it waits no longer");
    z3fold.free(middle, &pins).unwrap();
    assert_eq!(z3fold.end_reclaim(&victim), 0, "one object stays");
    z3fold.check();
    z3fold.free(last, &pins).unwrap();
    assert_eq!(z3fold.arena.used(), PageCount::ZERO);
}

#[test]
fn reclaim_evicts_middle_first_last_and_headless_pages_too() {
    let mut z3fold = z3fold(PageSize::KIB4);
    let pins = Pins::default();
    let [first, last, middle] = [0; 3].map(|_| alloc(&mut z3fold, 1000));
    let headless = alloc(&mut z3fold, 4096);
    let victim = z3fold.begin_reclaim().unwrap();
    assert_eq!(victim.handles, [middle, first, last]);
    victim.handles.iter().for_each(|&handle| z3fold.free(handle, &pins).unwrap());
    assert_eq!(z3fold.end_reclaim(&victim), 1);
    let victim = z3fold.begin_reclaim().unwrap();
    assert_eq!(victim.handles, [headless]);
    assert_eq!(z3fold.end_reclaim(&victim), 0, "refused");
    z3fold.free(headless, &pins).unwrap();
    assert_eq!(z3fold.arena.used(), PageCount::ZERO);
    z3fold.check();
}
