//! What the helper and the kernel do to pages on their way out.

use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Duration;

use super::*;

#[test]
fn pages_whose_move_is_not_reported_have_left() {
    let plain = libc::PROT_READ | libc::PROT_WRITE;
    for protection in [plain, plain | libc::PROT_EXEC] {
        let Some(world) = World::new(4 * MIB) else { return };
        world.here.hides.store(true, Ordering::Relaxed);
        let memory = world.map(16 * MIB);
        sys::protect_as(&memory, protection);
        // Also single ones, without neighbours.
        let used = || pages(&memory).filter(|page| page / page_len() % 8 != 1);
        used().for_each(|page| fill(page, 1));
        used().for_each(|page| verify(page, 1));
        let all = (memory.len() / page_len()) as u64;
        assert!(world.stats().evictions_total > all / 4, "{:?}", world.stats());
    }
}

/// The kernel may take a page that its program has given up by `MADV_FREE`, wherever it is.
#[test]
fn a_page_that_the_kernel_takes_from_the_staging_is_zeros() {
    let Some(world) = World::new(4 * MIB) else { return };
    world.here.loses.store(true, Ordering::Relaxed);
    let memory = world.map(16 * MIB);
    pages(&memory).for_each(|page| fill(page, 1));
    world.here.loses.store(false, Ordering::Relaxed);
    let lost = pages(&memory).filter(|&page| sys::get(page) == 0).count();
    assert!(lost > 0 && lost < memory.len() / page_len() / 8, "{lost} pages");
    pages(&memory).filter(|&page| sys::get(page) != 0).for_each(|page| verify(page, 1));
}

/// The staging is the space's own memory, which others can read: under the lock if the helper fails
/// while it moves pages, and without it after that.
#[test]
fn what_is_on_its_way_out_when_the_helper_fails_comes_back() {
    comes_back(|here| &here.ends);
    comes_back(|here| &here.fails);
}

fn comes_back(fails: fn(&Here) -> &AtomicBool) {
    let Some(world) = World::new(4 * MIB) else { return };
    let memory = world.map(16 * MIB);
    let first = memory.start..memory.start + 2 * MIB;
    pages(&first).for_each(|page| fill(page, 1));
    fails(&world.here).store(true, Ordering::Relaxed);
    let mut rest = pages(&(first.end..memory.end));
    let managed = world.engine.space(world.space);
    let mut filled = Vec::new();
    while managed.is_attached() {
        let page = rest.next().expect("the helper fails before all is touched");
        fill(page, 1);
        filled.push(page);
    }
    pages(&first).chain(filled).for_each(|page| verify(page, 1));
    assert!(world.stats().evictions_total > 0, "{:?}", world.stats());
}

/// Faults find pages of batches whose bytes are still being read (mover/M4).
#[test]
fn pages_that_are_wanted_before_they_are_read_come_back() {
    let Some((world, memory)) = World::filled(4 * MIB, 2 * MIB) else { return };
    world.here.dawdles.store(true, Ordering::Relaxed);
    for round in 1..20 {
        thread::scope(|scope| {
            scope.spawn(|| world.page_out(&memory));
            for page in pages(&memory) {
                verify(page, round);
                fill(page, round + 1);
            }
        });
    }
    let stats = world.stats();
    let all = (memory.len() / page_len()) as u64;
    assert!(stats.refaults_total > 0 && stats.evictions_total > 2 * all, "{stats:?}");
}

/// Nobody can tell what was on its way out: it must not be taken for memory that nobody has
/// written.
#[test]
fn nothing_is_filled_in_after_pages_were_lost() {
    assert!((0..100).any(|_| nothing_is_filled_in(|here| &here.ends)), "nothing is ever lost");
    assert!((0..100).any(|_| nothing_is_filled_in(|here| &here.fails)), "nothing is ever lost");
}

/// Returns whether pages were lost, if this can be tested: only those that are on their way out
/// when the helper fails.
fn nothing_is_filled_in(fails: fn(&Here) -> &AtomicBool) -> bool {
    let Some(world) = World::new(4 * MIB) else { return true };
    let memory = world.map(16 * MIB);
    let first = memory.start..memory.start + 8 * MIB;
    pages(&first).for_each(|page| fill(page, 1));
    fails(&world.here).store(true, Ordering::Relaxed);
    assert_eq!(sys::unmap(&world.staging), 0);
    let rest = first.end..memory.end;
    let fills = thread::spawn(move || pages(&rest).for_each(|page| fill(page, 1)));
    while lock(&world.asked.end).is_empty() {
        if fills.is_finished() && lock(&world.asked.end).is_empty() {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(lock(&world.asked.end)[0].contains("it lost pages"), "{:?}", world.asked.end);
    // One thread each, since those that touch a page that is away wait.
    let zeros = Arc::new(AtomicUsize::new(0));
    let touch = |page| {
        let zeros = Arc::clone(&zeros);
        thread::spawn(move || {
            zeros.fetch_add(usize::from(sys::get(page) == 0), Ordering::Relaxed);
        })
    };
    let touches: Vec<_> = pages(&first).step_by(8).map(touch).collect();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(zeros.load(Ordering::Relaxed), 0, "pages that read as zeros");
    world.engine.gone(world.space);
    fills.join().unwrap();
    touches.into_iter().for_each(|thread| thread.join().unwrap());
    lock(&world.asked.end).clear();
    true
}

/// A program can touch what its helper works with, as mlockall does, and harms only itself.
#[test]
fn memory_of_the_helper_is_never_taken_for_the_programs() {
    let Some(world) = World::new(8 * MIB) else { return };
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
}

#[test]
fn code_and_memory_that_is_only_written_leave() {
    let rwx = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    for protection in [rwx, libc::PROT_WRITE] {
        let Some(world) = World::new(4 * MIB) else { return };
        let memory = world.map(16 * MIB);
        let other = memory.start + 4 * MIB..memory.start + 12 * MIB;
        sys::protect_as(&other, protection);
        for page in pages(&memory) {
            // What can be written can be read, on this machine.
            fill(page, 1);
            if page % (64 * page_len()) == 0 {
                assert!(world.resident() <= 4 * MIB, "{} resident", world.resident());
            }
        }
        pages(&memory).for_each(|page| verify(page, 1));
        let stats = world.stats();
        assert_eq!(stats.over_limit_total, 0, "{stats:?}");
        // Children that other tests make share pages for a moment, which stay then.
        let few = other.len() / page_len() / 4;
        assert!((stats.busy_pages_total as usize) < few, "{stats:?}");
        // The program may change protections at any time.
        sys::protect(&other, true);
        let neighbour = memory.start..memory.start + 4 * MIB;
        sys::protect_as(&neighbour, protection);
        for round in 2..4 {
            pages(&memory).for_each(|page| fill(page, round));
            pages(&memory).for_each(|page| verify(page, round));
        }
        assert!(world.resident() <= 4 * MIB, "{} resident", world.resident());
        assert!((world.stats().busy_pages_total as usize) < few, "{:?}", world.stats());
    }
}
