//! What the helper and the kernel do to pages on their way out.

use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Duration;

use super::*;

#[test]
fn pages_whose_move_is_not_reported_have_left() {
    let Some(world) = World::new("pages_whose_move_is_not_reported", 4 * MIB) else { return };
    world.here.hides.store(true, Ordering::Relaxed);
    let memory = world.map(16 * MIB);
    // Also single ones, without neighbours.
    let used = || pages(&memory).filter(|page| page / PAGE % 8 != 1);
    used().for_each(|page| fill(page, 1));
    used().for_each(|page| verify(page, 1));
    assert!(world.stats().evicted_total > 1000, "{:?}", world.stats());
    world.check();
}

/// The kernel may take a page that its program has given up by `MADV_FREE`, wherever it is.
#[test]
fn a_page_that_the_kernel_takes_from_the_staging_is_zeros() {
    let Some(world) = World::new("a_page_that_the_kernel_takes", 4 * MIB) else { return };
    world.here.loses.store(true, Ordering::Relaxed);
    let memory = world.map(16 * MIB);
    pages(&memory).for_each(|page| fill(page, 1));
    world.here.loses.store(false, Ordering::Relaxed);
    let lost = pages(&memory).filter(|&page| sys::get(page) == 0).count();
    assert!(lost > 0 && lost < memory.len() / PAGE / 8, "{lost} pages");
    pages(&memory).filter(|&page| sys::get(page) != 0).for_each(|page| verify(page, 1));
    world.check();
}

/// What was on its way out then is lost: it must not be taken for memory that nobody has written.
#[test]
fn nothing_is_filled_in_after_the_helper_has_failed() {
    let Some(world) = World::new("nothing_is_filled_in", 4 * MIB) else { return };
    let memory = world.map(16 * MIB);
    let first = memory.start..memory.start + 2 * MIB;
    pages(&first).for_each(|page| fill(page, 1));
    world.here.fails.store(true, Ordering::Relaxed);
    let rest = first.end..memory.end;
    let fills = thread::spawn(move || pages(&rest).for_each(|page| fill(page, 1)));
    while lock(&world.asked.end).is_empty() {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(lock(&world.asked.end)[0].contains("the helper"), "{:?}", world.asked.end);
    let lost = lock(&world.here.lost).clone();
    assert!(!lost.is_empty(), "no page was on its way out");
    // One thread each, since all of them wait.
    let zeros = Arc::new(AtomicUsize::new(0));
    let touch = |page| {
        let zeros = Arc::clone(&zeros);
        thread::spawn(move || {
            zeros.fetch_add(usize::from(sys::get(page) == 0), Ordering::Relaxed);
        })
    };
    let touches: Vec<_> = lost.into_iter().map(touch).collect();
    // For a while: nobody tells that nothing comes.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(zeros.load(Ordering::Relaxed), 0, "pages that read as zeros");
    assert!(touches.iter().all(|thread| !thread.is_finished()), "who brought a lost page?");
    world.engine.gone(world.space);
    fills.join().unwrap();
    touches.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A program can touch what its helper works with, as mlockall does, and harms only itself.
#[test]
fn memory_of_the_helper_is_never_taken_for_the_programs() {
    let Some(world) = World::new("memory_of_the_helper", 8 * MIB) else { return };
    let memory = world.map(32 * MIB);
    for round in 1..4 {
        pages(&memory).for_each(|page| fill(page, round));
        for page in pages(&world.staging) {
            sys::get(page);
        }
        let closed = world.engine.space(world.space).lock().closed().clone();
        assert!(!closed.touches(&pages_of(&world.staging)), "round {round}");
        pages(&memory).for_each(|page| verify(page, round));
    }
    assert!(world.resident() <= 8 * MIB);
    world.check();
}
